"""The lines of an export file: JSON, one line per row or log entry, readable by people and by `jq`.

    {"perdure":1,"schema":1,"scope":"default"}
    {"table":"branches","key":["kyoto",0],"columns":{"fork_seq":0,…}}
    {"log":"messages","partition":"kyoto","seq":1,"columns":{"id":"…","role":"user",…},"body":{…}}
    {"table":"thread_heads","key":["kyoto"],"columns":{…}}
    {"end":{"threads":1,"lines":3}}

What is NULL is left out; bodies are JSON values, kept to the letter. Everything derives from the declared schema, so a
store that is added later is carried without a change here. Reading trusts nothing: every line is checked as if a
stranger had written it, and a refusal names the line.
"""

from __future__ import annotations

import codecs
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import InvalidError
from perdure.kernel import codec
from perdure.kernel.door import check_ops
from perdure.kernel.ops import Append, LogEntry, Put, Row
from perdure.kernel.schema import Key, Log, Schema, Table
from perdure.model.plain import check_json
from perdure.rules import names
from perdure.rules.columns import column_problems, presence_problem

FORMAT = 1
LINE_BYTES = limits.COMMIT_BYTES
COLD, HOT = "threads", "thread_heads"

NOT_CARRIED: dict[str, tuple[str, ...]] = {
    # A birth is a new one wherever it happens, and children are counted as they arrive.
    HOT: ("born", "children"),
    COLD: ("deleted_at", "erased_at"),
}


class Header(msgspec.Struct, frozen=True):
    """The first line: the format, the version of the schema, and the scope that was exported."""

    perdure: int
    schema: int
    scope: str


class End(msgspec.Struct, frozen=True):
    """The last line: without it, a file was cut off."""

    threads: int
    lines: int


class RowLine(msgspec.Struct, frozen=True):
    """A row of a table; `thread` is the one it belongs to, None if it is the scope's own."""

    table: Table
    key: Key
    columns: dict[str, Any]
    body: bytes | None
    thread: str | None


class EntryLine(msgspec.Struct, frozen=True):
    """An entry of a thread's log: the declared columns' values in order."""

    log: Log
    thread: str
    seq: int
    values: tuple[Any, ...]
    body: bytes


Line = Header | End | RowLine | EntryLine


class _Text(msgspec.Struct, forbid_unknown_fields=True):
    """Any line as it is spelled; `parse_line` says which fields belong together."""

    table: str | None = None
    key: list[str | int] = []
    log: str | None = None
    partition: str | None = None
    seq: int | None = None
    columns: dict[str, str | int | None] = {}
    body: msgspec.Raw = msgspec.Raw()
    perdure: int | None = None
    schema: int | None = None
    scope: str | None = None
    end: End | None = None


_decoder = msgspec.json.Decoder(_Text)


def header_line(schema: Schema, scope: str) -> bytes:
    """The first line of a file."""
    return codec.encode(Header(FORMAT, schema.version, scope))


def end_line(threads: int, lines: int) -> bytes:
    """The last line of a file."""
    return codec.encode({"end": End(threads, lines)})


def row_line(table: Table, row: Row) -> bytes:
    """A row as a line."""
    hidden = NOT_CARRIED.get(table.name, ())
    columns = {n: row[n] for n in table.column_names if row[n] is not None and n not in hidden}
    line: dict[str, Any] = {"table": table.name, "key": row.key, "columns": columns}
    if row.body is not None:
        line["body"] = _raw(row.body, f"{table.name} {row.key}")
    return codec.encode(line)


def entry_line(log: Log, partition: str, entry: LogEntry) -> bytes:
    """A log entry as a line."""
    seq, _, *values, body = entry
    columns = {name: value for name, value in zip(log.column_names, values, strict=True) if value is not None}
    raw = _raw(body, f"{log.name} {seq} of {partition!r}")
    return codec.encode({"log": log.name, "partition": partition, "seq": seq, "columns": columns, "body": raw})


def _raw(body: bytes | str, where: str) -> msgspec.Raw:
    """A stored body as it is, once it is known to be JSON that fits on a line."""
    value = codec.decode(body, where)
    data = body.encode() if isinstance(body, str) else body
    return msgspec.Raw(codec.encode(value) if b"\n" in data or b"\r" in data else data)


def owner_of(table: Table) -> str | None:
    """How rows of a table belong to a thread: by their `key`, by a `column`, or not at all."""
    if table.key_names[0] == "thread":
        return "key"
    return "column" if "thread" in table.column_names else None


