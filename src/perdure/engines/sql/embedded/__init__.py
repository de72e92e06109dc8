"""An embedded SQL evaluator: schema, reads and writes on one `sqlite3` connection of the caller.

It knows the declarations and SQL, and nothing about files, threads or group commit.
"""
