"""Bugs of the engines on servers: lost answers, batches, locks, conditions."""

from __future__ import annotations

from tests.planted.bug import Bug

SERVER_BUGS = (
    # The server engines.
    Bug(
        "postgres: a lost commit is sent again",
        "engines/postgres/write/executor.py",
        "            job.fail(unknown_outcome(error, job.transaction.rev))\n        elif code in RETRIED",
        "            return False\n        elif code in RETRIED",
        ("fault:cuts --engine postgres --cuts 12 --seed 7",),
    ),
    Bug(
        "postgres: acknowledged before the log is on disk",
        "engines/postgres/connections/session_settings.py",
        '    "jit": "off",\n',
        '    "jit": "off",\n    "synchronous_commit": "off",\n',
        ("fault:server_kills --engine postgres --kills 3 --seed 7",),
    ),
    Bug(
        "postgres: a refused batch fails all its members",
        "engines/postgres/write/executor.py",
        "            if not lost(error):\n                self._spell_out(batch)\n                return batch\n",
        "",
        ("fault:batches --engine postgres --rounds 6 --seed 7",),
    ),
    Bug(
        "postgres: a patch with a default does not look at its condition",
        "engines/postgres/write/operation_sql.py",
        "DO UPDATE SET {_set(changes)}{where} RETURNING 1",
        "DO UPDATE SET {_set(changes)} RETURNING 1",
        ("case:pending/concurrent-*@postgres", "case:pending/freeze-races-append@postgres"),
    ),
    Bug(
        "postgres: a session's isolation level is taken as it is found",
        "engines/postgres/connections/session_settings.py",
        'BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; "',
        'BEGIN = "BEGIN; "',
        ("test:tests/engines/test_postgres_sessions.py::test_no_isolation_level_of_a_database_reaches_a_caller",),
    ),
    Bug(
        "postgres: every number of documents is a statement of its own",
        "engines/postgres/write/transaction.py",
        "_SOLO_ROWS = 2\n",
        "_SOLO_ROWS = 99\n",
        (
            "test:tests/engines/test_postgres_sessions.py::test_commits_of_many_shapes_leave_few_statements_at_the_server",
        ),
    ),
    Bug(
        "mysql: a lost commit is sent again",
        "engines/mysql/write/writer.py",
        "if connection.broken or (connection.answered == len(last) - 1 and not errors.undone(error)):",
        "if not connection.broken and connection.answered == len(last) - 1 and not errors.undone(error):",
        ("fault:cuts --engine mysql --cuts 40 --seed 7",),
    ),
    Bug(
        "mysql: rows are read without a lock",
        "engines/mysql/write/transaction.py",
        'return f"SELECT {chosen} FROM {quote(table.stored)} WHERE {step.where} FOR UPDATE"',
        'return f"SELECT {chosen} FROM {quote(table.stored)} WHERE {step.where}"',
        ("fault:batches --engine mysql --rounds 40 --seed 7",),
    ),
    Bug(
        "mysql: commits that wait for locks may take every connection",
        "engines/mysql/connections/permits.py",
        "writing = most - min(_RESERVED_FOR_READS, (most + 1) // 3)",
        "writing = most",
        ("fault:locked_rows --engine mysql --rounds 1 --seed 7",),
    ),
    Bug(
        "mysql: a commit keeps its connection for as long as its row is locked",
        "engines/mysql/connections/connect.py",
        "LOCK_WAIT_SECONDS = 1\n",
        "LOCK_WAIT_SECONDS = 3600\n",
        ("fault:locked_rows --engine mysql --rounds 1 --seed 7",),
        hangs=True,
    ),
    Bug(
        "mysql: the expected length is not compared",
        "engines/mysql/write/transaction.py",
        "if op.before is not None and op.before != head:",
        "if op.before is not None and op.before > head:",
        ("case:commit/expect@mysql",),
    ),
    Bug(
        "redis: a lost answer is taken for a refusal",
        "engines/redis/engine.py",
        'raise OutcomeUnknown(f"{lost}: the commit may have landed", rev=rev, hint="retry with its key") from lost',
        'raise UnavailableError(f"{lost}: the commit may have landed") from lost',
        ("fault:cuts --engine redis --cuts 12 --seed 7",),
    ),
    Bug(
        "redis: rows are written before all are checked",
        "engines/redis/write/transaction_scripts.py",
        "for group in rows for line in _checks(group)]",
        "for group in rows for line in (*_checks(group), *_writes(group))]",
        ("serial:60@redis",),
    ),
    Bug(
        "redis: the expected length is not compared",
        "engines/redis/write/lua/append_check.lua",
        "tonumber(expected) ~= head then",
        "tonumber(expected) > head then",
        ("case:commit/expect@redis",),
    ),
    Bug(
        "redis: a row that moves in an index stays at its old place too",
        "engines/redis/write/row_lua.py",
        "yield from [entry.remove for entry in self._entries([holder], old, frame.key)]",
        "yield from ()",
        ("case:threads/list-by-activity@redis",),
    ),
    Bug(
        "redis: who came last for a connection is served first",
        "engines/redis/connections/pool.py",
        "turn = self._waiting.popleft()",
        "turn = self._waiting.pop()",
        ("case:commit/fair-turns@redis", "case:load/fair-turns@redis"),
    ),
    Bug(
        "mysql: the unique value of a default is refused although the row has appeared",
        "engines/mysql/write/transaction.py",
        "if isinstance(step.op, Patch) and not step.occupied:",
        "if step.occupied is None:",
        ("test:tests/engines/test_serial_order.py::test_a_default_counts_only_while_its_row_is_absent[mysql]",),
    ),
)
