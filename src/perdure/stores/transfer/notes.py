"""What an import remembers of a thread while it checks it, kept in a notebook on disk.

A thread may hold millions of messages, runs and keys, and the rules between them need to look any of them up. The
shapes here are those that the rules ask for (`rules.stored`); behind each of them is the notebook, so that memory does
not grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.kernel.ops import Row
from perdure.kernel.schema import Table
from perdure.rules.soundness.stored import Line, MessageFacts, Produced
from perdure.scratch import Scratch

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class NotedRows:
    """The rows of one table: added one by one, walked as often as a rule likes."""

    def __init__(self, scratch: Scratch, table: Table) -> None:
        self._scratch = scratch
        self._table = table

    def add(self, row: Row, *, keep_body: bool) -> bool:
        """Note a row; False if its key is there already."""
        data = _encode((row.key, row.values, row.body if keep_body else None))
        return self._scratch.add_row(self._table.name, _encode(row.key), data)

    def __iter__(self) -> Iterator[Row]:
        for data in self._scratch.rows(self._table.name):
            yield self._row(data)

    def _row(self, data: bytes) -> Row:
        key, values, body = _decode(data)
        return Row(tuple(key), tuple(values), 1, body, self._table.positions)

    def find(self, *key: str | int) -> Row | None:
        """The row of a key."""
        data = self._scratch.row(self._table.name, _encode(key))
        return None if data is None else self._row(data)


class NotedStatuses:
    """The status of each run of the thread."""

    def __init__(self, runs: NotedRows) -> None:
        self._runs = runs

    def get(self, known: str, /) -> str | None:
        """The status of a run; None if the thread has no such run."""
        row = self._runs.find(known)
        return None if row is None else row["status"]


class NotedMessages:
    """The messages of the thread by seq."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch

    def get(self, known: int, /) -> MessageFacts | None:
        """What a message's columns say."""
        columns = self._scratch.message(known)
        if columns is None:
            return None
        message_id, branch, run, visible, at = columns
        return MessageFacts(message_id, branch, run, bool(visible), at)


class NotedOutput:
    """What each run of the thread produced."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch

    def get(self, known: str, /) -> Produced | None:
        """How many visible messages name the run, the first and the last."""
        return Produced(*self._scratch.output(known))


class NotedLog:
    """What the rules ask about a log (`rules.stored.Facts`). Branches have a limit, so their lines are in memory."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self.lines: dict[int, Line] = {}
        self.messages: NotedMessages = NotedMessages(scratch)
        self.produced: NotedOutput = NotedOutput(scratch)

    def add(self, seq: int, message: MessageFacts) -> bool:
        """Note a message; False if its id is there already."""
        columns = (message.id, message.branch, message.run, int(message.visible), message.at)
        return self._scratch.add_message(seq, columns)
