"""The MySQL engine: MariaDB and MySQL, two round trips per commit, many machines."""

from perdure.engines.mysql.engine import MysqlEngine
from perdure.engines.mysql.open import open_engine, plan_migration

__all__ = ["MysqlEngine", "open_engine", "plan_migration"]
