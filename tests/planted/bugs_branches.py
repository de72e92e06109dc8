"""Planted bugs: forks with messages, checkout, variants, path lengths and buffered writing."""

from __future__ import annotations

from tests.planted.bug import Bug

BRANCH_BUGS = (
    Bug(
        "a fork's row does not know where its messages end",
        "stores/commit/plan.py",
        '"head_seq": Seq(LOG) if count else fork.seq,',
        '"head_seq": fork.seq,',
        ("case:branches/fork-messages@memory",),
    ),
    Bug(
        "a fork's key does not cover where it forks",
        "stores/commit/request.py",
        "target = request.branch if request.fork is None else request.fork.asked",
        "target = request.branch",
        ("case:branches/fork-key@memory",),
    ),
    Bug(
        "a checkout does not look again at what it switches to",
        "stores/branches.py",
        '{"deleted_at": None, "head": message_id}',
        '{"deleted_at": None}',
        ("case:branches/checkout-race@memory",),
    ),
    Bug(
        "variants forget the branch that goes on",
        "stores/variants.py",
        'if point is not None and branches[point[0]]["head_seq"] > point[1]:',
        'if point is None and branches[0]["head_seq"] > 0:',
        ("case:branches/variants*@memory",),
    ),
    Bug(
        "another branch that was written meanwhile is not noticed",
        "rules/branch_census.py",
        "if begun - ended == 1 else None",
        "if begun - ended >= 1 else None",
        ("case:branches/path-length-interleaved@memory",),
    ),
    Bug(
        "path lengths outlive their thread",
        "stores/context.py",
        "return known[1] if known is not None and known[0] == born else None",
        "return known[1] if known is not None else None",
        ("case:branches/path-length-reborn@memory",),
    ),
    Bug(
        "an open batch gets another key",
        "stores/buffer.py",
        "if self._batch is None and self._waiting:",
        "if self._waiting:",
        ("case:commit/buffered-lost-answer@memory",),
    ),
    Bug(
        "a failed flush in the background is forgotten",
        "stores/buffered.py",
        "self.buffer.fail(error)",
        "self.buffer.heal()",
        ("case:commit/buffered-failure@memory",),
    ),
)
