"""Hostile inputs through the library: each is refused with an error of Perdure's own, or comes back as it was."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.hostile.inputs import CANARY, Input

import perdure
from perdure import Message, Store, ToolUse
from perdure.errors import PerdureError

HOME = "home"
"""The thread that has the branches, labels and documents with hostile names."""


class Broken(Exception):
    """Something that must not happen, did."""


def check_error(error: BaseException) -> None:
    """A refusal is our own, and shows no secret in any spelling."""
    if not isinstance(error, PerdureError):
        raise Broken(f"{type(error).__name__}: {error}"[:300]) from error
    shown = [str(error), repr(error), repr(error.args), repr(vars(error)), *traceback.format_exception(error)]
    if any(CANARY in text for text in shown):
        raise Broken(f"the error shows the secret: {error}")


def same(kept: Any, given: Any) -> None:
    """Raise unless it came back as it was."""
    if kept != given or type(kept) is not type(given):
        raise Broken(f"came back as {kept!r:.200}")


class Library:
    """The public calls on one store. `kept` collects what the store took, by kind."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self.kept: dict[str, list[Input]] = {}
        self._steps: dict[str, Callable[[Input, str], Awaitable[None]]] = {
            "id": self._id,
            "name": self._name,
            "title": self._title,
            "label": self._label,
            "content": self._content,
            "cursor": self._cursor,
            "scope": self._scope,
            "url": self._url,
            "file": self._file,
        }

    async def start(self) -> None:
        """What the inputs are hung on."""
        await self._store.threads.create(HOME)
        await self._store.commit(HOME, messages=[Message.user("first", id="first")])

    async def attempt(self, item: Input, number: int) -> bool:
        """Try one input; whether it was taken."""
        try:
            await self._steps[item.kind](item, thread_of(item, number))
        except Broken:
            raise
        except Exception as error:  # noqa: BLE001 - which ones are allowed is the question
            check_error(error)
            return False
        self.kept.setdefault(item.kind, []).append(item)
        return True

    async def finish(self) -> None:
        """Everything that was taken is still there, and nothing else: no twin was folded into another."""
        store = self._store
        threads = {thread.id async for thread in store.threads.iter()}
        ids = {item.text for item in self.kept.get("id", ())}
        if not ids <= threads:
            raise Broken(f"{len(ids - threads)} threads are missing")
        names = {branch.name for branch in await store.branches.list(HOME)}
        same(names, {"main"} | {item.text for item in self.kept.get("name", ())})
        documents = {doc.name for doc in await store.state.list(HOME)}
        same(documents, {item.text for item in self.kept.get("name", ())})

    async def _id(self, item: Input, _: str) -> None:
        store, text = self._store, item.text
        made = await store.threads.create(text)
        same(made.id, text)
        same((await store.threads.get(text)).id, text)
        await store.commit(text, messages=[Message.user("x", id=text)], key=text)
        same((await store.messages.get(text, text)).message_id, text)
        run = await store.runs.create(text, text)
        same((await store.runs.get(run.id)).agent_id, text)

    async def _name(self, item: Input, _: str) -> None:
        store, text = self._store, item.text
        await store.branches.fork(HOME, at="first", name=text)
        same((await store.branches.get(HOME, text)).name, text)
        await store.state.put(HOME, text, {text: text})
        same((await store.state.get(HOME, text)).value, {text: text})

    async def _title(self, item: Input, thread: str) -> None:
        await self._store.threads.create(thread, title=item.text)
        same((await self._store.threads.get(thread)).title, item.text)

    async def _label(self, item: Input, thread: str) -> None:
        store = self._store
        await store.threads.create(thread)
        await store.commit(thread, messages=[Message.user("x", id="first")])
        await store.branches.label(thread, "first", item.text)
        same([label.label for label in await store.branches.labels(thread)], [item.text])

    async def _content(self, item: Input, thread: str) -> None:
        store, text = self._store, item.text
        await store.threads.create(thread, custom={"k": text})
        same((await store.threads.get(thread)).custom, {"k": text})
        call = ToolUse("call", "tool", {text: [text, {"deep": text}]})
        said = [Message.user(text), Message.assistant([call], id="call"), Message.tool("call", text)]
        await store.commit(thread, messages=said)
        records = await store.messages.history(thread)
        same(records[0].text, text)
        same(records[1].message.tool_calls[0].input, {text: [text, {"deep": text}]})

    async def _cursor(self, item: Input, _: str) -> None:
        store = self._store
        for attempt in (store.threads.list, store.runs.list):
            try:
                await attempt(cursor=item.text)
            except PerdureError as error:
                check_error(error)
        await store.messages.list(HOME, cursor=item.text)

    async def _scope(self, item: Input, _: str) -> None:
        other = self._store.scoped(item.text)
        await other.threads.create("inside", title=item.text)
        same((await other.threads.get("inside")).title, item.text)
        same([thread.id async for thread in other.threads.iter()], ["inside"])
        if await self._store.threads.find("inside") is not None:
            raise Broken("it is visible in another scope")

    async def _url(self, item: Input, _: str) -> None:
        async with perdure.open(item.text):
            pass

    async def _file(self, item: Input, _: str) -> None:
        path = self._folder / f"{item.text}.db"
        if path.parent != self._folder:
            return  # Another folder: that is what the caller asked for.
        async with perdure.open(path) as store:
            await store.threads.create("t", title=item.text if item.text.isprintable() else None)
        if not path.is_file():
            raise Broken("the file has another name")


def thread_of(item: Input, number: int) -> str:
    """The thread that an input of this kind has for itself."""
    return f"{item.kind}-{number}"
