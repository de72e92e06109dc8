"""The health of a Redis store: server settings and an integrity check."""
