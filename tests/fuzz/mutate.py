"""Cases made from seeds: JSON edited as a tree, text and bytes cut and spliced.

Hypothesis draws every decision, so a failing case shrinks: towards fewer edits, simpler values and the first seed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from tests.fuzz.spelling import deep

Draw = Callable[[st.SearchStrategy[Any]], Any]

INTEGERS: tuple[int, ...] = (
    0,
    1,
    -1,
    2,
    7,
    2**31,
    2**52,
    2**52 + 1,
    -(2**52) - 1,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63) - 1,
)
TEXTS = (
    "",
    "a",
    "t",
    "c1",
    "\x00",
    "\x1b[31m\x07",
    "\u202e",
    "\U000e0041",
    "\ud800",
    "é",
    "e\u0301",
    "𝔘",
    "\r\n",
    "%",
    "type",
    "x" * 300,
    "x" * 5_000,
)
SCALARS: tuple[Any, ...] = (None, True, False, *INTEGERS, 0.5, -0.0, 1e308, float("inf"), float("nan"), *TEXTS)
ODD: tuple[Any, ...] = (b"\xff", (), (1,), {1}, {1: 2}, 1 << 20_000, 1 << 5_000)
"""What no JSON holds, but a caller may pass."""

scalars = st.sampled_from(SCALARS) | st.integers() | st.text(max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def _slots(value: Any) -> list[tuple[Any, Any]]:
    """The places in a tree that hold a value, `_MOST` at least: the container, and the key or index there."""
    slots: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(slots) < _MOST:
        container = waiting.pop()
        if isinstance(container, dict):
            keys: Sequence[Any] = list(container)
        elif isinstance(container, list):
            keys = range(len(container))
        else:
            continue
        slots += [(container, key) for key in keys]
        waiting += [container[key] for key in keys]
    return slots


def _nested(value: Any, depth: int, *, name: str | None) -> Any:
    for _ in range(depth):
        value = [value] if name is None else {name: value}
    return value


_MOST = 1_000
"""A tree with more places than this grows no further: copies of copies would fill the memory."""
_GROWING = ("add", "copy", "splice", "nest")
EDITS = ("replace", "remove", "rename", "add", "copy", "splice", "text", "nest")


@st.composite
def edited(draw: Draw, seeds: Sequence[Any], odd: Sequence[Any] = (), keys: Sequence[str] = ()) -> Any:
    """A seed after a few edits anywhere in its tree; `keys` are names worth giving to a field."""
    holder = [_copied(draw(st.sampled_from(seeds)))]
    # Copied, or a later edit would change what the next case draws.
    fresh = values | st.sampled_from(odd).map(_copied) if odd else values
    names = st.sampled_from(keys) | st.text(max_size=4) if keys else st.text(max_size=4)
    for _ in range(draw(st.integers(0, 4))):
        slots = _slots(holder)
        container, key = slots[draw(st.integers(0, len(slots) - 1))]
        edit = draw(st.sampled_from(EDITS))
        if len(slots) >= _MOST and edit in _GROWING:
            continue
        if edit == "replace":
            container[key] = draw(fresh)
        elif edit == "remove" and container is not holder:
            del container[key]
        elif edit == "rename" and isinstance(container, dict):
            container[draw(names)] = container.pop(key)
        elif edit == "add":
            _add(container[key], draw(names), draw(fresh))
        elif edit == "copy" and isinstance(container, list) and container is not holder:
            times = draw(st.sampled_from((1, 2, 60)))
            container[key:key] = [_copied(container[key]) for _ in range(times)]
        elif edit == "splice":
            others = _slots([draw(st.sampled_from(seeds))])
            donor, place = others[draw(st.integers(0, len(others) - 1))]
            container[key] = _copied(donor[place])
        elif edit == "text" and isinstance(container[key], str):
            container[key] = draw(spliced([container[key]], TEXTS))
        elif edit == "nest":
            depth = draw(st.sampled_from((1, 2, 70, 300)))
            container[key] = _nested(container[key], depth, name=draw(st.none() | names))
    return holder[0]


def _copied(value: Any) -> Any:
    with deep():
        return copy.deepcopy(value)


def _add(value: Any, name: str, added: Any) -> None:
    if isinstance(value, dict):
        value[name] = added
    elif isinstance(value, list):
        value.append(added)


@st.composite
def spliced(draw: Draw, seeds: Sequence[Any], tokens: Sequence[Any]) -> Any:
    """A text (or bytes) after a few cuts, repetitions and insertions of `tokens`."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        to = draw(st.integers(at, min(len(text), at + 8)))
        times = draw(st.sampled_from((0, 1, 1, 2, 40)))
        token = draw(st.sampled_from(tokens))
        text = text[:at] + (text[at:to] * times if draw(st.booleans()) else token) + text[to:]
    return text
