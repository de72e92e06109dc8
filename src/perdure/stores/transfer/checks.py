"""Does an imported thread hold together? Asked before anything of it becomes visible.

The lines of a thread are handed in one by one; its hot row, the last of them, has everything compared by the rules that
`doctor verify` goes by. What has a limit is kept in memory, everything else in a notebook on disk, never the bodies of
messages. A file may come from anywhere, so nothing that an audit would later report may pass.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure import limits
from perdure.errors import InvalidError
from perdure.kernel import codec
from perdure.kernel.ops import LogEntry, Row
from perdure.kernel.schema import Schema
from perdure.rules.columns import check_plausible
from perdure.rules.message_shape import check_block_count
from perdure.rules.soundness.stored import Problem, ThreadRows, add_to_line, message_facts, row_name
from perdure.rules.soundness.thread import thread_problems
from perdure.scratch import Scratch
from perdure.stores.records import pending_from
from perdure.stores.soundness import body_problems, message_problems
from perdure.stores.thread_creation import child_flag
from perdure.stores.transfer.lines import COLD, HOT, NOT_CARRIED, EntryLine, RowLine
from perdure.stores.transfer.notes import NotedLog, NotedRows, NotedStatuses
from perdure.stores.transfer.scope_rows import as_row, check_scope_row

MESSAGES = "messages"
_MOST_ROWS = {
    COLD: 1,
    HOT: 1,
    "queues": 1,
    "branches": limits.BRANCHES_PER_THREAD,
    "pending": limits.PENDING_PER_THREAD,
}
"""Of these tables a thread has only so many rows, of all others any number."""


class FileCheck(msgspec.Struct, frozen=True):
    """What the check of a whole file shares: the declarations, the notebook, and the latest time that is plausible."""

    schema: Schema
    scratch: Scratch
    latest: int

    def scope_row(self, line: RowLine) -> None:
        """Take in a row that belongs to no thread."""
        check_scope_row(line, self.latest)
        if not self.scratch.add_scope_row(line.table.name, codec.encode(line.key)):
            raise InvalidError(f"{row_name(line.table.name, line.key)} is in the file twice")


class ThreadCheck:
    """Everything that is known of the thread whose lines are being read."""

    def __init__(self, thread: str, file: FileCheck) -> None:
        self.thread = thread
        self._file = file
        self._lengths: dict[str, int] = {}
        self._rows: dict[str, dict[tuple[str | int, ...], Row]] = {name: {} for name in _MOST_ROWS}
        self._noted = {t.name: NotedRows(file.scratch, t) for t in file.schema.tables if t.name not in _MOST_ROWS}
        self._log = NotedLog(file.scratch)
        file.scratch.next_thread()

    def row(self, line: RowLine) -> None:
        """Take in a row."""
        name = line.table.name
        row = _as_row(line)
        _refuse(body_problems(name, row))
        if name == "pending":
            check_block_count(pending_from(row).message, f"pending message {row.key[1]!r}")
        check_plausible(name, line.columns, self._file.latest)
        if not self._remember(name, row):
            raise InvalidError(f"{name} {line.key} is there twice")
        if name == "runs" and not self._file.scratch.add_run(str(line.key[0])):
            raise InvalidError(f"run {line.key[0]!r} is in the file twice")
        if name == HOT:
            self._finish(row)

    def _remember(self, name: str, row: Row) -> bool:
        # The rules between rows look into no body but that of a key, which is a short list of ids.
        if name in self._noted:
            return self._noted[name].add(row, keep_body=name == "keys")
        rows = self._rows[name]
        if row.key in rows:
            return False
        if len(rows) >= _MOST_ROWS[name]:
            raise InvalidError(f"thread {self.thread!r} has more than {_MOST_ROWS[name]:,} rows of {name}")
        rows[row.key] = msgspec.structs.replace(row, body=None)
        return True

    def entry(self, line: EntryLine) -> None:
        """Take in a log entry."""
        begins = line.log.trim and line.log.name not in self._lengths
        if begins and line.seq > limits.IMPORT_NUMBER_MAX:
            raise InvalidError(f"{line.log.name} of thread {line.thread!r} begins at {line.seq}")
        expected = line.seq if begins else self._lengths.get(line.log.name, 0) + 1
        if line.seq != expected:
            raise InvalidError(f"{line.log.name} {line.seq} of thread {line.thread!r} stands where {expected} should")
        self._lengths[line.log.name] = line.seq
        if line.log.name == MESSAGES:
            check_plausible(MESSAGES, dict(zip(line.log.column_names, line.values, strict=True)), self._file.latest)
            self._message(line.thread, (line.seq, 1, *line.values, line.body))

    def _message(self, thread: str, entry: LogEntry) -> None:
        _refuse(message_problems(thread, entry, is_new=True))
        seq, facts = entry[0], message_facts(entry[2:-1])
        add_to_line(self._log.lines, seq, facts)
        if not self._log.add(seq, facts):
            raise InvalidError(f"the message id {facts.id!r} is there twice")

    def _finish(self, head: Row) -> None:
        """The hot row closes a thread: now everything must fit."""
        if head.key != (self.thread,):
            raise InvalidError(f"the hot row of thread {head.key[0]!r} closes thread {self.thread!r}")
        rows = ThreadRows(
            thread=self.thread,
            head=head,
            cold=self._rows[COLD].get((self.thread,)),
            length=self._lengths.get(MESSAGES, 0),
            statuses=NotedStatuses(self._noted["runs"]),
            branches=list(self._rows["branches"].values()),
            runs=self._noted["runs"],
            labels=self._noted["labels"],
            state=self._noted["state"],
            keys=self._noted["keys"],
            pending=list(self._rows["pending"].values()),
            queue=self._rows["queues"].get((self.thread,)),
        )
        _refuse(thread_problems(rows, self._log))
        for row in rows.pending:
            if self._file.scratch.has_message(str(row.key[1])):
                raise InvalidError(f"pending message {row.key[1]!r} is in the log too")


def _as_row(line: RowLine) -> Row:
    """The row as it will be stored, with what a file does not carry as a new thread has it."""
    if line.table.name != HOT:
        return as_row(line)
    child = child_flag(line.columns.get("parent"))
    columns = {**dict.fromkeys(NOT_CARRIED[HOT], 0), **line.columns, "child": child}
    return as_row(msgspec.structs.replace(line, columns=columns))


def _refuse(problems: Iterable[Problem]) -> None:
    for problem in problems:
        raise InvalidError(f"{problem.record}: {problem.text}")
