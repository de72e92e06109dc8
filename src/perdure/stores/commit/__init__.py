"""The commit: a request checked, planned as operations, and executed in one transaction."""
