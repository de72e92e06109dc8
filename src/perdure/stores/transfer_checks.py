"""Does an imported thread hold together? Asked before anything of it becomes visible.

The lines of a thread are handed in one by one; its hot row, the last of them, has everything compared by the rules that
`doctor verify` goes by. What is kept is small: columns, message ids and places, never the bodies of messages. A file
may come from anywhere, so nothing that an audit would later report may pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure import limits
from perdure.errors import InvalidError
from perdure.kernel.ops import LogEntry, Row
from perdure.rules.sound_thread import thread_problems
from perdure.rules.stored import LogFacts, Problem, ThreadRows
from perdure.stores.soundness import body_problems, message_problems
from perdure.stores.transfer_lines import COLD, HOT, NOT_CARRIED, EntryLine, RowLine

MESSAGES = "messages"
_MOST_BODY = {
    COLD: limits.CUSTOM_BYTES + 1024,
    "runs": limits.RUN_BYTES,
    "state": limits.STATE_BYTES,
    "pending": limits.MESSAGE_BYTES,
}


class ThreadCheck:
    """Everything that is known of the thread whose lines are being read."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.lengths: dict[str, int] = {}
        self._rows: dict[str, dict[tuple[str | int, ...], Row]] = {}
        self._ids: set[str] = set()
        self._facts = LogFacts()

    def row(self, line: RowLine) -> None:
        """Take in a row."""
        name = line.table.name
        seen = self._rows.setdefault(name, {})
        if line.key in seen:
            raise InvalidError(f"{name} {line.key} is there twice")
        size, most = len(line.body or b""), _MOST_BODY.get(name, limits.COMMIT_BYTES)
        if size > most:
            raise InvalidError(f"a body of {size:,} bytes, the limit of {name} is {most:,}")
        row = _as_row(line)
        _refuse(body_problems(name, row))
        # The rules between rows look into no body but that of a key, which is a short list of ids.
        seen[line.key] = row if name == "keys" else msgspec.structs.replace(row, body=None)
        if name == HOT:
            self._finish(row)

    def entry(self, line: EntryLine) -> None:
        """Take in a log entry."""
        expected = self.lengths.get(line.log.name, 0) + 1
        if line.seq != expected:
            raise InvalidError(f"{line.log.name} {line.seq} of thread {line.thread!r} stands where {expected} should")
        self.lengths[line.log.name] = line.seq
        if line.log.name == MESSAGES:
            self._message(line.thread, (line.seq, 1, *line.values, line.body))

    def _message(self, thread: str, entry: LogEntry) -> None:
        if len(entry[-1]) > limits.MESSAGE_BYTES:
            raise InvalidError(f"{len(entry[-1]):,} bytes, the limit is {limits.MESSAGE_BYTES:,}")
        _refuse(message_problems(thread, entry))
        if entry[2] in self._ids:
            raise InvalidError(f"the message id {entry[2]!r} is there twice")
        self._ids.add(entry[2])
        self._facts.add(entry[0], entry[2:-1])

    def _finish(self, head: Row) -> None:
        """The hot row closes a thread: now everything must fit."""
        if head.key != (self.thread,):
            raise InvalidError(f"the hot row of thread {head.key[0]!r} closes thread {self.thread!r}")
        rows = ThreadRows(
            thread=self.thread,
            head=head,
            cold=self._rows.get(COLD, {}).get((self.thread,)),
            length=self.lengths.get(MESSAGES, 0),
            branches=self._all("branches"),
            runs=self._all("runs"),
            labels=self._all("labels"),
            state=self._all("state"),
            keys=self._all("keys"),
            pending=self._all("pending"),
            queue=self._rows.get("queues", {}).get((self.thread,)),
        )
        _refuse(thread_problems(rows, self._facts))
        for row in rows.pending:
            if row.key[1] in self._ids:
                raise InvalidError(f"pending message {row.key[1]!r} is in the log too")

    def _all(self, table: str) -> Sequence[Row]:
        return list(self._rows.get(table, {}).values())


def _as_row(line: RowLine) -> Row:
    """The row as it will be stored, with what a file does not carry as a new thread has it."""
    columns = {**dict.fromkeys(NOT_CARRIED[HOT], 0), **line.columns} if line.table.name == HOT else line.columns
    values = tuple(columns.get(name) for name in line.table.column_names)
    return Row(line.key, values, 1, line.body, line.table.place)


def _refuse(problems: Iterable[Problem]) -> None:
    for problem in problems:
        raise InvalidError(f"{problem.record}: {problem.text}")
