"""How a schema is laid out in Redis: key names, table descriptions, column order."""
