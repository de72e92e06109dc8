"""A second, simple implementation of every public method, in plain objects, that shares no code with the product."""
