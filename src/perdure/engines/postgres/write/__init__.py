"""The PostgreSQL write path: a transaction as one statement, alone or batched with others."""
