"""Views in the reference: paths, the three views of a thread, and each record as plain data.

A path is computed by walking from a head to its root, one parent at a time. The views are written from their rules, one
rule per line, with no regard for cost.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from perdure.testkit.reference.records import Branch, Document, Json, Message, Pending, Refusal, Run, Thread, World

_PREVIEW = 80


def path(thread: Thread, number: int) -> list[Message]:
    """The records from the root to the head of a branch."""
    return walk(thread.head(number))


def walk(last: Message | None) -> list[Message]:
    """The records from the root to a message."""
    messages: list[Message] = []
    current = last
    while current is not None:
        messages.append(current)
        current = current.parent
    return messages[::-1]


def history(line: list[Message], limit: int | None = None) -> list[Json]:
    """What the model should see of a path: folded and stripped; a limit then cuts, and cut calls take their results."""
    visible = _for_the_model(line)
    if limit is None or limit >= len(visible):
        return [record(message, body) for message, body in visible]
    tail = visible[len(visible) - limit :]
    return [
        record(message, body)
        for i, (message, body) in enumerate(tail)
        if answers(message) is None or any(answers(message) in calls(earlier) for _, earlier in tail[:i])
    ]


def _for_the_model(line: list[Message]) -> list[tuple[Message, Json]]:
    folded = fold(line)
    visible: list[tuple[Message, Json]] = []
    standing: dict[str, bool] = {}
    for i, message in enumerate(folded):
        call = answers(message)
        if call is not None and (message.visibility == "internal" or not standing.get(call, False)):
            continue
        if call is not None:
            standing[call] = False  # it has its result
        body = _without_open_calls(line, message, folded[i + 1 :], external=False)
        standing.update(dict.fromkeys(calls(message.body), False))
        if body is not None:
            standing.update(dict.fromkeys(calls(body), True))
            visible.append((message, body))
    return visible


def external(line: list[Message], limit: int | None = None) -> list[Json]:
    """What an outsider may see of a path: nothing that is not for all, no retracted or unanswered calls."""
    visible: list[Json] = []
    for i, message in enumerate(line):
        call = answers(message)
        if message.visibility != "all" or (call is not None and _result_is_withdrawn(line, message, call)):
            continue
        body = _without_open_calls(line, message, line[i + 1 :], external=True)
        if body is not None:
            visible.append(record(message, body))
    return visible if limit is None else visible[max(0, len(visible) - limit) :]


def positioned(line: list[Message], view: str) -> list[tuple[int, Json]]:
    """The records of a view, each with the seq at which it stands on the path."""
    if view == "raw":
        return [(m.seq, record(m)) for m in line]
    if view == "external":
        return [(data["seq"], data) for data in external(line)]
    return [(_stands_at(line, message), record(message, body)) for message, body in _for_the_model(line)]


def _stands_at(line: list[Message], message: Message) -> int:
    covered = [m.seq for m in line if _covers(message, m)] if "compaction" in message.body else []
    return covered[0] if covered else message.seq


def page_start(items: list[tuple[int, Json]], limit: int, *, whole_calls: bool) -> int:
    """Where the last page of a view begins; with whole calls, at the nearest start that separates nothing."""
    earliest = max(0, len(items) - limit)
    starts = [start for start in range(len(items)) if not whole_calls or _separates_nothing(items, start)]
    later = [start for start in starts if start >= earliest]
    return later[0] if later else max(starts, default=0)


def _separates_nothing(items: list[tuple[int, Json]], start: int) -> bool:
    if start and items[start - 1][0] == items[start][0]:
        return False
    asked: list[str] = []
    for _, data in items[start:]:
        body = data["message"]
        if body["role"] == "tool" and body["content"][0]["tool_use_id"] not in asked:
            return False
        asked += calls(body)
    return True


def _is_withdrawn(line: list[Message], asked: Message | None, call: str) -> bool:
    """Does a marker name this call after it was made (or anywhere, if the path does not show where)?"""
    markers = [m for m in line if m.visibility == "internal" and answers(m) == call]
    return any(asked is None or marker.seq > asked.seq for marker in markers)


def _result_is_withdrawn(line: list[Message], result: Message, call: str) -> bool:
    """A result goes with the call that it answers: the last one of that id before it."""
    asked = [m for m in line if m.seq < result.seq and call in calls(m.body)]
    return _is_withdrawn(line, asked[-1] if asked else None, call)


def unfinished(line: list[Message]) -> list[Json]:
    """Calls that no tool message of any visibility answers later on the path."""
    return [
        {"call": block, "message_id": m.id, "seq": m.seq, "run_id": m.body.get("run_id")}
        for i, m in enumerate(line)
        for block in m.body["content"]
        if block["type"] == "tool_use" and block["id"] not in [answers(later) for later in line[i + 1 :]]
    ]


def _without_open_calls(line: list[Message], message: Message, later: list[Message], *, external: bool) -> Json | None:
    """The message without calls that are withdrawn or unanswered; None if nothing is left of it."""
    content = message.body["content"]
    blocks = [
        block
        for block in content
        if block["type"] != "tool_use"
        or (not _is_withdrawn(line, message, block["id"]) and _is_answered(block["id"], later, external=external))
    ]
    if content and not blocks:
        return None
    return {**message.body, "content": blocks}


def _is_answered(call: str, later: list[Message], *, external: bool) -> bool:
    """A visible result comes before another call with the same id."""
    for message in later:
        if call in calls(message.body):
            return False
        visible = message.visibility == "all" if external else message.visibility != "internal"
        if answers(message) == call and visible:
            return True
    return False


def answers(message: Message) -> str | None:
    """The call that a tool message answers."""
    if message.body["role"] != "tool":
        return None
    return str(message.body["content"][0]["tool_use_id"])


def calls(body: Json) -> list[str]:
    """The ids of the calls in a message."""
    return [block["id"] for block in body["content"] if block["type"] == "tool_use"]


def fold(line: list[Message]) -> list[Message]:
    """Each summary instead of the records it covers; a summary inside another's interval is dropped."""
    marks = [m for m in line if "compaction" in m.body]
    winners = [mark for mark in marks if not any(_outdoes(other, mark) for other in marks if other is not mark)]
    placed: list[tuple[tuple[int, int, int], Message]] = []
    for message in line:
        if message in winners:
            start = _interval(message)[0]
            covered = [m.seq for m in line if _covers(message, m)]
            placed.append(((covered[0], 0, start) if covered else (message.seq, 1, start), message))
        elif message not in marks and not any(_covers(mark, message) for mark in winners):
            placed.append(((message.seq, 2, 0), message))
    return [message for _, message in sorted(placed, key=lambda pair: pair[0])]


