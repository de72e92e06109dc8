"""Bugs in filled kinds, and in what a commit does to its run. See `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

_COMPARED = "test:tests/unit/test_kinds.py"
_BATCHES = "test:tests/engines/test_postgres_kinds.py"

KIND_BUGS = (
    Bug(
        "a filled commit forgets its fence",
        "stores/commit/fill.py",
        "    if fence is not None:\n        values.append(fence)\n    run, status",
        "    if fence is not None:\n        values.append(0)\n    run, status",
        (_COMPARED, "case:commit/fence@sqlite"),
    ),
    Bug(
        "commits that expect a length and those that do not are one kind",
        "stores/commit/fill.py",
        "    return head is not None, None if expect is None else expect > 0",
        "    return (head is not None,)",
        (_COMPARED, "case:commit/expect@sqlite"),
    ),
    Bug(
        "sqlite: a filled commit does not notice a row that is not as it should be",
        "engines/sql/embedded/filled.py",
        "                if (cursor.fetchone() is None) if reads else cursor.rowcount != 1:",
        "                if reads and cursor.fetchone() is None:",
        ("case:commit/fence@sqlite", "case:runs/stale-record@sqlite"),
    ),
    Bug(
        "sqlite: a filled commit appends to a log of any length",
        "engines/sql/embedded/filled.py",
        "(append.expect is not None or append.is_empty) and expected != length",
        "append.is_empty and expected != length",
        ("case:commit/expect@sqlite",),
    ),
    Bug(
        "sqlite: a filled commit counts back from the wrong seq",
        "engines/sql/embedded/filled.py",
        "arguments[number] = last - arguments[number]",
        "arguments[number] = last",
        ("case:runs/every-field@sqlite", "machine:sqlite:3000"),
    ),
    Bug(
        "postgres: a text with a separator in it is packed",
        "engines/postgres/write/columns.py",
        "    return text if text.count(_SEPARATOR) == len(column) - 1 and text.count(_NULL) == nulls else None",
        "    return text",
        (_BATCHES,),
    ),
    Bug(
        "postgres: a batch of filled commits is not in the order of its partitions",
        "engines/postgres/write/executor.py",
        "            batch.sort(key=_partition)\n",
        "            pass\n",
        (_BATCHES,),
    ),
    Bug(
        "a worker that is always ahead outruns cancel",
        "stores/runs.py",
        "            if attempts > _POLITE_ATTEMPTS:\n                run = await self._overtake(run)\n",
        "",
        ("case:runs/cancel-eager@sqlite",),
    ),
)
