"""Consistency rules for a thread's tree: parents, fork points, heads, lengths, names, current branch, labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure import limits
from perdure.rules.soundness.stored import Facts, Line, Problem, Problems, StoredRow, ThreadRows


def tree_seqs(rows: ThreadRows) -> Iterator[int]:
    """The seqs that branches refer to."""
    yield from (row["fork_seq"] for row in rows.branches if row["fork_seq"])


def label_seqs(rows: ThreadRows) -> Iterator[int]:
    """The seqs that labels refer to."""
    yield from (row["seq"] for row in rows.labels)


def tree_problems(rows: ThreadRows, facts: Facts) -> Problems:
    """Check every branch row, and the hot row that counts them and names the current one."""
    head, record = rows.head, f"thread {rows.thread!r}"
    numbers = [int(row.key[1]) for row in rows.branches]
    known = set(numbers)
    if sorted(numbers) != list(range(len(numbers))) or head["branches"] != len(numbers):
        text = f"it counts {head['branches']} branches, the rows are {_listed(numbers)}"
        yield Problem("branch.number", record, text)
    if len(numbers) > limits.BRANCHES_PER_THREAD:
        yield Problem("branch.number", record, f"it has more than {limits.BRANCHES_PER_THREAD} branches")
    alive = {int(row.key[1]) for row in rows.branches if row["deleted_at"] is None}
    if head["branch"] not in alive:
        yield Problem("branch.current", record, f"its current branch {head['branch']} is not there")
    for number in sorted(facts.lines.keys() - known):
        text = f"{facts.lines[number].count} messages are on branch {number}, which is not there"
        yield Problem("log.branch", record, text)
    yield from _name_problems(rows.thread, rows.branches)
    for row in rows.branches:
        yield from _origin_problems(row, known, facts)
        yield from _line_problems(row, facts.lines.get(int(row.key[1]), Line()))


def _name_problems(thread: str, branches: Sequence[StoredRow]) -> Problems:
    owners: dict[str, int] = {}
    for row in branches:
        name, number = row["name"], int(row.key[1])
        record = f"branch {number} of thread {thread!r}"
        deleted = row["deleted_at"] is not None
        if deleted or name is None:
            if not deleted or name is not None:
                yield Problem("branch.name", record, f"its name is {name!r}, it is deleted: {deleted}")
            continue
        other = owners.setdefault(name, number)
        if other != number:
            yield Problem("branch.name", record, f"branch {other} is called {name!r} too")


def _origin_problems(row: StoredRow, numbers: set[int], facts: Facts) -> Problems:
    thread, number = row.key
    record = f"branch {number} of thread {thread!r}"
    parent, fork_seq, fork = row["parent"], row["fork_seq"], row["fork"]
    if parent is None:
        if fork_seq != 0 or fork is not None:
            yield Problem("branch.fork", record, f"it is a root with a fork point, {fork_seq} {fork!r}")
        return
    # A fork is made after its parent, so a parent that is not older would be the edge of a cycle.
    if parent not in numbers or parent >= int(number):
        yield Problem("branch.parent", record, f"its parent is branch {parent}")
        return
    message = facts.messages.get(fork_seq)
    if message is None or message.id != fork or message.branch != parent:
        there = "not there" if message is None else f"message {message.id!r} of branch {message.branch}"
        text = f"it forks from branch {parent} at {fork_seq} {fork!r}, which is {there}"
        yield Problem("branch.fork", record, text)


def _line_problems(row: StoredRow, line: Line) -> Problems:
    thread, number = row.key
    record = f"branch {number} of thread {thread!r}"
    if row["length"] != line.count:
        yield Problem("branch.length", record, f"it counts {row['length']} messages, the log has {line.count}")
    end = (line.last_id, line.last_seq) if line.count else (row["fork"], row["fork_seq"])
    written = (row["head"], row["head_seq"])
    if written != end:
        yield Problem("branch.head", record, f"its head is {written}, the newest message is {end}")
    if line.count and line.first_seq <= row["fork_seq"]:
        text = f"its message {line.first_seq} comes before its fork point {row['fork_seq']}"
        yield Problem("log.branch", record, text)


def label_problems(rows: ThreadRows, facts: Facts) -> Problems:
    """Every label is on the message it names."""
    for row in rows.labels:
        message = facts.messages.get(row["seq"])
        if message is None or message.id != row.key[1]:
            there = "nothing" if message is None else f"message {message.id!r}"
            record = f"the label on message {row.key[1]!r} of thread {rows.thread!r}"
            text = f"it reads {row['label']!r} and points to {row['seq']}, where {there} is"
            yield Problem("label", record, text)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (" …" if len(numbers) > 10 else "") or "none"
