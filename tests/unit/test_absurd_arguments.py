"""Every parameter of every public method refuses what it cannot take: `InvalidError`, before the engine is asked.

The values are the ones that break naive checks. A list nested 10,000 deep has no `repr`, a huge integer no decimal
spelling, a lone surrogate no UTF-8, and NaN is not even equal to itself.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
import perdure.sync
from perdure import (
    DeliveryMode,
    Doc,
    Image,
    Message,
    NewRun,
    Store,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UrlSource,
    limits,
    sse,
)
from perdure.engines.memory import MemoryEngine
from perdure.errors import InvalidError, short_repr
from perdure.model.message import Compaction
from perdure.model.run import RunBody
from perdure.rules.checks import check_count, check_id
from perdure.stores.schema import SCHEMA

DEPTH = 10_000


def deep_list() -> list[Any]:
    value: list[Any] = []
    for _ in range(DEPTH):
        value = [value]
    return value


def deep_dict() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(DEPTH):
        value = {"a": value}
    return value


class Hostile:
    """Fails whenever it is looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


class HostileText(str):
    """Text that lies and raises."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def isascii(self) -> bool:
        return True

    def encode(self, *args: Any) -> bytes:
        raise RuntimeError("no bytes")


class HostileNumber(int):
    """A number that raises."""

    def __le__(self, other: Any) -> bool:
        raise RuntimeError("no comparison")

    __eq__ = __ge__ = __lt__ = __gt__ = __le__  # type: ignore[assignment]
    __hash__ = int.__hash__

    def bit_length(self) -> int:
        raise RuntimeError("no length")


class HostileDict(dict[str, Any]):
    """An object that cannot be read."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no keys")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def get(self, *args: Any) -> Any:
        raise RuntimeError("no fields")

    keys = items = values = __iter__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return HostileText("x" * 1_000)


class HostileList(list[Any]):
    """A list that cannot be read."""

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("no items")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __repr__(self) -> str:
        raise RecursionError


