"""MySQL connections: opening them, logging in, sharing them, and writing values as SQL text."""
