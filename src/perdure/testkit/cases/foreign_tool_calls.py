"""Cases: tool calls in another vendor's spelling are refused on input, and returned unchanged if already stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from perdure.errors import InvalidError
from perdure.kernel.ops import Put, Scan
from perdure.model.faithful import Extra
from perdure.model.message import Message, MessageRecord
from perdure.stores.commit.plan import Guess, operations
from perdure.stores.commit.request import prepare
from perdure.stores.store import Store
from perdure.testkit.helpers import commit_texts
from perdure.testkit.kit import CaseFailed, Kit, case, equal, expect
from perdure.testkit.probe import untouched

CALLS = [{"id": "c1", "type": "function", "function": {"name": "book", "arguments": '{"days": 2}'}}]
FOREIGN: tuple[dict[str, Any], ...] = (
    {"tool_calls": CALLS},
    {"function_call": {"name": "book", "arguments": "{}"}},
    {"tool_call_id": "c1"},
)


def holding(fields: dict[str, Any], **more: Any) -> Message:
    """An assistant message that carries some fields as unknown ones, as an older build took them in."""
    return Message.assistant("One moment.", extra=Extra(fields), **more)


def block_for(fields: dict[str, Any]) -> str:
    """The type of the block that belongs in the place of such fields, as a hint spells it."""
    return '"tool_result"' if "tool_call_id" in fields else '"tool_use"'


async def store_as_before(store: Store, *messages: Message) -> None:
    """Append messages to thread t past the check of what a caller gives."""
    commit = prepare("t", messages=messages, stored=True)
    await store.engine.transact(store.scope, operations(commit, Guess(0, current=True)))


@case(
    "messages",
    "foreign-calls-refused",
    covers=("store.commit", "pending.append", "pending.edit", "pending.freeze", "runs.start", "runs.create"),
)
async def case_refused(kit: Kit) -> None:
    """Calls and results in a vendor's fields are refused wherever a message is given: recovery would not see them."""
    store = kit.store
    await commit_texts(store, "t", "hello")
    (waiting,) = await store.pending.append("t", [Message.user("later")])
    attempts: dict[str, Callable[[Message], Awaitable[Any]]] = {
        "commit": lambda m: store.commit("t", messages=[m]),
        "append": lambda m: store.pending.append("t", [m]),
        "edit": lambda m: store.pending.edit("t", waiting.id, m),
        "freeze": lambda m: store.pending.freeze("t", messages=[m]),
        "start": lambda m: store.runs.start("t", "agent", messages=[m]),
        "create": lambda m: store.runs.create("t", "agent", messages=[m]),
    }
    for fields in FOREIGN:
        for what, attempt in attempts.items():
            error = await untouched(store, InvalidError, attempt(holding(fields)), what)
            expect(block_for(fields) in (error.hint or ""), f"the hint of {what} shows the right block: {error.hint}")


@case("messages", "foreign-calls-stored", covers=("messages.history", "messages.list", "messages.get", "store.load"))
async def case_stored(kit: Kit) -> None:
    """A message that an older build stored with such a field is read as it is, and written after."""
    store = kit.store
    await commit_texts(store, "t", "hello")
    await store_as_before(store, holding({"tool_calls": CALLS}, id="m"), holding({"tool_call_id": "c1"}, id="n"))
    await commit_texts(store, "t", "and on")
    record = await store.messages.get("t", "m")
    equal(record.message, holding({"tool_calls": CALLS}, id="m"), "the record")
    equal((await store.messages.get("t", "n")).message, holding({"tool_call_id": "c1"}, id="n"), "the other record")
    views: list[list[MessageRecord]] = [
        list((await store.messages.list("t")).items),
        await store.messages.history("t"),
        await store.messages.external("t", limit=3),
        (await store.load("t")).messages,
    ]
    for records in views:
        expect(record in records, f"the record is shown: {records}")
    equal(await store.messages.unfinished_calls("t"), [], "the call is not listed")


@case("pending", "foreign-calls-stored", covers=("pending.list", "pending.freeze"))
async def case_pending(kit: Kit) -> None:
    """A pending message that an older build took in with such a field can still be frozen."""
    store = kit.store
    await store.threads.create("t")
    await store.pending.append("t", [holding({"tool_callz": CALLS}, id="m")])
    ((row,),) = await store.engine.view(store.scope, [Scan("pending")])
    text = row.body if isinstance(row.body, str) else row.body.decode()
    body = text.replace("tool_callz", "tool_calls").encode()
    await store.engine.transact(store.scope, [Put("pending", row.key, row.columns, body)])
    equal((await store.pending.list("t")).items[0].message, holding({"tool_calls": CALLS}, id="m"), "the queue")
    receipt = await store.pending.freeze("t")
    equal(receipt.message_ids, ["m"], "it is frozen")
    equal((await store.messages.get("t", "m")).message, holding({"tool_calls": CALLS}, id="m"), "the record")


@case("messages", "foreign-calls-from-json", covers=("store.commit",))
async def case_from_json(kit: Kit) -> None:
    """`Message.from_json` refuses what would be lost, and takes the empty fields that vendors always send."""
    plain = {"role": "assistant", "content": "One moment."}
    for fields in FOREIGN:
        try:
            message = Message.from_json({**plain, **fields})
        except InvalidError as error:
            expect(block_for(fields) in (error.hint or ""), f"the hint shows the right block: {error.hint}")
        else:
            raise CaseFailed(f"{fields} was accepted: {message}")
    empty = Message.from_json({**plain, "tool_calls": [], "function_call": None, "tool_call_id": None})
    (name,) = (await kit.store.commit("t", messages=[empty])).message_ids
    equal(dict((await kit.store.messages.get("t", name)).message.extra), dict(empty.extra), "what is empty is carried")
