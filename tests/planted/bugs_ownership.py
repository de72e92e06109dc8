"""Bugs in what threads own, in reserved scopes, and in migrations beside running processes; see `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

_OWNERSHIP = "test:tests/engines/test_ownership.py"
_ONLINE = "test:tests/engines/test_online_indexes.py"
_GENERATIONS = "test:tests/engines/test_generations.py"

OWNERSHIP_BUGS = (
    Bug(
        "a row of the scope is taken for a thread's, because of a name",
        "stores/ownership.py",
        "    return [table for table in schema.tables if table.owner is not None]",
        '    return [table for table in schema.tables if "thread" in (*table.key_names, *table.column_names)]',
        (f"{_OWNERSHIP}::test_what_a_thread_owns_is_erased_and_nothing_else[memory]",),
    ),
    Bug(
        "rows that are to be blanked are deleted",
        "stores/ownership.py",
        "    if not isinstance(table.erase, Blank) or table.owner is None:",
        "    if not isinstance(table.erase, Blank) or table.owner is not None:",
        (f"{_OWNERSHIP}::test_what_a_thread_owns_is_erased_and_nothing_else[memory]",),
    ),
    Bug(
        "a blanked row keeps its owner",
        "stores/ownership.py",
        "dict.fromkeys((table.owner, *table.erase.columns))",
        "dict.fromkeys(table.erase.columns)",
        (f"{_OWNERSHIP}::test_what_a_thread_owns_is_erased_and_nothing_else[memory]",),
    ),
    Bug(
        "a letter that moved away ends the erasure",
        "stores/deletion.py",
        "        if conflict.op == len(ops) - 1:\n            raise\n        return False",
        "        raise",
        (f"{_OWNERSHIP}::test_a_letter_that_changes_while_it_is_blanked_is_read_again",),
    ),
    Bug(
        "ownership is recorded with the data",
        "kernel/schema.py",
        '_NOT_RECORDED = frozenset(("owner", "erase"))',
        '_NOT_RECORDED = frozenset(("erase",))',
        (f"{_OWNERSHIP}::test_ownership_is_not_recorded_with_the_data",),
    ),
    Bug(
        "a store opens a reserved scope",
        "rules/checks.py",
        "    if scope.startswith(RESERVED) and not read_only:",
        "    if scope == RESERVED and not read_only:",
        ("case:scope/reserved@memory",),
    ),
    Bug(
        "a change of generation keeps the name",
        "kernel/schema.py",
        'return name if generation == 1 else f"{name}__v{generation}"',
        "return name",
        (f"{_GENERATIONS}::test_an_old_process_fails_loudly_and_writes_nothing[sqlite-this]",),
    ),
    Bug(
        "an index on PostgreSQL locks writers out",
        "engines/postgres/schema/online_indexes.py",
        'missing.declaration, "CONCURRENTLY ", name=missing.name + _NEW)',
        'missing.declaration, "", name=missing.name + _NEW)',
        (f"{_ONLINE}::test_writers_on_postgres_go_on_while_an_index_is_built",),
        hangs=True,
    ),
    Bug(
        "an index that a killed build left is taken for a good one",
        "engines/postgres/schema/online_indexes.py",
        "    if not states[0][0]:",
        "    if not states[0]:",
        (f"{_ONLINE}::test_a_build_that_was_killed_on_postgres_is_dropped_and_built_again",),
    ),
    Bug(
        "an index on MySQL locks writers out",
        "engines/mysql/schema.py",
        'ONLINE = "ALGORITHM=INPLACE, LOCK=NONE"',
        'ONLINE = "ALGORITHM=INPLACE, LOCK=SHARED"',
        (f"{_ONLINE}::test_writers_on_mysql_go_on_while_an_index_is_built",),
    ),
)
