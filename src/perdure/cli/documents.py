"""Records as JSON documents: what `--json` writes. Field names are those of the library."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.model.branch import Branch, Label
from perdure.model.faithful import to_json
from perdure.model.page import Page
from perdure.model.run import Run
from perdure.model.state import StateDoc
from perdure.model.thread import Thread


def thread_document(thread: Thread) -> dict[str, Any]:
    """A thread."""
    return msgspec.structs.asdict(thread)


def branch_document(branch: Branch) -> dict[str, Any]:
    """A branch."""
    return msgspec.structs.asdict(branch)


def label_document(label: Label) -> dict[str, Any]:
    """A label."""
    return msgspec.structs.asdict(label)


def state_document(doc: StateDoc) -> dict[str, Any]:
    """A state document without its value."""
    document = msgspec.structs.asdict(doc)
    del document["value"]
    return document


def run_document(run: Run) -> dict[str, Any]:
    """A run; what is stored as its body is spread out beside the counters."""
    document = msgspec.structs.asdict(run)
    body = to_json(document.pop("body"))
    document["input"] = to_json(run.input) if run.input is not None else None
    document["output"] = msgspec.structs.asdict(run.output) if run.output is not None else None
    return {**body, **document}


def page_document(page: Page[Any], items: list[dict[str, Any]]) -> dict[str, Any]:
    """A page and the cursor that continues it."""
    return {"items": items, "next_cursor": page.next_cursor}
