"""What validation refuses, and proof that it refuses nothing that a store sends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import permutations

import pytest
from tests.engines.toys import SCHEMA as TOYS

from perdure.errors import InvalidError
from perdure.kernel.ops import (
    ABSENT,
    NOW,
    PRESENT,
    Append,
    Applied,
    Check,
    Default,
    Delete,
    Get,
    Heads,
    Now,
    Op,
    Patch,
    Put,
    Read,
    ReadOp,
    Ref,
    Scan,
    Swap,
)
from perdure.kernel.schema import Table
from perdure.kernel.unique_handover import may_release, may_take
from perdure.kernel.validate import Kernel, check_ops, check_reads
from perdure.stores.schema import SCHEMA
from perdure.testkit.kit import registry, run_case
from perdure.testkit.providers import MemoryProvider

WRITING = ("commit", "runs", "state", "pending", "branches")
CASES = [case for case in registry().values() if case.capability in WRITING and not case.needs]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_operations_of_a_commit_pass_validation(case: object, monkeypatch: pytest.MonkeyPatch) -> None:
    async def checked(self: Kernel, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        check_ops(self.schema, ops)
        return await self.engine.transact(scope, ops, hints)

    monkeypatch.setattr(Kernel, "transact_unchecked", checked)
    asyncio.run(run_case(case, MemoryProvider()))


RELEASES: list[Op] = [
    Patch("items", ("a",), {"name": None}),
    Patch("items", ("a",), {"name": "free"}),
    Patch("items", ("a",), {"name": Swap("x", None)}, PRESENT),
    Put("items", ("a",), {}),
    Put("items", ("a",), {"name": "free"}),
    Put("items", ("a",), {"n": 1}, None, 7),
    Delete("items", ("a",)),
    Delete("items", ("a",), {"n": 1}),
]
TAKES: list[Op] = [
    Patch("items", ("b",), {"name": "x"}),
    Patch("items", ("b",), {"name": Swap("y", "x")}),
    Put("items", ("b",), {"name": "x"}),
    Put("items", ("c",), {"name": "x"}, None, ABSENT),
    Patch("items", ("c",), {}, default=Default({"name": "x"})),
]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("take", TAKES)
def test_a_unique_value_is_not_handed_over_in_a_transaction(release: Op, take: Op) -> None:
    bystander = Put("pairs", ("x", 1), {"v": "n"})
    for ops in permutations([release, bystander, take]):
        with pytest.raises(InvalidError, match="could exchange a value of the unique"):
            check_ops(TOYS, ops)
    check_ops(TOYS, [release, bystander])
    check_ops(TOYS, [take, bystander])


@pytest.mark.parametrize(
    "ops",
    [
        [Put("items", (key,), {"name": key}, None, ABSENT) for key in "abc"],
        [Delete("items", (key,)) for key in "abc"],
        [Patch("items", ("a",), {"name": "x"}), Patch("items", ("b",), {"n": 1})],
        [Patch("items", ("a",), {"name": "x"}), Check("items", ("b",), PRESENT)],
        [Patch("items", ("a",), {"name": "x"}), Put("items", ("b",), {"n": 1}, None, ABSENT)],
        [Delete("items", ("a",)), Put("items", ("b",), {"n": 1})],
        [Delete("items", ("a",)), Delete("items", ("b",), ABSENT)],
        [Delete("pairs", ("x", 1)), Put("pairs", ("y", 1), {"v": "n"})],
        [Delete("pairs", ("x", 1)), Put("items", ("x",), {"name": "n"})],
    ],
    ids=str,
)
def test_what_cannot_hand_a_value_over_is_accepted(ops: list[Op]) -> None:
    check_ops(TOYS, ops)


def test_a_group_with_a_key_column_is_judged_by_the_rows_that_share_it() -> None:
    with pytest.raises(InvalidError, match=r"unique \(a, v\)"):
        check_ops(TOYS, [Delete("pairs", ("x", 1)), Put("pairs", ("x", 2), {"v": "n"})])


def test_log_entries_carry_the_time_without_an_offset() -> None:
    check_ops(TOYS, [Append("notes", "t", [("a", "k", 0, NOW, b"{}")])])
    with pytest.raises(InvalidError, match="without an offset"):
        check_ops(TOYS, [Append("notes", "t", [("a", "k", 0, Now(3), b"{}")])])


@pytest.mark.parametrize("target", [Read("notes", "t"), Heads("notes", ["t"]), NOW])
def test_a_ref_points_at_rows(target: ReadOp) -> None:
    for read in (Get("items", Ref(0, ("id",))), Scan("pairs", eq=(Ref(0, ("a",)),))):
        with pytest.raises(InvalidError, match="a Ref names a Get or a Scan"):
            check_reads(TOYS, [target, read])


def test_a_ref_names_an_earlier_read_and_columns_of_its_table() -> None:
    check_reads(TOYS, [Scan("items"), Get("items", Ref(0, ("owner",)))])
    with pytest.raises(InvalidError, match="earlier read"):
        check_reads(TOYS, [Get("items", Ref(0, ("id",)))])
    with pytest.raises(InvalidError, match="which items does not have"):
        check_reads(TOYS, [Scan("items"), Get("items", Ref(0, ("a",)))])


SENT = {
    "take",  # a thread is created, or a branch forked
    "take, take",  # a thread with two branches is imported
    "release+take",  # a branch is renamed
    "release",  # a branch is deleted, or the last one of an erased thread
    "release, release",  # a thread with two branches is erased
}
"""Every shape in which stores change at most two rows of a unique group in one transaction. Longer ones only take
(imports) or only release (erasure)."""


def test_stores_send_no_handover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transaction of every case, on the memory engine: which of its operations touch a unique value?"""
    shapes: set[str] = set()

    def record(ops: Sequence[Op]) -> None:
        for table in SCHEMA.tables:
            for group in table.unique:
                roles = [role for op in ops if (role := _role(table, group, op))]
                if roles:
                    shapes.add(", ".join(roles))

    async def checked(self: Kernel, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        check_ops(self.schema, ops)
        record(ops)
        return await self.engine.transact(scope, ops, hints)

    monkeypatch.setattr(Kernel, "transact", checked)
    monkeypatch.setattr(Kernel, "transact_unchecked", checked)

    async def main() -> None:
        for case in registry().values():
            if case.reason_to_skip(MemoryProvider()) is None:
                await run_case(case, MemoryProvider())

    asyncio.run(main())
    assert {shape for shape in shapes if shape.count(",") <= 1} == SENT
    assert all(set(shape.split(", ")) in ({"take"}, {"release"}) for shape in shapes - SENT)


def _role(table: Table, group: tuple[str, ...], op: Op) -> str:
    if isinstance(op, (Append, Check)) or getattr(op, "table", "") != table.name:
        return ""
    columns = [name for name in group if name in table.value_types]
    change: Put | Patch | Delete = op  # type: ignore[assignment]
    return "+".join([name for name, is_so in (("release", may_release), ("take", may_take)) if is_so(change, columns)])
