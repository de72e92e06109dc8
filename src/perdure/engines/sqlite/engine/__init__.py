"""The open SQLite engine: one database, seen by tasks and by plain threads."""
