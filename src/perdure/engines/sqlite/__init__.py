"""The SQLite engine: the default. One file, several processes, readable in any SQLite browser."""

from perdure.engines.sqlite.open import open_sqlite, plan_migration

__all__ = ["open_sqlite", "plan_migration"]
