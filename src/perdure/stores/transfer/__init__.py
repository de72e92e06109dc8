"""Export and import: threads as lines of JSON, and back."""
