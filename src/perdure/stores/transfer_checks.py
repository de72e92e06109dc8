"""Does an imported thread hold together? Asked before anything of it becomes visible.

The lines of a thread are handed in one by one; `finish` compares what they said. What is kept is small: message ids and
places, never bodies. A file may come from anywhere, so nothing that a store would later call corrupt may pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import CorruptError, InvalidError
from perdure.kernel import codec
from perdure.kernel.ops import Row
from perdure.model.run import STATUSES
from perdure.rules import names, shape
from perdure.stores import records
from perdure.stores.transfer_lines import COLD, HOT, EntryLine, RowLine

MESSAGES = "messages"


def _receipt(row: Row) -> None:
    ids = codec.decode(row.body, "the receipt")
    if not isinstance(ids, list) or len(ids) != row["count"] or not all(isinstance(i, str) for i in ids):
        raise InvalidError(f"the key {row.key[1]!r} does not name the {row['count']} messages it counts")


_READERS: dict[str, Callable[[Row], object]] = {
    "branches": lambda row: records.branch_from(row, 0),
    "labels": records.label_from,
    "runs": records.run_from,
    "state": records.state_from,
    "pending": records.pending_from,
    "keys": _receipt,
}
_MOST_BODY = {
    COLD: limits.CUSTOM_BYTES + 1024,
    "runs": limits.RUN_BYTES,
    "state": limits.STATE_BYTES,
    "pending": limits.MESSAGE_BYTES,
}


class _Line(msgspec.Struct):
    """What the log says of one branch."""

    count: int = 0
    first: int = 0
    last: int = 0
    last_id: str | None = None


class ThreadCheck:
    """Everything that is known of the thread whose lines are being read."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.lengths: dict[str, int] = {}
        self._rows: dict[str, dict[tuple[str | int, ...], dict[str, Any]]] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._lines: dict[int, _Line] = {}

    def row(self, line: RowLine) -> None:
        """Take in a row."""
        name = line.table.name
        seen = self._rows.setdefault(name, {})
        if line.key in seen:
            raise InvalidError(f"{name} {line.key} is there twice")
        seen[line.key] = line.columns
        size = len(line.body or b"")
        if size > _MOST_BODY.get(name, limits.COMMIT_BYTES):
            raise InvalidError(f"a body of {size:,} bytes, the limit of {name} is {_MOST_BODY[name]:,}")
        values = tuple(line.columns.get(column) for column in line.table.column_names)
        row = Row(line.key, values, 1, line.body, line.table.place)
        try:
            if name == HOT:
                self._finish(row)
            elif name in _READERS:
                _READERS[name](row)
        except CorruptError as error:
            raise InvalidError(error.message) from None

    def entry(self, line: EntryLine) -> None:
        """Take in a log entry."""
        expected = self.lengths.get(line.log.name, 0) + 1
        if line.seq != expected:
            raise InvalidError(f"{line.log.name} {line.seq} of thread {line.thread!r} stands where {expected} should")
        self.lengths[line.log.name] = line.seq
        if line.log.name == MESSAGES:
            self._message(line)

    def _message(self, line: EntryLine) -> None:
        if len(line.body) > limits.MESSAGE_BYTES:
            raise InvalidError(f"{len(line.body):,} bytes, the limit is {limits.MESSAGE_BYTES:,}")
        try:
            record = records.message_record(line.thread, (line.seq, 1, *line.values, line.body), None)
        except CorruptError as error:
            raise InvalidError(error.message) from None
        shape.check_message(record.message, "message")
        if record.message.compaction is not None:
            shape.check_summary_place(record.message.compaction, line.seq, "message")
        if record.message_id in self._places:
            raise InvalidError(f"the message id {record.message_id!r} is there twice")
        self._places[record.message_id] = (line.seq, record.branch)
        on = self._lines.setdefault(record.branch, _Line(first=line.seq))
        on.count, on.last, on.last_id = on.count + 1, line.seq, record.message_id

    def _finish(self, hot: Row) -> None:
        """The hot row closes a thread: now everything must fit."""
        _expect(hot.key == (self.thread,), f"the hot row of thread {hot.key[0]!r} closes thread {self.thread!r}")
        cold = self._rows.get(COLD, {}).get((self.thread,))
        if cold is None:
            raise InvalidError(f"thread {self.thread!r} has no row in {COLD}")
        for name in ("parent", "resource", "created_at"):
            _expect(cold.get(name) == hot[name], f"thread {self.thread!r} has two values of {name}")
        names.check_title(cold.get("title"))
        version = self.lengths.get(MESSAGES, 0)
        _expect(hot["version"] == version, f"the thread counts {hot['version']} messages, the file holds {version}")
        self._check_branches(hot)
        self._check_runs(hot)
        self._check_rest(version)

    def _check_branches(self, hot: Row) -> None:
        rows = {int(key[1]): columns for key, columns in self._rows.get("branches", {}).items()}
        _expect(sorted(rows) == list(range(hot["branches"])), "the branches are not numbered from 0 without a gap")
        _expect(len(rows) <= limits.BRANCHES_PER_THREAD, f"more than {limits.BRANCHES_PER_THREAD} branches")
        _expect(self._lines.keys() <= rows.keys(), "a message stands on a branch that is not there")
        current = rows.get(hot["branch"])
        _expect(current is not None and current.get("deleted_at") is None, "the current branch is not there")
        taken: set[str] = set()
        for number, columns in rows.items():
            name = columns.get("name")
            _expect((name is None) == (columns.get("deleted_at") is not None), f"branch {number} has no proper name")
            if name is not None:
                names.check_id(name, "branch name", most=limits.NAME_BYTES)
                _expect(name not in taken, f"two branches are called {name!r}")
                taken.add(name)
            self._check_branch(number, columns)

    def _check_branch(self, number: int, columns: dict[str, Any]) -> None:
        parent, fork_seq, fork = columns.get("parent"), columns["fork_seq"], columns.get("fork")
        if parent is None:
            _expect(fork_seq == 0 and fork is None, f"branch {number} is a root with a fork point")
        else:
            # A parent is always the older branch, so there can be no cycle.
            right = 0 <= parent < number and self._places.get(fork or "") == (fork_seq, parent)
            _expect(right, f"branch {number} forks from branch {parent} at {fork_seq}, which is not there")
        on = self._lines.get(number, _Line())
        end = (on.last_id, on.last) if on.count else (fork, fork_seq)
        _expect(columns["length"] == on.count, f"branch {number} counts {columns['length']}, it has {on.count}")
        _expect((columns.get("head"), columns["head_seq"]) == end, f"branch {number} does not end at its head")
        _expect(not on.count or on.first > fork_seq, f"branch {number} begins before its fork point")

    def _check_runs(self, hot: Row) -> None:
        runs = {str(key[0]): columns for key, columns in self._rows.get("runs", {}).items()}
        for run, columns in runs.items():
            _expect(columns["status"] in STATUSES, f"run {run!r} is {columns['status']!r}")
            _expect(0 <= columns["branch"] < hot["branches"], f"run {run!r} is pinned to a branch that is not there")
        for pointer in ("active_run", "open_run", "latest_run"):
            run_id = hot[pointer]
            _expect(run_id is None or run_id in runs, f"{pointer} names {run_id!r}, which is not there")
        for key in self._rows.get("state", {}):
            _expect(not key[1] or key[1] in runs, f"state {key[2]!r} belongs to run {key[1]!r}, which is not there")

    def _check_rest(self, version: int) -> None:
        for key, columns in self._rows.get("labels", {}).items():
            place = self._places.get(str(key[1]))
            _expect(place is not None and place[0] == columns["seq"], f"the label on {key[1]!r} is on no message")
        pending = self._rows.get("pending", {})
        queue = self._rows.get("queues", {}).get((self.thread,), {"count": 0})
        due = (len(pending), self.thread if pending else None)
        _expect((queue["count"], queue.get("waiting")) == due, "the queue does not count its pending messages")
        places = sorted(columns["position"] for columns in pending.values())
        _expect(places == list(range(1, len(places) + 1)), "pending messages do not stand at 1, 2, 3, …")
        for key, columns in self._rows.get("keys", {}).items():
            last, count = columns.get("version"), columns["count"]
            right = 0 <= count <= (last or 0) <= version and (last is None) == (count == 0)
            _expect(right, f"the key {key[1]!r} names messages that are not there")


def _expect(holds: bool, problem: str) -> None:
    if not holds:
        raise InvalidError(problem)
