"""Bugs in logs that are trimmed, and in entries that say where they start; see `bugs` for what a bug is."""

from __future__ import annotations

from tests.planted.bug import Bug

_TRIMMING = "test:tests/engines/test_trimming.py"

TRIMMING_BUGS = (
    Bug(
        "a trim removes the newest entry",
        "engines/memory/schema.py",
        "len(self.entries) - 1, limits.TRIM_ENTRIES)",
        "len(self.entries), limits.TRIM_ENTRIES)",
        ("case:kernel/trim@memory",),
    ),
    Bug(
        "a trim on SQLite has no limit",
        "engines/sql/embedded/write.py",
        "min(op.upto, last - 1, first + limits.TRIM_ENTRIES - 1)",
        "min(op.upto, last - 1)",
        ("case:kernel/trim@sqlite",),
    ),
    Bug(
        "a trim on PostgreSQL removes the newest entry",
        "engines/postgres/write/stepwise.py",
        """AND "seq" < (SELECT "last" FROM h) RETURNING 1'""",
        """AND "seq" <= (SELECT "last" FROM h) RETURNING 1'""",
        ("case:kernel/trim@postgres",),
    ),
    Bug(
        "a trim on MySQL has no limit",
        "engines/mysql/write/transaction.py",
        'oldest = f"`seq` <= {upto} ORDER BY `seq` LIMIT {limits.TRIM_ENTRIES}"',
        'oldest = f"`seq` <= {upto} ORDER BY `seq`"',
        ("case:kernel/trim@mysql",),
    ),
    Bug(
        "unique values of trimmed entries stay taken",
        "engines/redis/write/lua/trim.lua",
        "    call('HDEL', about, unpack(fields, from, math.min(#fields, from + 1999)))\n",
        "    local _ = fields\n",
        ("case:kernel/trim@redis",),
    ),
    Bug(
        "the length of a trimmed log is taken for its last seq",
        "engines/redis/read/lua/reads.lua",
        "  if not trims or length == 0 then\n",
        "  if trims or length == 0 then\n",
        ("case:kernel/trim@redis",),
    ),
    Bug(
        "a trimmed log is fetched with LRANGE",
        "engines/redis/read/direct.py",
        "if read.log in self._trimmed:",
        "if read.log is None:",
        ("case:kernel/trim-reads@redis",),
    ),
    Bug(
        "a segment of a trimmed log begins nowhere",
        "engines/redis/write/lua/trim.lua",
        "  if #marks > 0 then\n",
        "  if #marks > 1 then\n",
        ("case:kernel/trim-reads@redis",),
    ),
    Bug(
        "an expired cursor skips what was trimmed",
        "kernel/trimming.py",
        "if base <= after or (",
        "if base <= after + 1 or (",
        ("case:kernel/trim-reads@memory",),
    ),
    Bug(
        "a filtered read does not look where its log begins",
        "kernel/trimming.py",
        "and not read.desc and not read.where and read.segments",
        "and not read.desc and read.segments",
        ("case:kernel/trim-reads@memory",),
    ),
    Bug(
        "a trim shares its transaction",
        "kernel/validate.py",
        ".count(Check) != len(ops) - 1:",
        ".count(Check) > len(ops):",
        ("case:kernel/trim-guarded@memory",),
    ),
    Bug(
        "any log can be trimmed",
        "kernel/validate.py",
        'raise InvalidError(f"{log.name} is not declared with trim: its entries stay")',
        "pass",
        ("case:kernel/trim-guarded@memory",),
    ),
    Bug(
        "entries start behind a gap that nobody trimmed",
        "engines/mysql/write/transaction.py",
        "elif op.before is not None and op.before != head:",
        "elif op.before is not None and op.before < head:",
        ("case:kernel/append-start@mysql",),
    ),
    Bug(
        "a partition whose entries were all trimmed or dropped keeps its head",
        "engines/postgres/write/stepwise.py",
        "        if log.trim:\n",
        "        if log.trim and not heads:\n",
        ("case:kernel/append-start@postgres",),
    ),
    Bug(
        "an import numbers a trimmed log from 1",
        "stores/transfer/arrival.py",
        "Append(log, self._thread, entries, start=first)",
        "Append(log, self._thread, entries)",
        ("case:kernel/trim-transfer@memory",),
    ),
    Bug(
        "a copy reads a trimmed log from 1",
        "copy/walk.py",
        "bases = [entries[0][0] - 1 if entries else 0 for entries in answers] or",
        "bases = [entries[0][0] - 1 if entries and not entries[0][1] else 0 for entries in answers] or",
        (f"{_TRIMMING}::test_a_trimmed_log_is_copied_as_it_is[memory]",),
    ),
    Bug(
        "a copy does not notice that its source is trimmed",
        "copy/walk.py",
        "self._digest.update(_facts.encode(facts))",
        "self._digest.update(_facts.encode(facts[-1:]))",
        (f"{_TRIMMING}::test_a_copy_notices_that_its_source_is_trimmed",),
    ),
    Bug(
        "a log that was trimmed is taken for one with a gap",
        "engines/sqlite/health.py",
        "    if log.trim:\n",
        "    if not log.trim:\n",
        ("case:kernel/trim@sqlite",),
    ),
    Bug(
        "the field trim changes the digest of older schemas",
        "kernel/schema.py",
        '{"generation": 1, "trim": False}',
        '{"generation": 1}',
        ("test:tests/engines/test_ownership.py::test_ownership_is_not_recorded_with_the_data",),
    ),
)
