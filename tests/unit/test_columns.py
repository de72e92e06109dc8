"""The rules of columns speak of every declared column, and leave the declarations themselves alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.rules.columns import COLUMNS, HAVE_BODIES, column_problems
from perdure.stores.schema import SCHEMA

DIGEST = "2f33707dbf595e8e"
"""Of schema 3. A rule that changed it would make every existing store migrate."""


def test_every_declared_column_has_a_rule_and_nothing_else_has() -> None:
    declared = {table.name: set(table.types) for table in SCHEMA.tables}
    declared |= {log.name: {log.partition, "seq", *log.types} for log in SCHEMA.logs}
    if {name: set(rules) for name, rules in COLUMNS.items()} != declared:
        raise AssertionError("rules.columns and stores.layout name different columns")
    if not declared.keys() >= HAVE_BODIES:
        raise AssertionError(f"no such tables: {HAVE_BODIES - declared.keys()}")


def test_what_is_part_of_a_key_is_always_there() -> None:
    optional = [
        f"{table.name}.{name}"
        for table in SCHEMA.tables
        for name in table.key_names
        if not COLUMNS[table.name][name].always
    ]
    if optional:
        raise AssertionError(f"keys that may be missing: {optional}")


def test_the_rules_do_not_change_the_stored_declaration() -> None:
    if (SCHEMA.version, SCHEMA.digest()) != (3, DIGEST):
        raise AssertionError(f"the schema is now {SCHEMA.version} {SCHEMA.digest()}")


@pytest.mark.parametrize("name", ["runs.status", "runs.steps", "keys.digest", "threads.parent", "messages.role"])
@pytest.mark.parametrize("value", [-1, 2**52 + 1, 1.5, True, "", "a\x1bb", "\ud800", b"x", [], {"a": 1}])
def test_odd_values_are_named_and_nothing_is_raised(name: str, value: object) -> None:
    table, column = name.split(".")
    (problem,) = column_problems(table, [(column, value)])
    if name not in problem:
        raise AssertionError(problem)


@pytest.mark.parametrize("version", [1, 2])
def test_rows_of_an_old_file_keep_the_rules(version: int) -> None:
    """A file of schema 1 was written before the rules were written down."""
    old = Path(__file__).parents[1] / "fixtures" / f"schema-{version}.db"
    with closing(sqlite3.connect(f"file:{old}?mode=ro&immutable=1", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        for table in COLUMNS.keys() - {"profiles"}:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                if problems := list(column_problems(table, dict(row).items())):
                    raise AssertionError(problems)
