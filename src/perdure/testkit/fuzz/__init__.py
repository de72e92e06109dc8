"""Random calls, made on the product and on the reference in lockstep; every answer is compared."""
