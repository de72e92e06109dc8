"""An embedded SQL evaluator: schema, reads and writes on one SQLite connection."""
