"""The Redis read path: a view as one script, and its answer decoded."""
