"""Random operations, driven through the product and the reference model in lockstep."""
