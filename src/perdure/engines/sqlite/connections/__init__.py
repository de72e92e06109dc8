"""SQLite connections: how they are opened, interrupted, and kept out of forked children."""
