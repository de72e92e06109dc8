"""What the SQL engines share: declarations, reads and versions as a relational database sees them.

No dialect lives here; where dialects differ, a `Dialect` says how.
"""
