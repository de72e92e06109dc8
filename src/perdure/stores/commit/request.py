"""A commit as data: `Request` is what the caller asked for, `Prepared` the same after its shape was checked.

Checking needs no I/O. It mints ids, names the run that produced each message, encodes documents, and gives a keyed
commit the fingerprint that identifies a retry. `plan` turns the result into operations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.ids import new_id
from perdure.kernel import codec
from perdure.model.faithful import Faithful, as_dict, carries_unknown, fields_of, to_json
from perdure.model.message import ALL, Message
from perdure.model.run import NewRun, Outcome, Run, RunBody, RunChange, Takeovers
from perdure.model.state import REMOVE, Doc
from perdure.model.stored_json import Reader
from perdure.model.thread import NewThread
from perdure.model.tickets import Waiting
from perdure.rules import checks, message_shape, run_machine
from perdure.stores.commit.run_change import RunEffect, effect_of
from perdure.stores.records import message_body
from perdure.stores.thread_creation import Birth, birth_of

_sorted = msgspec.json.Encoder(order="sorted")
_MAPPED = {"state": "documents", "run_state": "documents", "expect_state": "revs"}
_READERS: dict[type[Faithful], Reader[Any]] = {kind: Reader(kind) for kind in (RunBody, Waiting, Outcome, Takeovers)}


class Fork(msgspec.Struct, frozen=True, gc=False):
    """A branch that a commit makes and writes to: `at` and `before` as in `branches.fork`, both None for a root.

    With `rerun`, it hangs where the turn of this run begins, or its input if the commit brings messages. `replaces`
    cancels the open runs of the thread with it.
    """

    at: str | None = None
    before: str | None = None
    name: str | None = None
    switch: bool = False
    rerun: str | None = None
    replaces: bool = False

    @property
    def asked(self) -> list[Any]:
        """What a repetition under the same key must ask for again; forks that rerun nothing keep the form that older
        releases stored."""
        where = [self.at, self.before, self.name, self.switch]
        return where if self.rerun is None else [*where, self.rerun]


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A commit as the caller asked for it; the first fields are the parameters of `Store.commit`.

    `inputs` marks the messages as what the run was given, not what it produced. `asked` replaces the messages in a
    keyed commit's fingerprint where the caller asked for something else (a freeze). `stored` messages come from the
    queue: they were checked when they were appended to it. `if_idle` refuses while a run of the thread is running or
    waiting. `resource_id` is the resource that the thread must belong to. With a `fork`, the messages go to a branch
    that it makes.
    """

    thread_id: str
    messages: Sequence[Message] = ()
    run: Run | RunChange | NewRun | None = None
    branch: int | str | None = None
    expect: int | None = None
    expect_head: str | None = None
    fence: int | None = None
    state: Mapping[str, Any] | None = None
    run_state: Mapping[str, Any] | None = None
    expect_state: Mapping[str, int | None] | None = None
    key: str | None = None
    thread: NewThread | None = None
    resource_id: str | None = None
    if_idle: bool = False
    inputs: bool = False
    asked: str | None = None
    stored: bool = False
    fork: Fork | None = None


