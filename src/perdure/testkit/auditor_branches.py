"""Does a thread's tree hold together? Parents, fork points, heads, lengths, names, the current branch, and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.kernel.ops import Row
from perdure.testkit.auditor_findings import Audit
from perdure.testkit.auditor_log import Line, LogFacts


def branch_seqs(branches: Sequence[Row], labels: Sequence[Row]) -> Iterator[int]:
    """The seqs that branches and labels refer to."""
    yield from (row["fork_seq"] for row in branches if row["fork_seq"])
    yield from (row["seq"] for row in labels if row["seq"])


def check_branches(audit: Audit, head: Row, branches: Sequence[Row], facts: LogFacts) -> None:
    """Check every branch row of a thread, and the hot row that counts them and names the current one."""
    thread = str(head.key[0])
    numbers = [int(row.key[1]) for row in branches]
    record = f"thread {thread!r}"
    audit.expect(
        numbers == list(range(len(numbers))) and head["branches"] == len(numbers),
        "branch.number",
        record,
        f"it counts {head['branches']} branches, the rows are {_shown(numbers)}",
    )
    alive = {int(row.key[1]) for row in branches if row["deleted_at"] is None}
    audit.expect(head["branch"] in alive, "branch.current", record, f"its current branch {head['branch']} is not there")
    for number in sorted(facts.lines.keys() - set(numbers)):
        audit.report("log.branch", record, f"{facts.lines[number].count} messages stand on branch {number}, unknown")
    _check_names(audit, thread, branches)
    for row in branches:
        _check_origin(audit, row, set(numbers), facts)
        _check_line(audit, row, facts.lines.get(int(row.key[1]), Line()))


def _check_names(audit: Audit, thread: str, branches: Sequence[Row]) -> None:
    seen: dict[str, int] = {}
    for row in branches:
        name, number = row["name"], int(row.key[1])
        record = f"branch {number} of thread {thread!r}"
        deleted = row["deleted_at"] is not None
        if deleted or name is None:
            audit.expect(
                deleted and name is None, "branch.name", record, f"its name is {name!r}, it is deleted: {deleted}"
            )
            continue
        other = seen.setdefault(name, number)
        audit.expect(other == number, "branch.name", record, f"branch {other} is called {name!r} too")


def _check_origin(audit: Audit, row: Row, numbers: set[int], facts: LogFacts) -> None:
    thread, number = row.key
    record = f"branch {number} of thread {thread!r}"
    parent, fork_seq, fork = row["parent"], row["fork_seq"], row["fork"]
    if parent is None:
        audit.expect(
            fork_seq == 0 and fork is None, "branch.fork", record, f"it is a root with fork point {fork_seq} {fork!r}"
        )
        return
    # A fork is made after its parent, so a parent that is not older would be the edge of a cycle.
    if not audit.expect(
        parent in numbers and parent < number, "branch.parent", record, f"its parent is branch {parent}"
    ):
        return
    place = facts.places.get(fork_seq)
    right = place is not None and place.id == fork and place.branch == parent
    there = "not there" if place is None else f"message {place.id!r} of branch {place.branch}"
    audit.expect(
        right, "branch.fork", record, f"it forks from branch {parent} at {fork_seq} {fork!r}, which is {there}"
    )


def _check_line(audit: Audit, row: Row, line: Line) -> None:
    thread, number = row.key
    record = f"branch {number} of thread {thread!r}"
    audit.expect(
        row["length"] == line.count, "branch.length", record, f"it counts {row['length']}, the log has {line.count}"
    )
    end = (line.last_id, line.last_seq) if line.count else (row["fork"], row["fork_seq"])
    written = (row["head"], row["head_seq"])
    audit.expect(written == end, "branch.head", record, f"its head is {written}, the newest message is {end}")
    if line.count:
        audit.expect(
            line.first_seq > row["fork_seq"],
            "log.branch",
            record,
            f"its message {line.first_seq} stands before its fork point {row['fork_seq']}",
        )


def check_labels(audit: Audit, thread: str, labels: Sequence[Row], facts: LogFacts) -> None:
    """Every label is on the message it names."""
    for row in labels:
        place = facts.places.get(row["seq"] or 0)
        right = place is not None and place.id == row.key[1] and row["label"] is not None
        there = "nothing" if place is None else f"message {place.id!r}"
        record = f"the label on message {row.key[1]!r} of thread {thread!r}"
        audit.expect(right, "label", record, f"it reads {row['label']!r} and points to {row['seq']}, where {there} is")


def _shown(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (" …" if len(numbers) > 10 else "") or "none"
