"""The lines of an export file: JSON, one line per row or log entry, readable by people and by `jq`.

    {"perdure":1,"schema":1,"scope":"default"}
    {"table":"branches","key":["kyoto",0],"columns":{"fork_seq":0,…}}
    {"log":"messages","partition":"kyoto","seq":1,"columns":{"id":"…","role":"user",…},"body":{…}}
    {"table":"thread_heads","key":["kyoto"],"columns":{…}}
    {"end":{"threads":1,"lines":3}}

What is NULL is left out; bodies are JSON values, and what is imported is spelled as a store spells it. Everything
derives from the declared schema, so a store that is added later is carried without a change here. Reading trusts
nothing: every line is checked as if a stranger had written it, and a refusal names the line.
"""

from __future__ import annotations

import codecs
from typing import Any

import msgspec
from msgspec import UNSET

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.kernel import codec
from perdure.kernel.ops import Append, LogEntry, Put, Row
from perdure.kernel.schema import Key, Log, Schema, Table
from perdure.kernel.validate import check_ops
from perdure.model.plain import check_json
from perdure.rules import checks
from perdure.rules.columns import MOST_BODY, column_problems, presence_problem
from perdure.stores.ownership import owner_of

FORMAT = 1
LINE_BYTES = limits.COMMIT_BYTES
_COLUMNS_BYTES = 64 * 1024
"""More than all columns of a row take together, however they are spelled."""
COLD, HOT = "threads", "thread_heads"

NOT_CARRIED: dict[str, tuple[str, ...]] = {
    # A birth is a new one wherever it happens, children are counted as they arrive, and `child` follows the parent.
    HOT: ("born", "children", "child"),
    COLD: ("deleted_at", "erased_at"),
}


class Header(msgspec.Struct, frozen=True):
    """The first line: the format, the version of the schema, and the scope that was exported."""

    perdure: int
    schema: int
    scope: str


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    """Any line as it is spelled; `parse_line` says which fields belong together.

    What may be long is left as it is until its size was looked at: a line of brackets takes thirty times its size.
    """

    table: str | msgspec.UnsetType = UNSET
    key: msgspec.Raw | msgspec.UnsetType = UNSET
    log: str | msgspec.UnsetType = UNSET
    partition: str | msgspec.UnsetType = UNSET
    seq: int | msgspec.UnsetType = UNSET
    columns: msgspec.Raw | msgspec.UnsetType = UNSET
    body: msgspec.Raw | msgspec.UnsetType = UNSET
    perdure: int | msgspec.UnsetType = UNSET
    schema: int | msgspec.UnsetType = UNSET
    scope: str | msgspec.UnsetType = UNSET
    end: End | msgspec.UnsetType = UNSET


_FIELDS: dict[type, frozenset[str]] = {
    RowLine: frozenset(("table", "key", "columns", "body")),
    EntryLine: frozenset(("log", "partition", "seq", "columns", "body")),
    Header: frozenset(("perdure", "schema", "scope")),
    End: frozenset(("end",)),
}
_MAY_LACK = frozenset(("columns", "body"))
"""Which fields make up a line of each kind, and which of them may be missing."""

_decoder = msgspec.json.Decoder(_Text)
_key_decoder = msgspec.json.Decoder(list[str | int])
_columns_decoder = msgspec.json.Decoder(dict[str, str | int | None])


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


def parse_line(schema: Schema, data: bytes, number: int) -> Line:
    """What a line says; raises `InvalidError` that names the line."""
    where = f"line {number}"
    if len(data) > LINE_BYTES:
        raise InvalidError(f"longer than {LINE_BYTES:,} bytes", path=where)
    if number == 1:
        _check_encoding(data)
    try:
        return _understand(schema, _decoder.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"not a line of an export: {error}", path=where) from None
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
    fields = {name for name in text.__struct_fields__ if getattr(text, name) is not UNSET}
    kind = next((kind for kind, known in _FIELDS.items() if known - _MAY_LACK <= fields), None)
    if kind is None:
        raise InvalidError("neither a row nor a log entry")
    if not fields <= _FIELDS[kind]:
        raise InvalidError(f"the field {min(fields - _FIELDS[kind])} does not belong to this kind of line")
    if kind is RowLine:
        return _row(schema, text)
    if kind is EntryLine:
        return _entry(schema, text)
    if isinstance(text.end, End):
        return text.end
    return msgspec.convert({name: getattr(text, name) for name in fields}, Header)


