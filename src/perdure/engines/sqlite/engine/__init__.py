"""The open SQLite engine: one database, with an engine for tasks and one for plain threads."""
