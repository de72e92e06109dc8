"""The records users hold: frozen, typed, one file per noun. They know nothing of stores, engines or time."""
