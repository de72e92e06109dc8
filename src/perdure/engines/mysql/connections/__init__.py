"""MySQL connections: opening, login, the pool, and values as SQL text."""
