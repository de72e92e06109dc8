"""A reference model of the product in plain dictionaries, sharing no code with it."""
