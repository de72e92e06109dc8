"""Write `src/perdure/stores/thread_handle.py` from the stores: their methods on one thread, without its id.

The methods in `CLASS` are written here: `append`, `follow_runs`, `follow_all`, and those that treat the resource in
their own way. Run this before tools/make_sync.py, which makes the blocking twin.

    tools/make_handle.py            write the file
    tools/make_handle.py --check    only report whether it is up to date
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

# Run as a file: its own folder is on the path, the repository is not.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.make_sync import (
    STORES,
    Method,
    call_arguments,
    fill,
    formatted,
    imports_for,
    is_decorated,
    names_used,
    parameters,
    parsed,
    public_methods,
    write_or_check,
)

TARGET = STORES / "thread_handle.py"
METHODS = {
    "threads": ("get", "update", "delete"),
    "store": ("commit", "load", "buffered"),
    "messages": ("history", "external", "path", "page", "follow", "unfinished_calls"),
    "branches": ("fork", "checkout", "switch", "variants", "tree"),
    "runs": ("rerun", "cancel", "decide", "follow_drafts"),
}
"""What a handle offers, by store."""

HEAD = '''"""`store.thread(id)`: the calls on one thread, without repeating its id.

Written by tools/make_handle.py from the stores: edit those instead. A handle holds no state: the thread need not exist,
and two handles of one thread are as good as one. With a resource, every call first checks whose thread it is.
"""

from __future__ import annotations

'''

CLASS = '''class ThreadHandle:
    """One thread of a store: its calls, without its id. Made by `store.thread`."""

    def __init__(self, store: Store, thread_id: str, resource_id: str | None = None) -> None:
        self._store = store
        self._id = checks.check_id(thread_id, "thread id")
        self._resource = checks.check_owner(resource_id)

    @property
    def id(self) -> str:
        """The id of the thread."""
        return self._id

    @property
    def resource_id(self) -> str | None:
        """The resource that the thread must belong to, or None."""
        return self._resource

    def __repr__(self) -> str:
        owner = "" if self._resource is None else f" resource_id={self._resource!r}"
        return f"<perdure.ThreadHandle {self._id!r}{owner} of {self._store!r}>"

    async def _check(self) -> None:
        """Raise `NotFoundError` unless the thread exists and belongs to the resource."""
        if self._resource is not None:
            await self._store.threads.get(self._id, resource_id=self._resource)

    @overload
    async def append(
        self, *messages: Message, run: Run | RunChange | NewRun, **options: Unpack[AppendOptions]
    ) -> RunReceipt: ...

    @overload
    async def append(self, *messages: Message, run: None = None, **options: Unpack[AppendOptions]) -> Receipt: ...

    async def append(
        self, *messages: Message, run: Run | RunChange | NewRun | None = None, **options: Unpack[AppendOptions]
    ) -> Receipt:
        """Commit these messages. `run` and the options are those of `Store.commit`."""
        await self._check()
        return await self._store.commit(self._id, messages=messages, run=run, **options)

    async def find(self, *, resource_id: str | None = None) -> Thread | None:
        """The thread, or None. With `resource_id`, only a thread that belongs to this resource."""
        owner = self._resource if resource_id is None else resource_id
        thread = await self._store.threads.find(self._id, resource_id=owner)
        return None if thread is None or self._resource not in (None, thread.resource_id) else thread

    async def ensure(self, **options: Unpack[ThreadOptions]) -> Thread:
        """The thread, created if it does not exist; of callers at the same time, one creates it.

        The options are those of `store.threads.ensure`.
        """
        if self._resource is not None:
            if options.setdefault("resource_id", self._resource) != self._resource:
                raise InvalidError("the handle and the call name different resources", hint="leave out resource_id")
            await self._store.threads.ensure(self._id, **options)
            return await self._store.threads.get(self._id, resource_id=self._resource)
        return await self._store.threads.ensure(self._id, **options)

    async def start(self, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A running run, with the messages it was given, in one commit.

        The options are those of `store.runs.start`.
        """
        if self._resource is not None and options.setdefault("resource_id", self._resource) != self._resource:
            raise InvalidError("the handle and the call name different resources", hint="leave out resource_id")
        return await self._store.runs.start(self._id, agent_id, **options)

    def follow_runs(self, *, branch: int | None = None, timeout: float | None = None) -> Follower[Run]:
        """Its open runs and its latest, then each run that starts or changes: `store.runs.follow(thread_id=…)`.

        `branch` is the number of a branch, such as the one that a tab shows: then the latest run is the latest on it.
        """
        return self._store.runs.follow(
            thread_id=self._id, branch=branch, timeout=timeout, resource_id=self._resource
        )

    def follow_all(
        self, *, branch: int | None = None, after_seq: int = 0, timeout: float | None = None
    ) -> Follower[Draft | MessageRecord | Run]:
        """All that a tab shows, in one follower: words as they come, messages that people may see, and runs.

        A draft ends before its answer comes, and a run is done after its answer. It is `follow_drafts`, `follow` with
        the view `external`, and `follow_runs`, merged.

        - `branch`: the number of the branch that the tab shows, such as `page.branch`; by default, all branches.
        - `after_seq`: the last seq that the tab has, such as `page.after_seq`.
        - `timeout`: end after so many seconds without a record.
        """
        messages = self.follow(branch=branch, view="external", after_seq=after_seq)
        drafts, runs = self.follow_drafts(branch=branch), self.follow_runs(branch=branch)
        return drafts.merge(messages, runs, timeout=timeout)

