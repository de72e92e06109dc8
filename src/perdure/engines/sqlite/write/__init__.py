"""The SQLite write path: jobs, the writer that queues them, and group commit."""
