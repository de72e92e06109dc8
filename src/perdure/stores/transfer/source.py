"""Reading an export: line by line, thread by thread, with every check that needs no store.

What comes out has been parsed and belongs to the thread at hand. The first reading checks everything: when a thread's
hot row comes, it is a thread that holds together. The second reading does not ask again; it tells what the lines of
each thread add up to, so that whoever writes can see that they are those which were checked. A refusal is an
`InvalidError` that names the line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Literal

import msgspec

from perdure.errors import InvalidError
from perdure.kernel.schema import Schema
from perdure.stores.transfer.checks import FileCheck, ThreadCheck
from perdure.stores.transfer.lines import FORMAT, HOT, LINE_BYTES, End, EntryLine, Header, Line, RowLine, parse_line

Stage = Literal["exporting", "checking", "writing"]


class TransferProgress(msgspec.Struct, frozen=True):
    """How far an export or import has come, reported after every line."""

    stage: Stage
    threads: int
    lines: int
    bytes: int


OnProgress = Callable[[TransferProgress], None]


class Item(msgspec.Struct, frozen=True):
    """A row or an entry and the number of its line; if it completes a thread, the digest of all lines of the thread."""

    number: int
    line: RowLine | EntryLine
    digest: bytes | None = None

    @property
    def closes(self) -> bool:
        """Whether it completes a thread."""
        return self.digest is not None


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file without their ends; never more of a line than an import would accept, and a little."""
    while line := file.readline(LINE_BYTES + 2):
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def read_items(
    schema: Schema, lines: Iterable[bytes], stage: Stage, on_progress: OnProgress | None, check: FileCheck | None = None
) -> Iterator[Item]:
    """The rows and entries of a whole export; with `check`, every thread is held to the rules of sound data."""
    reader = _Reader(schema, check)
    size = 0
    for number, data in enumerate(lines, 1):
        size += len(data) + 1
        line = parse_line(schema, data, number)
        try:
            item = reader.take(line, number, data)
        except InvalidError as error:
            raise at_line(number, error) from None
        if item is not None:
            yield item
        if on_progress is not None:
            on_progress(TransferProgress(stage, reader.threads, number, size))
    reader.finish()


def at_line(number: int, error: InvalidError) -> InvalidError:
    """The same refusal, naming the line."""
    return InvalidError(error.message, path=f"line {number}", hint=error.hint)


class _Reader:
    """Where in the file we are: before the header, inside a thread, between threads, after the end."""

    def __init__(self, schema: Schema, check: FileCheck | None) -> None:
        self._schema = schema
        self._file = check
        self._thread: str | None = None
        self._check: ThreadCheck | None = None
        self._digest = hashlib.sha256()
        self._ended = False
        self._lines = 0
        self.threads = 0

    def take(self, line: Line, number: int, data: bytes) -> Item | None:
        """What a line adds; None for the header and the end."""
        self._lines = number
        if self._ended:
            raise InvalidError("there is more after the end")
        if number == 1:
            self._header(line)
        elif isinstance(line, End):
            if self._thread is not None or (self.threads, number - 2) != (line.threads, line.lines):
                raise InvalidError("the file is not complete: lines are missing")
            self._ended = True
        elif isinstance(line, Header):
            raise InvalidError("a second header")
        else:
            return self._item(line, number, data)
        return None

    def _header(self, line: Line) -> None:
        if not isinstance(line, Header):
            raise InvalidError("an export begins with a header", hint="was this file written by perdure export?")
        if line.perdure != FORMAT or line.schema > self._schema.version:
            raise InvalidError(
                f"it has format {line.perdure} and schema {line.schema}, this build reads format {FORMAT} and schemas"
                f" up to {self._schema.version}",
                hint="import it with a newer Perdure",
            )

    def _item(self, line: RowLine | EntryLine, number: int, data: bytes) -> Item:
        if self._thread is not None and line.thread != self._thread:
            raise InvalidError(f"thread {self._thread!r} is not complete, and here something else begins")
        if line.thread is None:
            if self._file is not None and isinstance(line, RowLine):
                self._file.scope_row(line)
            return Item(number, line)
        if self._thread is None:
            self._begin(line.thread)
        self._digest.update(len(data).to_bytes(8, "big") + data)
        if isinstance(line, EntryLine):
            if self._check is not None:
                self._check.entry(line)
            return Item(number, line)
        if self._check is not None:
            self._check.row(line)
        if line.table.name != HOT:
            return Item(number, line)
        self._thread = None
        self.threads += 1
        return Item(number, line, self._digest.digest())

    def _begin(self, thread: str) -> None:
        self._thread = thread
        self._check = None if self._file is None else ThreadCheck(thread, self._file)
        self._digest = hashlib.sha256()

    def finish(self) -> None:
        """The file is over: was that its end?"""
        if not self._lines:
            raise InvalidError("the file is empty", hint="was this file written by perdure export?")
        if not self._ended:
            raise InvalidError("the file is not complete: its last line is missing", path=f"line {self._lines + 1}")