class Prepared(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A commit whose shape is right, with ids minted, and messages and documents encoded.

    `brought_ids` are the message ids that the caller chose: those that a pending message may have. `effect` is what a
    change does to its run. Documents are sorted by owner and name.
    """

    thread_id: str
    messages: list[Message]
    bodies: list[bytes]
    message_ids: list[str]
    brought_ids: list[str]
    run: Run | RunChange | NewRun | None
    run_id: str | None
    effect: RunEffect | None
    branch: int | None
    branch_name: str | None
    expect: int | None
    expect_head: str | None
    fence: int | None
    state: list[tuple[str, str, Any]]
    removes_state: bool
    expect_state: Mapping[str, int | None]
    key: str | None
    digest: str | None
    inputs: bool
    forks: bool
    birth: Birth | None
    resource: str | None
    if_idle: bool
    has_summaries: bool

    @property
    def may_create(self) -> bool:
        """May this commit bring a missing thread into being?"""
        existing = isinstance(self.run, (Run, RunChange)) or self.fence is not None or self.forks
        guarded = any(rev is not None for rev in self.expect_state.values())
        return not existing and not guarded and self.expect in (None, 0) and self.branch in (None, 0)


def prepare(request: Request) -> Prepared:
    """Check the shape of a commit, mint its ids and encode its documents; raises `InvalidError`."""
    thread_id, messages, run, branch = request.thread_id, request.messages, request.run, request.branch
    checks.check_id(thread_id, "thread id")
    message_shape.check_messages(messages, stored=request.stored)
    run_id = None if run is None else _check_run(run, thread_id)
    number, branch_name = (None, branch) if isinstance(branch, str) else (branch, None)
    if branch_name is not None:
        checks.check_id(branch_name, "branch name", most=limits.NAME_BYTES)
    if request.expect is not None:
        checks.check_count(request.expect, "expect")
    if request.fence is not None:
        checks.check_count(request.fence, "fence")
    if number is not None:
        checks.check_count(number, "branch")
    if request.expect_head is not None:
        checks.check_id(request.expect_head, "expect_head")
    if request.key is not None:
        checks.check_id(request.key, "key")
    if type(request.if_idle) is not bool:
        checks.check_flag(request.if_idle, "if_idle")
    documents: list[tuple[str, str, Any]] = []
    guards: Mapping[str, int | None] = {}
    if not (request.state is None and request.run_state is None and request.expect_state is None):
        documents, guards = _state(request, run_id)
    inputs = request.inputs
    minted = [_with_ids(message, run, run_id, inputs) for message in messages]
    return Prepared(
        thread_id=thread_id,
        messages=minted,
        bodies=encode_messages(minted) if messages else [],
        message_ids=[message.id or "" for message in minted],
        brought_ids=[] if request.stored or not messages else [m.id for m in messages if m.id is not None],
        run=run,
        run_id=run_id,
        effect=effect_of(run, minted, inputs=inputs) if isinstance(run, RunChange) else None,
        branch=number,
        branch_name=branch_name,
        expect=request.expect,
        expect_head=request.expect_head,
        fence=request.fence,
        state=documents,
        removes_state=bool(documents) and REMOVE in [value for _, _, value in documents],
        expect_state=guards,
        key=request.key,
        digest=None if request.key is None else _fingerprint(request, documents),
        inputs=inputs,
        forks=request.fork is not None,
        birth=None if request.thread is None else _birth(request),
        resource=None if request.resource_id is None else _resource(request),
        if_idle=request.if_idle,
        has_summaries=bool([message for message in minted if message.compaction is not None]),
    )


def _state(request: Request, run_id: str | None) -> tuple[list[tuple[str, str, Any]], Mapping[str, int | None]]:
    """The documents of the thread and of the run, and the revs that are expected of them."""
    docs, run_docs = _mapping(request.state, "state"), _mapping(request.run_state, "run_state")
    revs = _mapping(request.expect_state, "expect_state")
    if run_docs and run_id is None:
        raise InvalidError("run_state needs the run it belongs to", hint="pass run=")
    documents = _documents(docs, "") + _documents(run_docs, run_id or "")
    return documents, _check_guards(revs, docs) if revs else {}


def encode_messages(messages: Sequence[Message]) -> list[bytes]:
    """The stored JSON of messages; raises `InvalidError` if no commit could carry them."""
    bodies = [message_body(message) for message in messages]
    total = 0
    for i, body in enumerate(bodies):
        total += len(body)
        if len(body) > limits.MESSAGE_BYTES:
            raise InvalidError(f"{len(body):,} bytes, the limit is {limits.MESSAGE_BYTES:,}", path=f"messages[{i}]")
    if total > limits.COMMIT_BYTES:
        raise InvalidError(f"{total:,} bytes of messages in one commit, the limit is {limits.COMMIT_BYTES:,}")
    return bodies


def _birth(request: Request) -> Birth:
    """What the thread is created with, if this commit creates it."""
    if not isinstance(request.thread, NewThread):
        raise InvalidError(
            f"thread must be a NewThread, not {short_repr(request.thread)}", hint="pass NewThread(title=…)"
        )
    return birth_of(request.thread_id, request.thread)


def _resource(request: Request) -> str | None:
    """The resource that the thread must belong to; what creates the thread may name no other."""
    resource = checks.check_owner(request.resource_id)
    if request.thread is not None and checks.lineage(request.thread.resource_id, "resource_id") not in (None, resource):
        raise InvalidError("thread.resource_id and resource_id differ", hint="leave out the one in NewThread")
    return resource


def _check_run(run: Any, thread_id: str) -> str:
    if isinstance(run, NewRun):
        _check_record(run.body, RunBody, "run")
        run_machine.check_new(run, thread_id)
        return run.id or new_id()
    if not isinstance(run, (Run, RunChange)):
        hint = "pass a run, run.step(…), run.wait(…), run.finish(…), run.fail(…) or NewRun(agent_id=…)"
        raise InvalidError(f"run must be a Run, RunChange or NewRun, not a {type(run).__name__}", hint=hint)
    record = run.run if isinstance(run, RunChange) else run
    if type(record) is not Run:
        raise InvalidError(f"run.run must be a Run, not {short_repr(record)}")
    run_machine.check_read(record, thread_id)
    if isinstance(run, RunChange):
        if run.waiting is not None:
            _check_record(run.waiting, Waiting, "run.waiting")
        if run.outcome is not None:
            _check_record(run.outcome, Outcome, "run.outcome")
        if run.takeovers is not None:
            _check_record(run.takeovers, Takeovers, "run.takeovers")
        run_machine.check_change(run)
    return record.id


def _check_record(record: Any, kind: type[Faithful], path: str) -> None:
    """Refuse what could not be read back as it was given: a stored run must never be unreadable."""
    if type(record) is not kind:
        raise InvalidError(f"must be a {kind.__name__}, not {short_repr(record)}", path=path)
    fields_of(getattr(record, "extra", None), path)
    try:
        plain = to_json(record)
    except RecursionError:
        raise InvalidError(f"nested deeper than {limits.JSON_DEPTH} levels", path=path) from None
    data = codec.encode_checked(plain, path, limits.RUN_BYTES)
    try:
        same = _READERS[kind].read(data) == record
    except (msgspec.MsgspecError, InvalidError) as error:
        raise InvalidError(str(error), path=path) from None
    if not same:
        raise InvalidError("extra repeats a declared field", path=path)


def _with_ids(message: Message, run: Any, run_id: str | None, inputs: bool) -> Message:
    """Mint what is missing: the id, and the producer."""
    producer, step = message.run_id, message.step
    if run_id is not None and not inputs and producer is None:
        producer = run_id
        if step is None and not isinstance(run, NewRun):
            step = run.run.steps if isinstance(run, RunChange) else run.steps
    if message.id is not None and producer == message.run_id and step == message.step:
        return message
    return msgspec.structs.replace(message, id=message.id or new_id(), run_id=producer, step=step)


def _mapping(value: Any, what: str) -> dict[Any, Any]:
    if value is None:
        return {}
    plain = as_dict(value)
    if plain is None:
        raise InvalidError(f"{what} must be a mapping of names to {_MAPPED[what]}, not {type(value).__name__}")
    return plain


def _documents(values: dict[Any, Any], owner: str) -> list[tuple[str, str, Any]]:
    documents = []
    for name, value in values.items():
        checks.check_id(name, "state name", most=limits.NAME_BYTES)
        if value is REMOVE:
            documents.append((owner, name, REMOVE))
            continue
        doc = value if isinstance(value, Doc) else Doc(value)
        checks.check_count(doc.schema, f"schema of state {name!r}", least=1)
        body = codec.encode_checked(doc.value, f"state.{name}", limits.STATE_BYTES)
        documents.append((owner, name, (doc.schema, body)))
    if len(documents) > 1:
        documents.sort(key=itemgetter(1))
    return documents


def _check_guards(guards: dict[Any, Any], state: dict[Any, Any]) -> Mapping[str, int | None]:
    for name, rev in guards.items():
        checks.check_id(name, "state name", most=limits.NAME_BYTES)
        if rev is not None:
            checks.check_rev(rev, f"expect_state[{name!r}]")
        if rev is None and (name not in state or state[name] is REMOVE):
            raise InvalidError(f"expect_state[{name!r}] is None, so this commit must write that document")
    return guards


def _fingerprint(request: Request, documents: list[Any]) -> str:
    """What a keyed commit asks for, without minted ids and without times; a branch as the caller named it."""
    run = request.run
    move: Any = None
    if isinstance(run, NewRun):
        move = ["new", run.agent_id, run.id, run.status, run.parent_run_id, canonical(run.body)]
    elif isinstance(run, RunChange):
        counters = [run.steps, run.input_tokens, run.output_tokens]
        parts = [canonical(part) if part is not None else None for part in (run.waiting, run.outcome)]
        move = ["change", run.id, run.status, counters, parts, run.dispatch_id]
        if run.takeovers is not None:
            move.append(canonical(run.takeovers))
    elif run is not None:
        move = ["same", run.id]
    # The run is named above, unless its id is minted; a document is only marked as the run's or the thread's.
    docs = sorted([bool(owner), name, _document(value)] for owner, name, value in documents)
    content = request.asked if request.asked is not None else [canonical(message) for message in request.messages]
    target = request.branch if request.fork is None else request.fork.asked
    asked: list[Any] = [content, move, docs, target]
    if request.thread is not None:
        # Only then: commits that say nothing of the thread keep the fingerprints that older releases stored.
        asked.append(_sorted.encode(request.thread).decode())
    return hashlib.sha256(codec.encode(asked)).hexdigest()[:32]


def canonical(record: Faithful) -> str:
    """JSON text of a record that does not depend on the order in which objects were filled."""
    if isinstance(record, Message) and record.visibility == ALL:
        # The encoder leaves out what *is* the default: a text that equals it, as JSON brings one, would be written.
        record = msgspec.structs.replace(record, visibility=ALL)
    return _sorted.encode(to_json(record) if carries_unknown(record) else record).decode()


def _document(value: Any) -> Any:
    return None if value is REMOVE else [value[0], _sorted.encode(codec.decode(value[1], "state")).decode()]
