"""Rules that decide whether a stored thread holds together."""
