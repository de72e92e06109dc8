"""The Redis write path: each transaction as one generated script."""
