"""The MySQL write path: lock and read, decide in Python, write and commit."""
