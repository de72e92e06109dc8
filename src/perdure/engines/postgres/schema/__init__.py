"""The tables and server-side functions of a PostgreSQL store."""
