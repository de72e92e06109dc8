"""The conformance cases, one module per subject."""