'''
NEEDED = (
    "from typing import TYPE_CHECKING, Unpack, overload",
    "from perdure.errors import InvalidError",
    "from perdure.model.draft import Draft",
    "from perdure.model.message import Message, MessageRecord",
    "from perdure.model.receipt import Receipt, RunReceipt",
    "from perdure.model.run import NewRun, Run, RunChange",
    "from perdure.model.thread import Thread, ThreadOptions",
    "from perdure.rules import checks",
    "from perdure.stores.follower import Follower",
    "from perdure.stores.options import AppendOptions",
    "from perdure.stores.runs import StartOptions",
)
_OWN = {"thread_id": "self._id", "thread_id=thread_id": "thread_id=self._id"}
"""What a call passes on of its own."""


_CHECKS = {
    "buffered": """        if self._resource is not None:
            raise InvalidError("a handle with a resource_id has no buffered writer", hint="store.buffered(id)")"""
}
"""How the methods that are not async check the resource."""


def method(node: Method, store: str) -> str:
    """A method of a store as the handle has it."""
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    follows = node.name.startswith("follow")
    filled_in = ("thread_id:", "resource_id:") if follows else ("thread_id:",)
    written = [part for part in parameters(node) if not part.startswith(filled_in)]
    if written[-1] == "*":
        del written[-1]
    opening = f"{kind} {node.name}("
    if is_decorated(node, "overload"):
        return "    @overload\n" + fill(opening, written, f") -> {returns}: ...", 4) + "\n"
    owner = "self._store" if store == "store" else f"self._store.{store}"
    own = _OWN | ({"resource_id=resource_id": "resource_id=self._resource"} if follows else {})
    arguments = [own.get(part, part) for part in call_arguments(node)]
    called = f"`Store.{node.name}`" if store == "store" else f"`store.{store}.{node.name}`"
    first = (ast.get_docstring(node) or "").splitlines()[0]
    doc = f'        """{first}\n\n        The options are those of {called}.\n        """'
    if len(written) == 1:
        doc = f'        """{first}"""'
    is_async = isinstance(node, ast.AsyncFunctionDef)
    call = "await " if is_async else ""
    keyword = "" if returns == "None" else "return "
    body = fill(f"{keyword}{call}{owner}.{node.name}(", arguments, ")", 8)
    check = "        await self._check()" if is_async else _CHECKS.get(node.name, "")
    lines = [fill(opening, written, f") -> {returns}:", 4), doc, check, body]
    return "\n".join(line for line in lines if line) + "\n"


def generate() -> str:
    """The whole file."""
    texts, imports = [], list(NEEDED)
    for store, names in METHODS.items():
        tree = parsed(store)
        methods = [node for node in public_methods(tree, store.capitalize()) if node.name in names]
        texts += [method(node, store) for node in sorted(methods, key=lambda node: names.index(node.name))]
        imports += imports_for(tree, store, names_used(methods), blocking=False)[1:]
    # The store imports the handle to make one.
    late = "if TYPE_CHECKING:\n    from perdure.stores.store import Store\n"
    imports = [line for line in imports if " perdure.stores.store import" not in line]
    return formatted(HEAD + "\n".join(imports) + f"\n\n{late}\n# fmt: off\n\n\n{CLASS}" + "\n".join(texts), TARGET)


def main() -> int:
    return write_or_check({TARGET: generate()}, "tools/make_handle.py")


if __name__ == "__main__":
    sys.exit(main())
