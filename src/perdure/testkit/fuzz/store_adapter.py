"""The product as the fuzzer calls it: plain arguments become records, records become plain data.

Revs, cursors and generated names are opaque: random in the product, counted in the reference. `Tokens` pairs them up as
they appear, one to one, so that a rev that changed when it should not, or did not when it should, is a difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from perdure.errors import PerdureError
from perdure.model.branch import Branch, Label, Variant
from perdure.model.careful import from_json
from perdure.model.faithful import to_json
from perdure.model.message import Message, MessageRecord, UnfinishedCall
from perdure.model.message_page import MessagePage
from perdure.model.page import Page
from perdure.model.pending import DeliveryMode, PendingMessage, PendingQueue
from perdure.model.profile import Profile
from perdure.model.receipt import Receipt, RunReceipt, Snapshot
from perdure.model.run import NewRun, Run, RunBody, RunChange
from perdure.model.run_snapshots import RunActivation, RunTrace
from perdure.model.state import REMOVE, Doc, StateDoc
from perdure.model.thread import NewThread, Thread
from perdure.model.tickets import Ticket
from perdure.stores.store import Store

Json = dict[str, Any]
_UNKNOWN_REV = 10**12
_KINDS = {"rev": int, "cursor": dict, "name": str}
_MADE_UP_NAME = re.compile(r"branch-\d+-[a-z0-9]{6}")


@dataclass(frozen=True)
class Token:
    """An opaque value of the product that has no partner in the reference yet."""

    kind: str
    value: Any


class Tokens:
    """Which rev, cursor or run record of the product matches which of the reference."""

    def __init__(self) -> None:
        self._ours: dict[tuple[str, Any], Any] = {}
        self._theirs: dict[tuple[str, str], Any] = {}
        self._runs: dict[str, Run] = {}
        self._unfiled: list[tuple[Run, Json]] = []

    def ours(self, kind: str, value: Any) -> Any:
        """The reference's partner of a product's token, or the token itself while it has none."""
        return self._ours.get((kind, value), Token(kind, value))

    def pair(self, token: Token, partner: Any) -> bool:
        """Make two tokens partners; False if that makes no sense, or if either has another partner already."""
        if type(partner) is not _KINDS[token.kind] or (isinstance(partner, str) and "~" not in partner):
            return False
        name = (token.kind, json.dumps(partner, sort_keys=True))
        if self._theirs.setdefault(name, token.value) != token.value:
            return False
        return bool(self._ours.setdefault((token.kind, token.value), partner) == partner)

    def knows(self, tick: int | None) -> bool:
        """Is the product's rev for this tick known?"""
        return not tick or ("rev", str(tick)) in self._theirs

    def rev(self, tick: int | None) -> int | None:
        """The product's rev for a tick of the reference; 0 and None mean the same in both."""
        if not tick:
            return tick
        return int(self._theirs.get(("rev", str(tick)), _UNKNOWN_REV + tick))

    def knows_name(self, name: Any) -> bool:
        """Is the product's name known for this branch? A rerun does not return the name that it makes up."""
        made_up = isinstance(name, str) and "~" in name
        return not made_up or ("name", json.dumps(name)) in self._theirs

    def name(self, name: int | str) -> int | str:
        """A branch as the product knows it: a name that the product generated replaces the reference's placeholder."""
        ours: int | str = self._theirs.get(("name", json.dumps(name)), name)
        return ours

    def cursor(self, cursor: Json | None) -> str | None:
        """The product's cursor; a `{"spoilt": cursor}` is that cursor with one character changed."""
        if cursor is None:
            return None
        known = cursor.get("spoilt", cursor)
        text = str(self._theirs["cursor", json.dumps(known, sort_keys=True)])
        return text if known is cursor else text[:-3] + ("A" if text[-3] != "A" else "B") + text[-2:]

    def knows_run(self, described: Json) -> bool:
        """Has the product returned this record? A rerun changes runs that it does not return."""
        return json.dumps(described, sort_keys=True) in self._runs

    def run(self, described: Json) -> Run:
        """The record that the product returned for a run as the reference described it."""
        return self._runs[json.dumps(described, sort_keys=True)]

    def note_run(self, run: Run, described: Json) -> Json:
        """Remember a record until its rev has a partner."""
        self._unfiled.append((run, described))
        return described

    def settle_runs(self) -> None:
        """After a comparison: file the records that came with it under the reference's description of them."""
        for run, described in self._unfiled:
            tick = self.ours("rev", run.rev)
            if not isinstance(tick, Token):
                # By all it says: a replayed receipt shows a run as it is now under the rev it had then.
                self._runs[json.dumps({**described, "rev": tick}, sort_keys=True)] = run
        self._unfiled.clear()


