"""Drawing trees: every message once, chains flat, the current line first, any depth, any width."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import pytest
from rich.cells import cell_len

from perdure import Branch, InvalidError, Tree, TreeNode
from perdure.cli.tree_drawing import draw
from perdure.model.tree import Row, rows


def branch(name: str, head_seq: int = 1) -> Branch:
    return Branch(
        thread_id="t",
        id=0,
        name=name,
        parent=None,
        fork_seq=0,
        head=None,
        head_seq=head_seq,
        length=0,
        path_length=0,
        created_at=0,
        current=True,
    )


def tree(parents: dict[int, int | None], current: AbstractSet[int] = frozenset(), text: str = "said") -> Tree:
    nodes = [
        TreeNode(seq=seq, id=f"m{seq}", parent=parent, branch=0, role="user", text=text, current=seq in current)
        for seq, parent in parents.items()
    ]
    return Tree(thread_id="t", nodes=nodes, branches=[branch("main")])


def lines(drawn: Tree, width: int = 80) -> list[str]:
    coloured = [line.plain for line in draw(drawn, width)]
    assert drawn.draw(width).splitlines() == coloured  # the command adds colour and nothing else
    return coloured


def depth(row: Row) -> int:
    return (0 if row.gutter is None else row.gutter.depth) + (row.last is not None)


def test_a_chain_stays_flat() -> None:
    assert lines(tree({1: None, 2: 1, 3: 2})) == [f"◦ #{n} user      said" for n in (1, 2, 3)]


def test_children_of_a_branch_point_are_indented() -> None:
    drawn = lines(tree({1: None, 2: 1, 3: 2, 4: 1, 5: 4}, current={1, 4, 5}))
    assert [line.removesuffix(" user      said") for line in drawn] == [
        "• #1",
        "├─ • #4",
        "│  • #5",
        "└─ ◦ #2",
        "   ◦ #3",
    ]


def test_several_roots_hang_side_by_side() -> None:
    drawn = lines(tree({1: None, 2: 1, 3: None}))
    assert [line.removesuffix(" user      said") for line in drawn] == ["├─ ◦ #1", "│  ◦ #2", "└─ ◦ #3"]


def _random_tree(chance: random.Random) -> dict[int, int | None]:
    size = chance.randrange(1, 60)
    return {n: chance.choice([None, *range(max(1, n - 6), n)]) for n in range(1, size)}


def _path(parents: dict[int, int | None], seq: int | None) -> Iterator[int]:
    while seq is not None:
        yield seq
        seq = parents[seq]


def test_random_trees_are_drawn_right(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        parents = _random_tree(chance)
        if not parents:
            continue
        current = set(_path(parents, chance.choice(list(parents))))
        found = list(rows(tree(parents, current).nodes))
        order = {row.node.seq: i for i, row in enumerate(found)}
        assert sorted(order) == sorted(parents)
        siblings = {parent: list(parents.values()).count(parent) for parent in parents.values()}
        for row in found:
            forks = sum(siblings[parents[seq]] > 1 for seq in _path(parents, row.node.seq))
            assert depth(row) == forks
            parent = parents[row.node.seq]
            assert parent is None or order[parent] < order[row.node.seq]
        first = [row.node.seq for row in found[: len(current)]]
        assert set(first) == current


def test_ten_thousand_forks_of_forks_are_drawn() -> None:
    parents: dict[int, int | None] = {1: None}
    for n in range(10_000):
        parents[2 * n + 2] = parents[2 * n + 3] = 2 * n + 1
    drawn = lines(tree(parents, set(range(1, 20_002, 2))), width=72)
    assert len(drawn) == 20_001
    assert max(map(cell_len, drawn)) <= 72
    assert "⋯9990 " in drawn[10_000]
    assert drawn[-1].startswith("└─ ◦ #2 ")


@pytest.mark.parametrize("width", [20, 21, 33, 80, 400])
def test_lines_never_exceed_the_width(width: int, seed: int) -> None:
    parents = _random_tree(random.Random(seed))
    for text in ("x" * 500, "京都" * 200, "e\u0301" * 300, "👩‍👩‍👧" * 100, ""):
        for line in lines(tree(parents, text=text), width):
            assert cell_len(line) <= width


def test_labels_and_heads_have_their_place() -> None:
    node = TreeNode(
        1, "m1", None, 0, "assistant", "long " * 50, label="keep [this]", current=True, heads=("main", "other")
    )
    (line,) = lines(Tree(thread_id="t", nodes=[node], branches=[branch("other")]), 60)
    assert line.startswith("• #1 assistant [keep [this]] long long")
    assert line.endswith("… ‹ main ◂ other")
    assert cell_len(line) == 60


def test_a_branch_without_messages_has_a_line() -> None:
    assert lines(Tree(thread_id="t", nodes=[], branches=[branch("main", 0)])) == ["• no messages yet ◂ main"]


def test_what_would_steer_a_terminal_is_escaped() -> None:
    node = TreeNode(1, "m1", None, 0, "us\x1ber", "said", label="a\u202eb", heads=("x\x07",))
    drawn = Tree(thread_id="t", nodes=[node], branches=[branch("main")]).draw()
    assert drawn == "◦ #1 us\\x1ber  [a\\u202eb] said ‹ x\\x07"


@pytest.mark.parametrize("width", [19, 10_001, 80.0, "80", None, True])
def test_a_width_that_cannot_be_drawn_is_refused(width: Any) -> None:
    with pytest.raises(InvalidError, match="from 20 to 10,000"):
        tree({1: None}).draw(width)


def test_a_tree_is_json() -> None:
    data = json.loads(json.dumps(tree({1: None, 2: 1}).to_json()))
    assert [node["parent"] for node in data["nodes"]] == [None, 1]
    assert data["branches"][0]["name"] == "main"
