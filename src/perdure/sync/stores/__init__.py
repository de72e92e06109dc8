"""The stores as blocking callers see them, written by tools/make_sync.py."""
