"""Writing on memory: operations one by one, and transactions of known kinds by plan."""
