"""Consistency rules for stored threads, shared by `doctor verify` and `import`."""