def parse_line(schema: Schema, data: bytes, number: int) -> Line:
    """What a line says; raises `InvalidError` that names the line."""
    where = f"line {number}"
    if len(data) > LINE_BYTES:
        raise InvalidError(f"longer than {LINE_BYTES:,} bytes", path=where)
    if number == 1:
        _check_encoding(data)
    try:
        text = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"not a line of an export: {error}", path=where) from None
    try:
        return _understand(schema, text)
    except InvalidError as error:
        raise InvalidError(error.message, path=where, hint=error.hint) from None


_FOREIGN_BEGINNINGS = (
    (codecs.BOM_UTF8, "begins with a byte order mark", "save it as UTF-8 without one (without BOM)"),
    (codecs.BOM_UTF32_LE, "is encoded in UTF-32", "save it as UTF-8"),
    (codecs.BOM_UTF16_LE, "is encoded in UTF-16", "save it as UTF-8"),
    (codecs.BOM_UTF16_BE, "is encoded in UTF-16", "save it as UTF-8"),
    (b"{\x00", "is encoded in UTF-16", "save it as UTF-8"),
    (b"\x00{", "is encoded in UTF-16", "save it as UTF-8"),
)
"""How a file begins that an editor or a shell saved in another encoding, what is wrong with it, and what to do."""


def _check_encoding(data: bytes) -> None:
    for beginning, what, hint in _FOREIGN_BEGINNINGS:
        if data.startswith(beginning):
            raise InvalidError(f"the file {what}", hint=hint)


def _understand(schema: Schema, text: _Text) -> Line:
    if text.table is not None and text.log is None:
        return _row(schema, text)
    if text.log is not None and text.table is None:
        return _entry(schema, text)
    if text.end is not None:
        return text.end
    if text.perdure is not None and text.schema is not None and text.scope is not None:
        return Header(text.perdure, text.schema, text.scope)
    raise InvalidError("neither a row nor a log entry")


def _row(schema: Schema, text: _Text) -> RowLine:
    table = schema.table.get(text.table or "")
    if table is None:
        raise InvalidError(f"there is no table {text.table!r}", hint="the file may come from a newer Perdure")
    key, columns, body = tuple(text.key), dict(text.columns), _body(text)
    check_ops(schema, [Put(table.name, key, columns, body)])
    left_out = NOT_CARRIED.get(table.name, ())
    for name in left_out:
        if name in columns:
            raise InvalidError(f"{table.name}.{name} cannot be imported")
    carried = [(name, columns.get(name)) for name in table.column_names if name not in left_out]
    _check_columns(table.name, [*zip(table.key_names, key, strict=True), *carried], body)
    kind = owner_of(table)
    thread = key[0] if kind == "key" else columns.get("thread") if kind == "column" else None
    if thread is not None:
        names.check_id(thread, "thread id")
    return RowLine(table, key, columns, body, None if thread is None else str(thread))


def _entry(schema: Schema, text: _Text) -> EntryLine:
    log = schema.log.get(text.log or "")
    if log is None:
        raise InvalidError(f"there is no log {text.log!r}", hint="the file may come from a newer Perdure")
    thread = names.check_id(text.partition, "partition")
    seq = names.check_count(text.seq, "seq", least=1)
    unknown = text.columns.keys() - log.types.keys()
    if unknown:
        raise InvalidError(f"{log.name} has no column {min(unknown)}", hint="the file may come from a newer Perdure")
    body = _body(text)
    if body is None:
        raise InvalidError("a log entry has a body")
    values = tuple(text.columns.get(name) for name in log.column_names)
    check_ops(schema, [Append(log.name, thread, [(*values, body)])])
    named = [(log.partition, thread), ("seq", seq), *zip(log.column_names, values, strict=True)]
    _check_columns(log.name, named, body)
    return EntryLine(log, thread, seq, values, body)


def _body(text: _Text) -> bytes | None:
    data = bytes(text.body)
    if not data:
        return None
    try:
        check_json(msgspec.json.decode(data), "body")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"the body is damaged: {error}") from None
    return data


def _check_columns(name: str, values: list[tuple[str, Any]], body: bytes | None) -> None:
    """The rules that `doctor verify` holds every row to."""
    for problem in column_problems(name, values):
        raise InvalidError(problem)
    missing = presence_problem(name, body)
    if missing is not None:
        raise InvalidError(missing)
