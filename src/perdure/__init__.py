"""Perdure: the durable state layer for AI agents."""