async def call(store: Store, tokens: Tokens, name: str, arguments: Json) -> tuple[Any, str | None]:
    """Call a public method of the product by name: (plain value, None) or (None, error class name)."""
    store_name, _, method = name.rpartition(".")
    holder = getattr(store, store_name) if store_name else store
    converted = {key: _argument(tokens, name, key, value) for key, value in arguments.items()}
    if "trace" in converted:
        converted["activation"] = converted.pop("trace")
    try:
        answer = await getattr(holder, method)(**converted)
    except PerdureError as error:
        return None, type(error).__name__
    return plain(tokens, answer), None


def _argument(tokens: Tokens, name: str, key: str, value: Any) -> Any:
    if value is None:
        return None
    if key == "messages":
        return [Message.from_json(message) for message in value]
    if key == "value" and name in ("state.put", "profiles.put"):
        return Doc(*value)
    convert = _CONVERT.get(key)
    return value if convert is None else convert(tokens, value)


def _documents(_: Tokens, state: Json) -> Json:
    return {name: REMOVE if doc is None else doc[0] if doc[1] == 1 else Doc(*doc) for name, doc in state.items()}


def _run(tokens: Tokens, run: Json) -> Run | RunChange | NewRun:
    if "new" in run:
        new = dict(run["new"])
        body = RunBody(activation=_activation(tokens, new.pop("trace", None)), metadata=new.pop("metadata", None))
        return NewRun(**new, body=body)
    record = tokens.run(run.get("same") or run["change"])
    if "same" in run:
        return record
    options = dict(run.get("options", {}))
    if "tickets" in options:
        options["tickets"] = [from_json(Ticket, ticket, "ticket") for ticket in options["tickets"]]
    change: RunChange = getattr(record, run["move"])(**options)
    return change


def _activation(_: Tokens, trace: Json | None) -> RunActivation | None:
    return None if trace is None else RunActivation(trace=RunTrace(**trace))


_CONVERT: dict[str, Callable[[Tokens, Any], Any]] = {
    "message": lambda _, value: Message.from_json(value),
    "mode": lambda _, value: DeliveryMode(**value),
    "run": _run,
    "trace": _activation,
    "thread": lambda _, value: NewThread(**value),
    "state": _documents,
    "run_state": _documents,
    "expect_state": lambda tokens, value: {name: tokens.rev(tick) for name, tick in value.items()},
    "if_rev": Tokens.rev,
    "branch": Tokens.name,
    "cursor": Tokens.cursor,
}


def plain(tokens: Tokens, value: Any) -> Any:
    """A record of the product, or any collection of them, as plain data."""
    if isinstance(value, list | tuple):
        return [plain(tokens, item) for item in value]
    if isinstance(value, Mapping):
        return {name: plain(tokens, item) for name, item in value.items()}
    describe = _DESCRIBE.get(type(value))
    return value if describe is None else describe(tokens, value)


def _fields(value: Any, *without: str) -> Json:
    return {name: item for name, item in msgspec.structs.asdict(value).items() if name not in without}


def _with_rev(tokens: Tokens, value: Thread | StateDoc | Profile) -> Json:
    fields = _fields(value, *(("thread_id",) if isinstance(value, StateDoc) else ()))
    return {**fields, "rev": tokens.ours("rev", value.rev)}


def _describe_run(tokens: Tokens, run: Run) -> Json:
    span, made = None if run.input is None else run.input.range, run.output
    trace = None if run.activation is None else run.activation.trace
    lineage = {name: getattr(trace, name) for name in ("parent_thread_id", "resource_id")} if trace else {}
    described = {
        **_fields(run, "body"),
        "rev": tokens.ours("rev", run.rev),
        "input": None if span is None else [span.from_seq, span.to_seq],
        "triggers": [] if run.input is None else run.input.trigger_message_ids,
        "output": None if made is None else [made.count, made.first, made.last],
        "waiting": to_json(run.waiting),
        "resumed_from": to_json(run.body.resumed_from),
        "outcome": to_json(run.outcome),
        "metadata": run.body.metadata,
        "trace": None if trace is None else {name: value for name, value in lineage.items() if value is not None},
    }
    return tokens.note_run(run, described)


