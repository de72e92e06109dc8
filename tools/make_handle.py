"""Write `src/perdure/stores/thread_handle.py` from the stores: their methods on one thread, without its id.

Only `append` and `follow_runs` are written here. Run this before tools/make_sync.py, which makes the blocking twin.

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
    "threads": ("get", "find", "ensure", "update", "delete"),
    "store": ("commit", "load", "buffered"),
    "messages": ("history", "external", "path", "page", "follow", "unfinished_calls"),
    "branches": ("fork", "checkout", "switch", "variants", "tree"),
    "runs": ("start", "rerun", "cancel", "decide"),
}
"""What a handle offers, by store."""

HEAD = '''"""`store.thread(id)`: the calls on one thread, without repeating its id.

Written by tools/make_handle.py from the stores: edit those instead. A handle holds no state: the thread need not exist,
and two handles of one thread are as good as one.
"""

from __future__ import annotations

'''

CLASS = '''class ThreadHandle:
    """One thread of a store: its calls, without its id. Made by `store.thread`."""

    def __init__(self, store: Store, thread_id: str) -> None:
        self._store = store
        self._id = checks.check_id(thread_id, "thread id")

    @property
    def id(self) -> str:
        """The id of the thread."""
        return self._id

    def __repr__(self) -> str:
        return f"<perdure.ThreadHandle {self._id!r} of {self._store!r}>"

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
        return await self._store.commit(self._id, messages=messages, run=run, **options)

    def follow_runs(self, *, timeout: float | None = None) -> Follower[Run]:
        """Its open runs and its latest, then each run that starts or changes: `store.runs.follow(thread_id=…)`."""
        return self._store.runs.follow(thread_id=self._id, timeout=timeout)

'''
NEEDED = (
    "from typing import TYPE_CHECKING, Unpack, overload",
    "from perdure.model.message import Message",
    "from perdure.model.receipt import Receipt, RunReceipt",
    "from perdure.model.run import NewRun, Run, RunChange",
    "from perdure.rules import checks",
    "from perdure.stores.following import Follower",
    "from perdure.stores.options import AppendOptions",
)
_OWN = {"thread_id": "self._id", "thread_id=thread_id": "thread_id=self._id"}
"""What a call passes on of its own."""


def method(node: Method, store: str) -> str:
    """A method of a store as the handle has it."""
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    written = [part for part in parameters(node) if not part.startswith("thread_id:")]
    if written[-1] == "*":
        del written[-1]
    opening = f"{kind} {node.name}("
    if is_decorated(node, "overload"):
        return "    @overload\n" + fill(opening, written, f") -> {returns}: ...", 4) + "\n"
    owner = "self._store" if store == "store" else f"self._store.{store}"
    arguments = [_OWN.get(part, part) for part in call_arguments(node)]
    called = f"`Store.{node.name}`" if store == "store" else f"`store.{store}.{node.name}`"
    first = (ast.get_docstring(node) or "").splitlines()[0]
    doc = f'        """{first}\n\n        The options are those of {called}.\n        """'
    if len(written) == 1:
        doc = f'        """{first}"""'
    call = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    keyword = "" if returns == "None" else "return "
    body = fill(f"{keyword}{call}{owner}.{node.name}(", arguments, ")", 8)
    return "\n".join([fill(opening, written, f") -> {returns}:", 4), doc, body]) + "\n"


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
