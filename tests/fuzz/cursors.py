"""Cursors: real ones of every list, damaged ones, and ones forged with a right checksum.

A query continues with its own cursors and no others. A damaged cursor is refused. A forged one is refused or gives a
page that the list does hold: it can begin a page anywhere, and can show nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.audit.samples import rich
from tests.fuzz.mutate import INTEGERS, TEXTS, edited, spliced
from tests.fuzz.spelling import deep
from tests.fuzz.target import Broken, Target, refusal

from perdure.engines.memory import open_memory
from perdure.errors import CursorExpired, InvalidError, PerdureError
from perdure.model.page import Page
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.sync.driver import Driver

_LISTS: dict[str, dict[str, Any]] = {
    "threads active": {},
    "threads created": {"order": "created"},
    "threads root": {"root": True},
    "threads of u-1": {"resource_id": "u-1"},
    "threads of parent": {"parent_thread_id": "parent"},
    "messages": {"thread_id": "t"},
    "messages desc": {"thread_id": "t", "order": "desc"},
    "messages of parent": {"thread_id": "parent"},
    "messages after 2": {"thread_id": "t", "after_seq": 2},
    "messages before 5": {"thread_id": "t", "before_seq": 5, "order": "desc"},
    "messages seen": {"thread_id": "t", "visibility": "external"},
    "pages of main": {"thread_id": "t", "branch": 0},
    "pages raw": {"thread_id": "t", "branch": 0, "view": "raw"},
    "pages of history": {"thread_id": "t", "branch": 0, "view": "history"},
    "pages before 5": {"thread_id": "t", "branch": "main", "view": "raw", "before": 5},
    "runs": {},
    "runs of t": {"thread_id": "t"},
    "runs done": {"status": "done"},
}
_BYTES = (b"\xff", b"[", b"0", b"1e3", b" ", b"\\ud800", b"9" * 400)
_ALPHABET = ("A", "_", "-", "=", "==", "+", "/", " ", "\n", "é", "\ud800", "e30", "\x00")


@cache
def _store() -> Store:
    async def make() -> Store:
        ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 1_000))
        store = Store(await open_memory(SCHEMA, clock=lambda: next(ticks)), "default")
        await rich(store)
        return store

    return asyncio.run(make())


def _page(query: str, cursor: Any, limit: int) -> Any:
    store, (kind, *_) = _store(), query.split()
    options = {**_LISTS[query], "limit": limit, "cursor": cursor}
    if kind != "pages":
        return Driver().run(getattr(store, kind).list(**options))
    page = Driver().run(store.messages.page(**options))
    return Page(page.items[::-1], page.next_cursor)  # in the order of the pages: from the newest on


@cache
def _cursors() -> dict[str, dict[str, list[str]]]:
    """By query: its own cursors, and the ids on the pages that each of them continues with."""
    return {query: dict(_walk(query)) for query in _LISTS}


def _walk(query: str) -> list[tuple[str, list[str]]]:
    names, found = _ids(_page(query, None, 200).items), []
    cursor, done = None, 0
    while True:
        page = _page(query, cursor, 1)
        done, cursor = done + len(page.items), page.next_cursor
        if cursor is None:
            return found
        found.append((cursor, names[done:]))


def _ids(items: Sequence[Any]) -> list[str]:
    return [item.message_id if hasattr(item, "message_id") else item.id for item in items]


def frame(payload: bytes) -> str:
    """A cursor with a right checksum around any payload."""
    return base64.urlsafe_b64encode(payload + binascii.crc32(payload).to_bytes(4, "big")).rstrip(b"=").decode()


def _payload(cursor: str) -> bytes:
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[:-4]


def _is_framed(cursor: str) -> bool:
    """Whether the checksum is right, and the text the only spelling of these bytes."""
    try:
        return frame(_payload(cursor)) == cursor
    except ValueError:
        return False


@st.composite
def _cases(draw: Any, seeds: Sequence[Any]) -> Any:
    query = draw(st.sampled_from(list(_LISTS)))
    every = [cursor for own in _cursors().values() for cursor in own]
    own = list(_cursors()[query]) or every
    kept = [seed["cursor"] for seed in seeds if isinstance(seed["cursor"], str)]
    kinds = {
        "keyset": _with_keyset(own),
        "respelled": _respelled(own),
        "tree": edited([json.loads(_payload(cursor)) for cursor in own]).map(_framed_json),
        "bytes": spliced([_payload(cursor) for cursor in own], _BYTES).map(frame),
        "real": st.sampled_from(every),
        "spliced": spliced([*own, *kept], _ALPHABET),
        "text": st.text(max_size=20),
        "odd": st.sampled_from((0, b"e30", True, ["x"], {"a": 1}, 1.5)),
    }
    kind = draw(st.sampled_from(("keyset", "keyset", *kinds)))
    return {"query": query, "cursor": draw(kinds[kind])}


@st.composite
def _with_keyset(draw: Any, own: list[str]) -> str:
    """A cursor of this query that continues somewhere else."""
    version, name, keyset = json.loads(_payload(draw(st.sampled_from(own))))
    place = draw(st.integers(0, len(keyset) - 1))
    texts, numbers = st.sampled_from(TEXTS) | st.text(max_size=3), st.integers(0, 12) | st.sampled_from(INTEGERS)
    keyset[place] = draw(texts if isinstance(keyset[place], str) else numbers)
    return _framed_json([version, name, keyset])


@st.composite
def _respelled(draw: Any, own: list[str]) -> str:
    """A cursor with another last character, or with padding."""
    cursor = draw(st.sampled_from(own))
    return str(cursor[:-1] + draw(st.sampled_from("AEIMQUYcgkosw048_-"))) if draw(st.booleans()) else f"{cursor}="


def _framed_json(payload: Any) -> str:
    with deep():
        return frame(json.dumps(payload).encode())


def _check(case: Any) -> str:
    query, cursor = case["query"], case["cursor"]
    own = _cursors()[query]
    try:
        page = _page(query, cursor, 200)
    except (CursorExpired, InvalidError) as error:
        if isinstance(cursor, str) and cursor in own:
            raise Broken("a query refuses its own cursor", str(error)) from error
        return refusal(error)
    except PerdureError as error:
        raise Broken("a cursor is refused as something else", repr(error)) from error
    names = _ids(page.items)
    if isinstance(cursor, str) and cursor in own:
        if names != own[cursor]:
            raise Broken("a cursor continues elsewhere", f"{names} instead of {own[cursor]}")
        return "continued"
    if any(cursor in others for others in _cursors().values() if isinstance(cursor, str)):
        raise Broken("a cursor of another query is taken")
    if not isinstance(cursor, str) or not _is_framed(cursor):
        raise Broken("a damaged cursor is taken")
    whole = _ids(_page(query, None, 200).items)
    if names != whole[len(whole) - len(names) :]:
        raise Broken("a forged cursor shows what the list does not hold", f"{names} of {whole}")
    msgspec.json.decode(_payload(cursor), type=tuple[int, str, list[str | int | None]])
    return f"forged, {'all' if names == whole else 'some' if names else 'nothing'}"


CURSORS = Target("cursors", "every list, continued by any text", _cases, _check, short=400)