ABSURD = {
    "hostile text": HostileText("t"),
    "hostile number": HostileNumber(1),
    "hostile dict": HostileDict(a=1),
    "hostile list": HostileList([1]),
    "a long list": list(range(300_000)),
    "a long dict": {n: n for n in range(300_000)},
    "deep list": deep_list(),
    "deep dict": deep_dict(),
    "huge integer": 10**5_000,
    "bytes": b"\xff",
    "lone surrogate": "\ud800",
    "NaN": float("nan"),
    "hostile object": Hostile(),
    "long text": "x" * 100_000,
}
GIVEN: dict[str, Any] = {
    "thread_id": "t",
    "message_id": "m",
    "message_ids": ["m"],
    "messages": [Message.user("hello")],
    "message": Message.user("hello"),
    "run_id": "r",
    "ticket_id": "k",
    "agent_id": "a",
    "name": "n",
    "branch": 0,
    "prefix": "p",
    "from_seq": 1,
    "to_seq": 2,
    "parent_thread_id": "p",
    "label": "l",
    "value": 1,
    "scope": "s",
    "owner": "user:ann",
    "key": "k",
}
ALSO: dict[str, dict[str, Any]] = {"branches.fork": {"at": "m"}}
"""What a method needs besides its required parameters."""
TAKES = {
    ("state.put", "value"): {"long text"},
    ("profiles.put", "value"): {"long text"},
    ("runs.cancel", "detail"): {"long text"},
    ("runs.cancel", "answer_calls"): {"long text"},
    ("messages.history", "interrupted"): {"long text"},
    ("runs.decide", "value"): {"long text"},
}
"""What is absurd as an id may be fine as a document."""


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Some values exhaust the stack: an object that is collected just then could not run its finalizer."""
    gc.disable()
    yield
    gc.enable()


class ClosedEngine:
    """An engine that nobody may ask anything."""

    def __init__(self) -> None:
        self._engine = MemoryEngine(SCHEMA)

    def __getattr__(self, name: str) -> Any:
        if name in ("view", "transact", "take", "watch", "scopes", "partitions"):
            raise AssertionError(f"the engine was asked to {name}")
        return getattr(self._engine, name)


def methods() -> Iterator[tuple[str, Any]]:
    """`threads.create` and its bound method, for everything public that takes an argument."""
    store = Store(ClosedEngine())  # type: ignore[arg-type]
    for noun, thing in {"store": store, **vars(store)}.items():
        if noun.startswith("_"):
            continue
        for verb in dir(type(thing)):
            method = getattr(type(thing), verb)
            if not verb.startswith("_") and inspect.isfunction(method):
                yield f"{noun}.{verb}", getattr(thing, verb)


def options_of(method: Any, name: str) -> list[str]:
    """What a method takes by `**options: Unpack[SomeTypedDict]`."""
    (options,) = typing.get_args(typing.get_type_hints(method)[name])
    return list(options.__annotations__)


def parameters(method: Any) -> list[str]:
    names = []
    for name, parameter in inspect.signature(method).parameters.items():
        names += options_of(method, name) if parameter.kind is parameter.VAR_KEYWORD else [name]
    return names


CASES = [(name, parameter) for name, method in methods() for parameter in parameters(method)]


async def call(method: Any, given: dict[str, Any]) -> Any:
    result = method(**given)
    if inspect.isasyncgen(result):
        return [item async for item in result]
    return await result if inspect.isawaitable(result) else result


def refusals(name: str, parameter: str) -> list[str]:
    """What went wrong when a parameter was given each absurd value."""
    method = dict(methods())[name]
    required = {
        each: GIVEN[each]
        for each, described in inspect.signature(method).parameters.items()
        if described.default is described.empty and described.kind is not described.VAR_KEYWORD
    }
    required |= ALSO.get(name, {})
    if parameter == "before":
        required.pop("at", None)
    wrong = []
    for what, value in ABSURD.items():
        if what in TAKES.get((name, parameter), ()):
            continue
        try:
            result = asyncio.run(call(method, {**required, parameter: value}))
        except InvalidError as error:
            if len(str(error)) > 1_000:
                wrong.append(f"{what}: a message of {len(str(error)):,} characters")
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is wrong
            wrong.append(f"{what}: {type(error).__name__}: {str(error)[:80]}")
        else:
            wrong.append(f"{what}: accepted: {type(result).__name__}")
    return wrong


EVENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "stream": (sse.stream, {}),
    "event": (sse.event, {"data": {}}),
    "after_seq": (sse.after_seq, {"last_event_id": None}),
}
TAKES_IN_EVENTS = {
    ("stream", "describe"): {"nothing"},
    ("stream", "stop"): {"nothing"},
    ("event", "data"): {"nothing", "long text", "a long list"},
    ("event", "name"): {"nothing", "long text"},
    ("event", "event_id"): {"nothing", "long text"},
    ("after_seq", "last_event_id"): {"nothing"},
}


@pytest.mark.parametrize("name", EVENTS)
def test_server_sent_events_refuse_absurd_arguments(name: str) -> None:
    function, required = EVENTS[name]
    store = Store(ClosedEngine())  # type: ignore[arg-type]
    given = {"follower": store.thread("t").follow()} if name == "stream" else required
    wrong = []
    for parameter in inspect.signature(function).parameters:
        for what, value in {**ABSURD, "nothing": None}.items():
            try:
                function(**{**given, parameter: value})
            except InvalidError as error:
                if len(str(error)) > 1_000:
                    wrong.append(f"{parameter}, {what}: a message of {len(str(error)):,} characters")
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is wrong
                wrong.append(f"{parameter}, {what}: {type(error).__name__}: {str(error)[:80]}")
            else:
                if what not in TAKES_IN_EVENTS.get((name, parameter), ()):
                    wrong.append(f"{parameter}, {what}: accepted")
    assert wrong == []


RECORDS: dict[type, dict[str, Any]] = {
    Message: {"role": "assistant", "content": []},
    Text: {"text": "hello"},
    ToolUse: {"id": "c", "name": "f", "input": {}},
    ToolResult: {"tool_use_id": "c"},
    Thinking: {"thinking": "hm"},
    Image: {"source": UrlSource("https://example.org")},
    Compaction: {"from_seq": 1, "to_seq": 1},
    NewRun: {"agent_id": "a"},
    RunBody: {},
    DeliveryMode: {},
    Doc: {"value": 1},
}
LONG = {"long text", "a long list"}
"""Long, but JSON."""
TEXTS = {"text", "thinking", "signature", "data", "url", "model", "stop_reason"}
"""Fields that hold text of any length."""


def holding(record: Any) -> dict[str, Any]:
    """How a commit or an append is given a record."""
    if isinstance(record, DeliveryMode):
        return {"mode": record}
    if isinstance(record, RunBody):
        return {"run": NewRun(agent_id="a", body=record)}
    if isinstance(record, Doc):
        return {"state": {"n": record}}
    if isinstance(record, NewRun):
        return {"run": record}
    if isinstance(record, Compaction):
        return {"messages": [Message.user("s", compaction=record)]}
    if isinstance(record, ToolResult):
        return {"messages": [Message(role="tool", content=[record])]}
    return {"messages": [record if isinstance(record, Message) else Message.assistant([record])]}


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_absurd_fields_are_refused_before_any_io(kind: type) -> None:
    store = Store(ClosedEngine())  # type: ignore[arg-type]
    wrong = []
    for field in kind.__struct_fields__:
        for what, value in ABSURD.items():
            if what in LONG and (field in TEXTS or (kind, field) in ((ToolUse, "input"), (Doc, "value"))):
                continue
            given = holding(kind(**{**RECORDS[kind], field: value}))
            verb = store.pending.append if "mode" in given else store.commit
            given = {"messages": [Message.user("hello")], **given} if "mode" in given else given
            try:
                asyncio.run(call(verb, {"thread_id": "t", **given}))
            except InvalidError as error:
                if len(str(error)) > 1_000:
                    wrong.append(f"{field}, {what}: a message of {len(str(error)):,} characters")
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is wrong
                wrong.append(f"{field}, {what}: {type(error).__name__}: {str(error)[:80]}")
    assert wrong == []


def test_open_refuses_absurd_arguments() -> None:
    wrong = []
    for parameter in ("url", "durability", "scope", "read_only", "housekeeping", "clock"):
        for what, value in ABSURD.items():
            given = {"url": "memory://", parameter: value}

            async def attempt(given: dict[str, Any]) -> None:
                await perdure.open(**given)

            try:
                asyncio.run(attempt(given))
            except InvalidError:
                pass
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is wrong
                wrong.append(f"{parameter}, {what}: {type(error).__name__}: {str(error)[:80]}")
            else:
                wrong.append(f"{parameter}, {what}: accepted")
    assert wrong == []


@pytest.mark.parametrize("option", [{"read_only": 1}, {"housekeeping": "no"}, {"housekeeping": None}, {"clock": 12}])
def test_both_faces_check_options_before_any_io(tmp_path: Path, option: dict[str, Any]) -> None:
    path = tmp_path / "a.db"
    (name,) = option
    for face in (perdure.open, perdure.sync.open):
        with pytest.raises(InvalidError, match=f"{name} must be"):
            face(path, **option)
    assert not path.exists()


def test_a_count_beyond_the_upper_bound_names_both_bounds() -> None:
    with pytest.raises(InvalidError, match=rf"n must be an integer from 1 to {limits.INTEGER_MAX}, not 1"):
        check_count(10**30, "n", least=1)
    with pytest.raises(InvalidError, match="n must be an integer of at least 1, not 0"):
        check_count(0, "n", least=1)
    with pytest.raises(InvalidError, match="n must not be blank"):
        check_id(" ", "n")


def test_from_json_refuses_what_is_nested_without_end() -> None:
    block: Any = {"type": "text", "text": "deep"}
    for _ in range(DEPTH):
        block = {"type": "tool_result", "tool_use_id": "c", "content": [block]}
    for value in (deep_list(), {"role": "user", "content": [block]}, {"role": deep_list(), "content": "x"}):
        with pytest.raises(InvalidError):
            Message.from_json(value)


@pytest.mark.parametrize("value", ABSURD.values(), ids=ABSURD)
def test_everything_can_be_shown(value: Any) -> None:
    text = short_repr(value)
    assert 0 < len(text) <= 80
    text.encode()


def test_only_the_beginning_of_what_is_long_is_looked_at() -> None:
    assert short_repr({n: [n] for n in range(1_000_000)}) == "{0: [0], 1: [1], 2: [2], 3: [3], 4: [4], 5: [5], ...}"
    assert short_repr(b"x" * 10_000_000) == "b'" + "x" * 77 + "…"
    assert short_repr(HostileDict()) == "x" * 79 + "…"


def test_what_is_short_is_shown_whole() -> None:
    assert [short_repr(value) for value in ("a", 7, None, [1, {"a": 2}])] == ["'a'", "7", "None", "[1, {'a': 2}]"]


@pytest.mark.parametrize(("name", "parameter"), CASES, ids=[" ".join(case) for case in CASES])
def test_absurd_values_are_refused_before_any_io(name: str, parameter: str) -> None:
    assert refusals(name, parameter) == []
