"""What the browser of a user may be sent of messages and runs: an allow-list, unlike `to_json`, which has everything.

It leaves out what may hold secrets or is nobody else's business: the details of errors, also of a tool that failed (the
text of an exception may name a server, or a key), the content of internal messages, metadata, thinking, usage, blocks
of unknown types and fields that Perdure does not know, such as what a provider added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.model.faithful import NO_EXTRA, Faithful, Opaque, Untyped, to_json

if TYPE_CHECKING:
    from perdure.model.branch import Variant
    from perdure.model.message import Block, MessageRecord
    from perdure.model.run import Outcome, Run
    from perdure.model.thread import Thread
    from perdure.model.tickets import Waiting

_ALL = "all"  # `message.ALL`: that module imports this one
_HIDDEN = frozenset(("thinking",))


def item_json(item: Any) -> Any:
    """A record of a page: what it says itself, or all of it."""
    own = getattr(item, "public_json", None) or getattr(item, "to_json", None)
    return item if own is None else own()


def thread_json(thread: Thread) -> dict[str, Any]:
    """A conversation as a list shows it."""
    names = ("id", "title", "parent_thread_id", "created_at", "updated_at", "branch", "open_run_id")
    return {name: getattr(thread, name) for name in names}


def message_json(record: MessageRecord) -> dict[str, Any]:
    """A message in its place: its id, who spoke, and the blocks that people may see."""
    message = record.message
    fields = {
        "id": message.id,
        "role": message.role,
        "content": _content(message.content) if message.visibility == _ALL else [],
        "run_id": message.run_id,
        "stop_reason": message.stop_reason,
    }
    position = {"seq": record.seq, "branch": record.branch, "parent_id": record.parent_id, "at": record.at}
    return {"thread_id": record.thread_id, **position, "message": fields}


def variant_json(variant: Variant) -> dict[str, Any]:
    """A version of a message; what it begins with only if people may see that."""
    visible = variant.visibility == _ALL and variant.role != "tool"  # the preview of a result may be that of an error
    return {**variant.to_json(), "preview": variant.preview if visible else ""}


def _content(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    return [_without_error(to_json(block)) for block in _public(blocks)]


def _without_error(block: dict[str, Any]) -> dict[str, Any]:
    """Of a tool that failed, the flag alone: what it says may be the text of an exception."""
    if block["type"] != "tool_result":
        return block
    return {**block, "content": [] if block.get("is_error") else block.get("content", [])}


def run_json(run: Run) -> dict[str, Any]:
    """A run: where it stands, what it asks people, and how it ended."""
    names = ("id", "thread_id", "agent_id", "status", "branch", "steps")
    times = ("created_at", "started_at", "finished_at", "updated_at")
    fields = {name: getattr(run, name) for name in (*names, *times)}
    return {**fields, "waiting": _waiting(run.waiting), "outcome": _outcome(run.outcome)}


def _waiting(wait: Waiting | None) -> dict[str, Any] | None:
    if wait is None:
        return None
    names = ("ticket_id", "tool_call_id", "tool_name", "arguments", "reason")
    tickets = [{name: getattr(ticket, name) for name in names} for ticket in wait.tickets if ticket.decision is None]
    return {"reason": wait.reason, "message": wait.message, "open_tickets": tickets}


def _outcome(outcome: Outcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    return {
        "type": outcome.termination.type,
        "code": outcome.termination.code,
        "final_output": outcome.final_output,
    }


def _public(value: Any) -> Any:
    """Blocks with what people may see, also in the result of a tool: that may be what a sub-agent said."""
    if isinstance(value, list):
        return [_public(item) for item in value if _is_visible(item)]
    if isinstance(value, Opaque):  # not a block, but where the content of one is
        return Opaque(Untyped(type=value.kind))
    if not isinstance(value, Faithful):
        return value
    nested = {name: _public(getattr(value, name)) for name in value.__struct_fields__ if name not in ("extra", "input")}
    return msgspec.structs.replace(value, **nested, extra=NO_EXTRA)


def _is_visible(block: Any) -> bool:
    return not isinstance(block, Opaque) and type(block).__struct_config__.tag not in _HIDDEN
