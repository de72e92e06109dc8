"""Turns stored rows and log entries into the records that callers get.

Columns were checked when they were read (`stores.answer_checks`); bodies are decoded here. A damaged body is a
`CorruptError` that names the record; it is never skipped and never served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from perdure import limits
from perdure.errors import CorruptError, InvalidError
from perdure.kernel import codec
from perdure.kernel.joined import Values
from perdure.kernel.ops import LogEntry, Row
from perdure.model import message as message_model
from perdure.model import pending as pending_model
from perdure.model import run as run_model
from perdure.model import thread as thread_model
from perdure.model.branch import Branch, Label
from perdure.model.faithful import Faithful
from perdure.model.message import Message, MessageBody, MessageRecord
from perdure.model.pending import PendingMessage
from perdure.model.profile import Profile
from perdure.model.run import Run, RunBody, RunOutput
from perdure.model.run_snapshots import SeqRange
from perdure.model.state import StateDoc
from perdure.model.stored_json import Reader
from perdure.model.thread import Thread
from perdure.rules.soundness.runs import receipt_ids
from perdure.rules.soundness.stored import row_name

F = TypeVar("F", bound=Faithful)


class MessageEntry(NamedTuple):
    """A log entry of `messages` with its columns by name."""

    seq: int
    rev: int
    id: str
    role: str
    branch: int
    visibility: str
    run: str | None
    step: int | None
    at: int
    body: bytes | str


_UNREADABLE = (*codec.UNREADABLE, InvalidError)


def read_body(reader: Reader[F], body: bytes | str | None, where: str) -> F:
    """Decode a stored body, or say which record is damaged."""
    if body is None:
        raise CorruptError("its body is missing", where=where)
    try:
        codec.check_depth(body, where)
        return reader.read(body)
    except _UNREADABLE as error:
        raise CorruptError(f"the stored record cannot be read: {error}", where=where) from None


def thread_from(cold: Row, head: Row) -> Thread:
    """A thread from its two rows, whose columns are unpacked in the order `schema` declares them."""
    custom = {} if cold.body == b"{}" else _custom(cold.body, str(cold.key[0]))
    parent, resource, title, _, _, _ = cold.values
    version, branch, _, fence, children, _, created_at, updated_at, active, open_run, latest, _, _, _ = head.values
    return Thread(
        cold.key[0],  # type: ignore[arg-type]
        title,
        resource,
        parent,
        custom,
        created_at,
        updated_at,
        version,
        branch,
        children,
        fence,
        active,
        open_run,
        latest,
        cold.rev,
    )


def listed_threads(rows: Sequence[Values]) -> list[Thread]:
    """Threads as lists read them (`thread_lists.COLUMNS`): their fields, with the body in the place of `custom`."""
    make: Any = Thread  # a tuple has its fields in order, but a checker cannot count them
    return [make(*row[:4], {} if row[4] == b"{}" else _custom(row[4], row[0]), *row[5:]) for row in rows]


_decode_custom = thread_model.BODY_READER.decode


def _custom(body: bytes | str | None, thread_id: str) -> dict[str, Any]:
    """The metadata in the body of a cold row. A short body cannot nest deeply, so it is decoded at once."""
    if body is not None and len(body) <= codec.NEVER_DEEP:
        try:
            return _decode_custom(body).custom
        except _UNREADABLE:  # or with unknown fields, which is fine
            pass
    return read_body(thread_model.BODY_READER, body, f"thread {thread_id!r}").custom


def run_from(row: Row) -> Run:
    """Decode a row of `runs`."""
    body = read_body(run_model.BODY_READER, row.body, f"run {row.key[0]!r}")
    return run_record(str(row.key[0]), row, body, row.rev)


def run_record(run_id: str, columns: Row | Mapping[str, Any], body: RunBody, rev: int) -> Run:
    """A run from the columns and the body of its row."""
    if columns["input_first"] is not None:
        span = SeqRange(columns["input_first"], columns["input_last"])
        body = msgspec.structs.replace(
            body, input=msgspec.structs.replace(body.input or run_model.RunInput(), range=span)
        )
    return Run(
        id=run_id,
        thread_id=columns["thread"],
        input=body.input,
        output=run_output(columns["output_first"], columns["output_last"], columns["output_count"]),
        body=body,
        rev=rev,
        **{name: columns[name] for name in _RUN_FIELDS},
    )


_RUN_FIELDS = (
    *("agent_id", "status", "branch", "parent_run_id", "steps", "input_tokens", "output_tokens"),
    *("created_at", "started_at", "finished_at", "updated_at"),
)
"""Fields of `Run` that are columns of the same name."""


def run_output(first: int | None, last: int | None, count: int | None) -> RunOutput | None:
    """What a run produced, if anything."""
    return None if first is None or last is None or not count else RunOutput(count, first, last)


def receipt_from(row: Row) -> tuple[int | None, list[str]]:
    """What the commit of a key wrote: the version after it, if it wrote messages, and their ids."""
    version, ids = row["version"], receipt_ids(row.body)
    if ids is None or len(ids) != row["count"] or (version is None) != (not ids):
        raise CorruptError("it does not name the messages it counts", where=row_name("keys", row.key))
    return version, ids


def branch_from(row: Row, current: int, inherited: int, preview: str | None = None) -> Branch:
    """A branch from its row, and the number of messages that it inherits."""
    return Branch(
        thread_id=str(row.key[0]),
        id=int(row.key[1]),
        name=row["name"] or "",
        parent=row["parent"],
        fork_seq=row["fork_seq"],
        head=row["head"],
        head_seq=row["head_seq"],
        length=row["length"],
        path_length=inherited + row["length"],
        created_at=row["created_at"],
        current=row.key[1] == current,
        preview=preview,
    )


def label_from(row: Row) -> Label:
    """A label from its row."""
    return Label(str(row.key[1]), row["seq"], row["label"], row["at"])


def state_from(row: Row) -> StateDoc:
    """A state document from its row."""
    thread, run, name = (str(part) for part in row.key)
    where = f"state {name!r} of thread {thread!r}"
    if row.body is None:
        raise CorruptError("its body is missing", where=where)
    value = codec.decode(row.body, where)
    return StateDoc(
        thread_id=thread, run_id=run or None, name=name, value=value, schema=row["schema"], rev=row.rev, at=row["at"]
    )


def profile_from(row: Row) -> Profile:
    """A document of an owner from its row."""
    where = row_name("profiles", row.key)
    if row.body is None:
        raise CorruptError("its body is missing", where=where)
    owner, key = (str(part) for part in row.key)
    return Profile(owner=owner, key=key, value=codec.decode(row.body, where), rev=row.rev, **row.columns)


def pending_from(row: Row) -> PendingMessage:
    """A pending message from its row."""
    body = read_body(pending_model.BODY_READER, row.body, f"pending message {row.key[1]!r} of thread {row.key[0]!r}")
    return PendingMessage(
        thread_id=str(row.key[0]),
        id=str(row.key[1]),
        position=row["position"],
        revision=row["revision"],
        message=body.message,
        mode=body.mode,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def message_record(thread_id: str, entry: LogEntry, parent_id: str | None) -> MessageRecord:
    """A record from its log entry."""
    return message_records(thread_id, (entry,), (parent_id,))[0]


def path_records(thread_id: str, entries: Sequence[LogEntry], parent_id: str | None) -> list[MessageRecord]:
    """Records of consecutive entries of one path; each hangs under the one before it."""
    return message_records(thread_id, entries, [parent_id, *[entry[2] for entry in entries]])


def message_records(thread_id: str, entries: Sequence[LogEntry], parents: Sequence[str | None]) -> list[MessageRecord]:
    """Records from log entries and the ids of what each hangs under."""
    records: list[MessageRecord] = []
    decode, may_nest = message_model.BODY_READER.decode, message_model.may_nest
    never_deep, most = codec.NEVER_DEEP, limits.COMMIT_BYTES
    try:
        for entry, parent_id in zip(entries, parents, strict=False):
            seq, _, message_id, role, branch, visibility, run, step, at, body = entry
            try:
                stored = decode(body)
            except msgspec.ValidationError:
                stored = _read_more(body, thread_id, seq)
            if len(body) > never_deep and (len(body) > most or may_nest(stored)):
                codec.check_depth(body, f"message {seq} of thread {thread_id!r}")
            message = Message(
                role,
                stored.content,
                message_id,
                visibility,
                run,
                step,
                stored.sender_agent_id,
                stored.compaction,
                stored.metadata,
                stored.model,
                stored.stop_reason,
                stored.usage,
                stored.extra,
            )
            records.append(MessageRecord(thread_id, seq, branch, parent_id, message, at))
    except _UNREADABLE as error:
        where = f"message {entries[len(records)][0]} of thread {thread_id!r}"
        raise CorruptError(f"the stored record cannot be read: {error}", where=where) from None
    return records


def _read_more(body: bytes | str, thread_id: str, seq: int) -> MessageBody:
    """A body that holds more than this build knows."""
    if len(body) > limits.COMMIT_BYTES:
        codec.check_depth(body, f"message {seq} of thread {thread_id!r}")
    try:
        return message_model.BODY_READER.read_more(body)
    except _UNREADABLE:
        # That it nests too deeply is said before anything else.
        codec.check_depth(body, f"message {seq} of thread {thread_id!r}")
        raise


def message_entry(message: Message, branch: int, at: Any, body: bytes | None = None) -> tuple[Any, ...]:
    """The log entry of a message whose id and producer are settled; `body` is its JSON, if that is known."""
    return (
        message.id,
        message.role,
        branch,
        message.visibility,
        message.run_id,
        message.step,
        at,
        message_body(message) if body is None else body,
    )


def message_body(message: Message) -> bytes:
    """The stored JSON of a message: what is not a column of its entry."""
    return message_model.write_body(
        MessageBody(
            message.content,
            message.sender_agent_id,
            message.compaction,
            message.metadata,
            message.model,
            message.stop_reason,
            message.usage,
            message.extra,
        )
    )
