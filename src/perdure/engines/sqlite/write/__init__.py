"""The SQLite write path: jobs, the writer that queues them, group commit and checkpoints."""
