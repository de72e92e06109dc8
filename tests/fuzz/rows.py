"""Rows: whatever a database may hold in its columns and bodies, on the way to a record and to the screen.

A row becomes a record whose fields have the declared types, or a `CorruptError`. What becomes a record can be shown.
The same for what a Redis server sends in answer to a view, byte by byte.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st
from tests.fuzz.comparing import check_json_output, check_shown
from tests.fuzz.imports import _base
from tests.fuzz.mutate import SCALARS, edited, spliced
from tests.fuzz.target import Broken, Target, refusal

from perdure.cli.documents import branch_document, label_document, run_document, state_document, thread_document
from perdure.engines.redis.read.view import Reads
from perdure.engines.redis.schema.keys import encode_key
from perdure.engines.redis.schema.layout import Layout
from perdure.errors import CorruptError
from perdure.kernel.ops import Get, Read, ReadOp, Row, Scan
from perdure.model.message import MessageRecord
from perdure.model.profile import Profile
from perdure.stores import records
from perdure.stores.answer_checks import answer_check
from perdure.stores.schema import SCHEMA
from perdure.stores.transfer.lines import NOT_CARRIED

# No engine hands over a text that UTF-8 cannot carry.
_CELLS: tuple[Any, ...] = (
    *[cell for cell in SCALARS if cell != "\ud800"],
    b"",
    b"x",
    b"\xff\xfe",
    "done",
    "running",
    "5",
    "-1",
)
_TOKENS = (
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"1e999",
    b"\xff",
    b"\\ud800",
    b"\x1b",
    b"[" * 3_000,
    b"9" * 4_400,
)


@cache
def _seeds() -> list[dict[str, Any]]:
    """A row of each kind as an export has it: table, key, values in order, body."""
    found: dict[str, dict[str, Any]] = {}
    for line in _base("rich")[1:]:
        name = line.get("table") or line["log"]
        shape = SCHEMA.table.get(name) or SCHEMA.log[name]
        missing = dict.fromkeys(NOT_CARRIED[name], 0) if name == "thread_heads" else {}
        values = [line["columns"].get(column, missing.get(column)) for column in shape.column_names]
        body = msgspec.json.encode(line["body"]) if "body" in line else None
        key = line["key"] if "table" in line else [line["partition"], line["seq"]]
        found.setdefault(f"{name} {len(body or b'') > 20}", {"table": name, "key": key, "values": values, "body": body})
    return list(found.values())


@st.composite
def _cases(draw: Any, seeds: Sequence[Any]) -> Any:
    kept = [seed for seed in seeds if "table" in seed]
    case = copy.deepcopy(draw(st.sampled_from([*_seeds(), *kept])))
    for _ in range(draw(st.integers(0, 3))):
        part = draw(st.sampled_from(("values", "values", "body", "tree", "key")))
        if part == "body":
            case["body"] = draw(spliced([case["body"]], _TOKENS) if case["body"] else st.sampled_from(_TOKENS))
        elif part == "tree":
            case["body"] = _edited_body(draw, case["body"])
        elif case[part]:
            place = draw(st.integers(0, len(case[part]) - 1))
            case[part][place] = draw(st.sampled_from(_CELLS) | st.text(max_size=5) | st.binary(max_size=3))
    case["through"] = draw(st.sampled_from(("row", "text", "redis")))
    if case["through"] == "redis":
        case["answer"] = draw(
            spliced([_answer(case)], (b"\xc0", b"\xc2", b"\xa1x", b"\x90", b"\xff", b"\xdd\xff\xff\xff\xff"))
        )
    return case


def _edited_body(draw: Any, body: bytes | None) -> Any:
    try:
        tree = msgspec.json.decode(body or b"{}")
        return msgspec.json.encode(draw(edited([tree])))
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
        return body


def _answer(case: dict[str, Any]) -> bytes:
    """The row as a Redis server would send it; what msgpack cannot hold is sent as text."""
    values = [False if value is None else value if isinstance(value, bytes) else str(value) for value in case["values"]]
    try:
        if case["table"] == "messages":
            return msgspec.msgpack.encode([[[case["key"][1], 1, *case["values"], case["body"]]]])
        return msgspec.msgpack.encode([[[encode_key(case["key"]), case["body"], ["1", *values]]]])
    except (TypeError, ValueError, OverflowError, UnicodeError):
        return b"\x91\x91\xc0"


@cache
def _reads() -> Reads:
    return Reads(Layout(SCHEMA, "perdure", 0))


def _check(case: Any) -> str:
    try:
        outcome = _through_redis(case) if case.get("through") == "redis" else _direct(case)
    except CorruptError as error:
        return f"{case['table']}: {refusal(error)}"
    return f"{case['table']}: {outcome}"


def _direct(case: dict[str, Any]) -> str:
    body = case["body"]
    if case.get("through") == "text" and isinstance(body, bytes):
        body = body.decode(errors="replace")
    if case["table"] == "messages":
        entry = (case["key"][1], 1, *case["values"], b"{}" if body is None else body)
        _come_in(Read("messages", "t"), [entry])
        return _show(records.message_record("t", entry, None))
    table, row = _row(case["table"], case["key"], case["values"], body)
    _come_in(Scan(table), [row])
    return _record((table, row))


def _come_in(ask: ReadOp, answer: list[Any]) -> None:
    """What every answer passes on its way to a store."""
    answer_check(SCHEMA)([ask], [answer])


def _row(table: str, key: Sequence[Any], values: Sequence[Any], body: Any) -> tuple[str, Row]:
    return table, Row(tuple(key), tuple(values), 1, body, SCHEMA.table[table].positions)


def _through_redis(case: dict[str, Any]) -> str:
    table = case["table"]
    ask = Read("messages", "t") if table == "messages" else Get(table, [("x",)])
    (found,) = _reads().answers([ask], case["answer"])
    _come_in(ask, found)
    made = [row for row in found if row is not None]
    for row in made:
        if table == "messages":
            _show(records.message_record("t", row, None))
        else:
            _record((table, row))
    return f"redis {len(made)}"


def _show(record: MessageRecord) -> str:
    _insist_typed(record)
    _insist_typed(record.message)
    check_shown(record)
    return "shown"


def _record(named: tuple[str, Row]) -> str:
    table, row = named
    if table not in _MAKE:
        return "not a record"
    make, document = _MAKE[table]
    record = make(row)
    if document is not None:
        _insist_typed(record)
        check_json_output(document(record))
    return "shown"


def _thread(row: Row) -> Any:
    """Both rows of a thread: the one at hand, and a sound one for the other."""
    other = {"threads": "thread_heads", "thread_heads": "threads"}
    name = next(name for name in other if len(SCHEMA.table[name].columns) == len(row.values))
    sound = next(seed for seed in _seeds() if seed["table"] == other[name])
    _, second = _row(other[name], sound["key"], sound["values"], sound["body"])
    return records.thread_from(row, second) if name == "threads" else records.thread_from(second, row)


_MAKE: dict[str, tuple[Callable[[Row], Any], Callable[[Any], Any] | None]] = {
    "threads": (_thread, thread_document),
    "thread_heads": (_thread, thread_document),
    "branches": (lambda row: records.branch_from(row, 0, 0), branch_document),
    "labels": (records.label_from, label_document),
    "runs": (records.run_from, run_document),
    "state": (records.state_from, state_document),
    "profiles": (records.profile_from, Profile.to_json),
    "pending": (records.pending_from, lambda item: item.message.to_json()),
    "keys": (records.receipt_from, None),
}


@cache
def _scalar_fields(cls: type) -> list[tuple[str, tuple[type, ...]]]:
    """Fields of a record whose declared types are numbers and texts."""
    made = []
    for name, hint in get_type_hints(cls).items():
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if all(option in (str, int, bool, types.NoneType) for option in options):
            made.append((name, options))
    return made


def _insist_typed(record: Any) -> None:
    for name, options in _scalar_fields(type(record)):
        value = getattr(record, name)
        if type(value) not in options:
            raise Broken(f"a {type(record).__name__} holds a value of another type", f"{name} is {value!r:.80}")


ROWS = Target("rows", "stored columns and bodies, and answers of Redis", _cases, _check, short=300)
