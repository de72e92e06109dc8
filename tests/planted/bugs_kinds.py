"""Bugs in filled kinds, and in what a commit does to its run. See `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

_COMPARED = "test:tests/unit/test_kinds.py"
_BATCHES = "test:tests/engines/test_postgres_kinds.py"
_FORMS = "test:tests/engines/test_redis_kinds.py"

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
        "redis: filled commits with other NULLs run the same script",
        "engines/redis/write/filled.py",
        "signature = (*map(type, values), *[values[number] == 0 for number in forms.seqs])",
        "signature = (len(values), *[values[number] == 0 for number in forms.seqs])",
        (_FORMS,),
    ),
    Bug(
        "redis: a filled commit takes an earlier seq for the last",
        "engines/redis/write/filled.py",
        "signature = (*map(type, values), *[values[number] == 0 for number in forms.seqs])",
        "signature = (*map(type, values),)",
        (_FORMS,),
    ),
    Bug(
        "redis: a filled commit puts all entries into the segment of the first",
        "engines/redis/write/filled.py",
        "            if append.codes.has_several_segments(entries):\n                return None\n",
        "",
        (_FORMS,),
    ),
    Bug(
        "redis: the key of a filled commit is not escaped",
        "engines/redis/write/kind_positions.py",
        """    return key if "\\x01" not in key and key.count("\\x00") == len(texts) - 1 else encode_key(texts)""",
        "    return key",
        (_FORMS,),
    ),
    Bug(
        "redis: a row that is replaced keeps the columns that the new one does not have",
        "engines/redis/write/row_lua.py",
        "self.changes.body is not None and always >= set(table.value_types)",
        "self.changes.body is not None",
        (_FORMS,),
    ),
    Bug(
        "a worker that is always ahead outruns cancel",
        "stores/run_cancelling.py",
        "        if attempts > POLITE_ATTEMPTS:\n",
        "        if attempts > 100 * POLITE_ATTEMPTS:\n",
        ("test:tests/unit/test_cancel_overtakes.py",),
    ),
)
