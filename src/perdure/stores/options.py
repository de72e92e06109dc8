"""The options of a commit as typed dictionaries, for wrappers that pass them on: `**options: Unpack[CommitOptions]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from perdure.model.message import Message
from perdure.model.thread import NewThread


class AppendOptions(TypedDict, total=False):
    """What `Store.commit` takes besides the thread, the run and the messages; its docstring explains each."""

    branch: int | str | None
    expect: int | None
    expect_head: str | None
    fence: int | None
    state: Mapping[str, Any] | None
    run_state: Mapping[str, Any] | None
    expect_state: Mapping[str, int | None] | None
    thread: NewThread | None
    key: str | None


class CommitOptions(AppendOptions, total=False):
    """What `Store.commit` takes besides the thread and the run."""

    messages: Sequence[Message]