def _row(schema: Schema, text: _Text) -> RowLine:
    table = schema.table.get(str(text.table))
    if table is None:
        raise InvalidError(f"there is no table {text.table!r:.80}", hint="the file may come from a newer Perdure")
    key, columns = tuple(_key_decoder.decode(_small(text.key, "key"))), _columns(text)
    body = _body(text, table.name)
    check_ops(schema, [Put(table.name, key, columns, body)])
    left_out = NOT_CARRIED.get(table.name, ())
    for name in left_out:
        if name in columns:
            raise InvalidError(f"{table.name}.{name} cannot be imported")
    carried = [(name, columns.get(name)) for name in table.column_names if name not in left_out]
    _check_columns(table.name, [*zip(table.key_names, key, strict=True), *carried], body)
    thread = owner_of(table, key, columns)
    if thread is not None:
        checks.check_id(thread, "thread id")
    return RowLine(table, key, columns, body, None if thread is None else str(thread))


def _entry(schema: Schema, text: _Text) -> EntryLine:
    log = schema.log.get(str(text.log))
    if log is None:
        raise InvalidError(f"there is no log {text.log!r:.80}", hint="the file may come from a newer Perdure")
    if log.owner is None:
        raise InvalidError(f"the log {log.name} belongs to no thread", hint="the file may come from another Perdure")
    thread = checks.check_id(text.partition, "partition")
    seq = checks.check_count(text.seq, "seq", least=1)
    columns = _columns(text)
    unknown = columns.keys() - log.types.keys()
    if unknown:
        raise InvalidError(
            f"{log.name} has no column {short_repr(min(unknown))}", hint="the file may come from a newer Perdure"
        )
    body = _body(text, log.name)
    if body is None:
        raise InvalidError("a log entry has a body")
    values = tuple(columns.get(name) for name in log.column_names)
    check_ops(schema, [Append(log.name, thread, [(*values, body)])])
    named = [(log.partition, thread), ("seq", seq), *zip(log.column_names, values, strict=True)]
    _check_columns(log.name, named, body)
    return EntryLine(log, thread, seq, values, body)


def _small(raw: msgspec.Raw | msgspec.UnsetType, what: str) -> bytes:
    data = bytes(raw) if isinstance(raw, msgspec.Raw) else b""
    if len(data) > _COLUMNS_BYTES:
        raise InvalidError(f"the {what} of a line takes {len(data):,} bytes, the limit is {_COLUMNS_BYTES:,}")
    return data


def _columns(text: _Text) -> dict[str, Any]:
    return {} if text.columns is UNSET else dict(_columns_decoder.decode(_small(text.columns, "columns")))


def _body(text: _Text, name: str) -> bytes | None:
    """The body as a store would have spelled it: without spaces, every member once."""
    if not isinstance(text.body, msgspec.Raw):
        return None
    # The limit itself is looked at with the rest of the rules; another spelling may take a little more.
    size, most = len(bytes(text.body)), MOST_BODY.get(name, LINE_BYTES)
    if size > most + most // 4 + 4_096:
        raise InvalidError(f"a body of {size:,} bytes, the limit of {name} is {most:,}")
    try:
        value = msgspec.json.decode(text.body)
        check_json(value, "body")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"the body is damaged: {error}") from None
    return codec.encode(value)


def _check_columns(name: str, values: list[tuple[str, Any]], body: bytes | None) -> None:
    """The rules that `doctor verify` holds every row to."""
    for problem in column_problems(name, values):
        raise InvalidError(problem)
    missing = presence_problem(name, body)
    if missing is not None:
        raise InvalidError(missing)