def _interval(mark: Message) -> tuple[int, int]:
    return mark.body["compaction"]["from_seq"], mark.body["compaction"]["to_seq"]


def _outdoes(other: Message, mark: Message) -> bool:
    """The other's interval contains this one's; of equal intervals the newer wins."""
    if _interval(other) == _interval(mark):
        return other.seq > mark.seq
    return _interval(other)[0] <= _interval(mark)[0] and _interval(mark)[1] <= _interval(other)[1]


def _covers(mark: Message, message: Message) -> bool:
    low, high = _interval(mark)
    return low <= message.seq <= high


def record(message: Message, body: Json | None = None) -> Json:
    """A record as plain data."""
    return {
        "seq": message.seq,
        "branch": message.branch,
        "parent_id": None if message.parent is None else message.parent.id,
        "at": message.at,
        "message": message.body if body is None else body,
    }


def thread_data(world: World, thread: Thread) -> Json:
    """A thread as plain data."""
    names = "id title resource_id parent_thread_id custom created_at updated_at branch fence".split()
    names += "active_run_id open_run_id latest_run_id rev".split()
    fields = {name: getattr(thread, name) for name in names}
    return {**fields, "version": len(thread.log), "children": len(world.children(thread.id))}


def run_data(run: Run) -> Json:
    """A run as plain data."""
    return asdict(run)


def branch_data(thread: Thread, branch: Branch, *, with_preview: bool = True) -> Json:
    """A branch as plain data."""
    head = thread.head(branch.number)
    return {
        "id": branch.number,
        "name": branch.name,
        "parent": None if branch.fork is None else branch.fork.branch,
        "fork_seq": 0 if branch.fork is None else branch.fork.seq,
        "head": None if head is None else head.id,
        "head_seq": 0 if head is None else head.seq,
        "length": len(thread.written_on(branch.number)),
        "path_length": _depth(head),
        "created_at": branch.created_at,
        "current": branch.number == thread.branch,
        "preview": None if head is None or not with_preview else preview(head),
    }


def _depth(message: Message | None) -> int:
    """How many messages there are from a root to this one."""
    count = 0
    while message is not None:
        count, message = count + 1, message.parent
    return count


def preview(message: Message) -> str:
    """The beginning of a message's text, else of its calls, else of its result."""
    content = message.body["content"]
    text = _words(content)
    if not text and calls(message.body):
        text = "[" + ", ".join(block["name"] for block in content if block["type"] == "tool_use") + "]"
    elif not text and answers(message) is not None:
        text = _words(content[0].get("content", []))
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"


def _words(content: list[Json]) -> str:
    return " ".join("".join(block["text"] for block in content if block["type"] == "text").split())


def document_data(name: str, owner: str | None, document: Document) -> Json:
    """A state document as plain data."""
    return {"name": name, "run_id": owner, **asdict(document)}


def pending_data(position: int, entry: Pending) -> Json:
    """A pending message as plain data."""
    return {
        "id": entry.id,
        "position": position,
        "revision": entry.revision,
        "message": entry.body,
        "mode": entry.mode,
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
    }


def cut(thread: Thread, branch: int | str | None, upto: int | str | None) -> list[Message]:
    """A path, ended at a seq; or the path to a message, which outlives the branch it was written on."""
    if isinstance(upto, str):
        if branch is not None:
            raise Refusal("InvalidError")
        return walk(thread.require_message(upto))
    line = path(thread, thread.branch_number(branch))
    return line if upto is None else [m for m in line if m.seq <= upto]


def documents(thread: Thread, owner: str | None) -> dict[str, Any]:
    """The documents of a thread or of one of its runs, by name."""
    owned = {name: doc for (whose, name), doc in thread.state.items() if whose == owner}
    return {name: document_data(name, owner, owned[name]) for name in sorted(owned)}
