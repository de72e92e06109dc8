"""The PostgreSQL engine: real tables in a schema of their own, one round trip per commit, many machines."""