def _describe_record(_: Tokens, record: MessageRecord) -> Json:
    return {
        "seq": record.seq,
        "branch": record.branch,
        "parent_id": record.parent_id,
        "at": record.at,
        "message": record.message.to_json(),
    }


def _describe_pending(_: Tokens, entry: PendingMessage) -> Json:
    mode = _fields(entry.mode, "extra")
    if mode["target_run_id"] is None:
        del mode["target_run_id"]
    return {**_fields(entry, "thread_id"), "message": entry.message.to_json(), "mode": mode}


def _describe_page(tokens: Tokens, page: Page[Any]) -> Json:
    more = None if page.next_cursor is None else tokens.ours("cursor", page.next_cursor)
    return {"items": plain(tokens, page.items), "next_cursor": more}


def _describe_message_page(tokens: Tokens, page: MessagePage) -> Json:
    variants = {message_id: plain(tokens, group) for message_id, group in page.variants.items()}
    following = plain(tokens, page.next_variants)
    return {**_fields(page), **_describe_page(tokens, page), "variants": variants, "next_variants": following}


def _describe_receipt(tokens: Tokens, receipt: Receipt) -> Json:
    return {**_fields(receipt, "durable"), "run": plain(tokens, receipt.run)}


def _describe_parts(tokens: Tokens, value: Snapshot | PendingQueue) -> Json:
    return {name: plain(tokens, item) for name, item in _fields(value).items()}


def _describe_branch(tokens: Tokens, branch: Branch) -> Json:
    made_up = _MADE_UP_NAME.fullmatch(branch.name) is not None
    return {**_fields(branch, "thread_id"), "name": tokens.ours("name", branch.name) if made_up else branch.name}


def _describe_call(_: Tokens, unfinished: UnfinishedCall) -> Json:
    return {**_fields(unfinished), "call": to_json(unfinished.call)}


_DESCRIBE: dict[type, Callable[[Tokens, Any], Json]] = {
    Thread: _with_rev,
    StateDoc: _with_rev,
    Profile: _with_rev,
    Run: _describe_run,
    MessageRecord: _describe_record,
    PendingMessage: _describe_pending,
    PendingQueue: _describe_parts,
    Snapshot: _describe_parts,
    Receipt: _describe_receipt,
    RunReceipt: _describe_receipt,
    Branch: _describe_branch,
    Label: lambda _, label: _fields(label),
    Variant: lambda _, variant: {**_fields(variant, "branch"), "leads": variant.branch is not None},
    UnfinishedCall: _describe_call,
    Page: _describe_page,
    MessagePage: _describe_message_page,
}


def same(tokens: Tokens, expected: Any, actual: Any) -> bool:
    """Equal, with tokens that meet for the first time becoming partners."""
    if isinstance(actual, Token):
        return tokens.pair(actual, expected)
    if isinstance(expected, dict) and isinstance(actual, dict):
        pairs = cast("dict[str, Any]", actual)
        return expected.keys() == pairs.keys() and all(same(tokens, v, pairs[k]) for k, v in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(lambda a, b: same(tokens, a, b), expected, actual))
    return type(expected) is type(actual) and bool(expected == actual)


def first_difference(expected: Any, actual: Any, where: str = "") -> tuple[str, Any, Any]:
    """Where two answers differ, and the value of each there."""
    if isinstance(expected, dict) and isinstance(actual, dict) and expected.keys() == actual.keys():
        pairs = [(f"{where}.{name}", expected[name], actual[name]) for name in expected]
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(expected, actual, strict=True))]
    else:
        return where, expected, actual
    unlike = [pair for pair in pairs if pair[1] != pair[2]]
    settled = [pair for pair in unlike if not isinstance(pair[2], Token)]
    return first_difference(settled[0][1], settled[0][2], settled[0][0]) if settled else (where, expected, actual)
