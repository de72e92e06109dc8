"""The rows of an export that belong to no thread but to the scope: profiles.

In a file they stand between threads, or after all of them. Each is checked by itself, on both readings of the file, and
no key may be there twice. They are written in chunks. What has expired is left out of an export and of an import, and
a row that has expired in the store gives way.
"""

from __future__ import annotations

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, InvalidError
from perdure.kernel.ops import ABSENT, NOW, Get, Put, Row
from perdure.kernel.schema import Key
from perdure.rules.columns import check_plausible
from perdure.rules.expiry import has_expired
from perdure.rules.soundness.stored import row_name
from perdure.stores.context import Context
from perdure.stores.profiles import TABLE, profile_topic
from perdure.stores.retry import retry
from perdure.stores.soundness import body_problems
from perdure.stores.transfer.lines import RowLine


def as_row(line: RowLine) -> Row:
    """The row as it will be stored."""
    values = tuple(line.columns.get(name) for name in line.table.column_names)
    return Row(line.key, values, 1, line.body, line.table.positions)


def is_over(row: Row, now: int) -> bool:
    """Has a row of the scope expired? Most kinds never do."""
    return "expires_at" in row.positions and has_expired(row, now)


def check_scope_row(line: RowLine, latest: int) -> None:
    """Refuse a row that an audit would report, or whose times lie later than `latest`."""
    check_plausible(line.table.name, line.columns, latest)
    for problem in body_problems(line.table.name, as_row(line)):
        raise InvalidError(f"{problem.record}: {problem.text}")


class ScopeRows:
    """Rows of the scope on their way in, or, with `dry`, only compared with what is there."""

    def __init__(self, context: Context, *, skip_existing: bool, dry: bool = False) -> None:
        self._context = context
        self._skip_existing = skip_existing
        self._dry = dry
        self._lines: list[RowLine] = []
        self._bytes = 0
        self.written: int = 0

    async def take(self, line: RowLine) -> None:
        """Take in a row; a full chunk is written."""
        size = len(line.body or b"")
        if self._lines and (len(self._lines) >= limits.PAGE_MAX or self._bytes + size > limits.COMMIT_BYTES):
            await self.flush()
        # To compare keys, bodies are not needed.
        self._lines.append(msgspec.structs.replace(line, body=None) if self._dry else line)
        self._bytes += size

    async def flush(self) -> None:
        """Write what was taken in; raises `AlreadyExists` for a row that is there, or leaves it as it is."""
        lines, self._lines, self._bytes = self._lines, [], 0
        if lines:
            self.written += await retry("profile", str(lines[0].key[-1]), lambda: self._write(lines))

    async def _write(self, lines: list[RowLine]) -> int:
        keys: dict[str, list[Key]] = {}
        for line in lines:
            keys.setdefault(line.table.name, []).append(line.key)
        now, *answers = await self._context.view(NOW, *[Get(name, some) for name, some in keys.items()])
        present = {(name, row.key): row for name, rows in zip(keys, answers, strict=True) for row in rows if row}
        ops: list[Put] = []
        for line in lines:
            row = present.get((line.table.name, line.key))
            if is_over(as_row(line), now):
                continue
            if row is not None and not is_over(row, now):
                if not self._skip_existing:
                    raise AlreadyExists(
                        f"{row_name(line.table.name, line.key)} already exists",
                        hint="delete it first, or import with --skip-existing",
                    )
                continue
            ops.append(Put(line.table.name, line.key, line.columns, line.body, ABSENT if row is None else row.rev))
        if ops and not self._dry:
            topics = {profile_topic(str(op.key[0])) for op in ops if op.table == TABLE}
            await self._context.transact(ops, *sorted(topics))
        return len(ops)
