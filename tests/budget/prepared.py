"""Bodies that no call would write, put straight into an engine: an older build, or somebody with the file, wrote them.

Each is about as large as plain content, and beyond some limit or aside from the usual path of a reader. Reading them
costs what reading plain bodies costs, or they are reported as damaged, at no higher cost.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from tests.budget.calls import CALLS, Call
from tests.budget.contents import MESSAGE, PLAIN

from perdure import Message, Store
from perdure.kernel.ops import NOW, Append, Inc, Op, Patch, Seq

BODY = Callable[[], bytes]


def _blocks(*blocks: bytes) -> bytes:
    return b'{"content":[' + b",".join(blocks) + b"]}"


def _times(block: bytes) -> list[bytes]:
    return [block] * (MESSAGE // (len(block) + 1))


def _nested_result(depth: int) -> bytes:
    start, end = b'{"type":"tool_result","tool_use_id":"c","content":[', b"]}"
    return start * depth + b'{"type":"text","text":"x"}' + end * depth


def plain_body() -> bytes:
    """What an ordinary message is stored as."""
    return msgspec.json.encode({"content": PLAIN.decoded["content"]})


BODIES: dict[str, BODY] = {
    "10,000 unknown blocks": lambda: _blocks(*_times(b'{"type":"x"}')),
    "one unknown block behind many": lambda: _blocks(*_times(b'{"type":"text","text":""}'), b'{"type":"x"}'),
    "unknown blocks with long keys": lambda: _blocks(*_times(b'{"type":"x","' + b"k" * 2_000 + b'":[0]}')),
    "unknown fields everywhere": lambda: _blocks(*_times(b'{"type":"text","text":"","a":{"b":[1]}}')),
    "results in results, 30 levels": lambda: _blocks(*_times(_nested_result(30))),
    "a long key above a long list": lambda: (
        b'{"content":[],"metadata":{"' + b"k" * 2_000 + b'":[' + b"0," * 63_000 + b"0]}}"
    ),
    "integers of 4,000 digits": lambda: b'{"content":[],"metadata":{"n":[' + (b"7" * 4_000 + b",") * 32 + b"0]}}",
}
DAMAGED: dict[str, BODY] = {
    "results in results, 3,000 levels": lambda: _blocks(_nested_result(3_000)),
    "lists in lists, 3,000 levels": lambda: b'{"content":[],"metadata":{"d":' + b"[" * 3_000 + b"]" * 3_000 + b"}}",
    "a wrong block behind many": lambda: _blocks(*_times(b'{"type":"x"}'), b'{"type":5}'),
}

READS: dict[str, Call] = {
    name: call
    for name, call in CALLS.items()
    if call.parts == ("message",)
    and not call.takes
    and name.startswith(("messages.", "branches."))
    and name not in ("branches.rename", "branches.label")
}
"""The calls that read a message of thread `t`."""


async def fill(store: Store, body: bytes) -> None:
    """A thread whose second message has this body; the engine is given it as it is."""
    await store.commit("t", messages=[Message.user("hello", id="first")])
    entry = ("m", "assistant", 0, "all", None, None, NOW, body)
    ops: list[Op] = [
        Append("messages", "t", [entry]),
        Patch("thread_heads", ("t",), {"version": Inc(1)}),
        Patch("branches", ("t", 0), {"head": "m", "head_seq": Seq("messages"), "length": Inc(1)}),
    ]
    await store.engine.transact(store.scope, ops)
    await store.branches.fork("t", at="first", name="side")
    await store.engine.transact(store.scope, [Patch("branches", ("t", 1), {"head": "m", "head_seq": 2})])
