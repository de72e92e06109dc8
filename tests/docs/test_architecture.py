"""The architecture page agrees with the code: its table of rooms, and every path that it mentions."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import PurePosixPath

from tests.docs.pages import ROOT
from tests.tidy.arrows import ARROWS, BELOW_STORES, ENGINE_MAY_IMPORT, module_name, own_imports, room_of

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
PRODUCT = ROOT / "src"
API = BELOW_STORES | {"rules", "stores", "opening", "sync", "perdure"}
ENGINES = frozenset(f"engines.{path.parent.name}" for path in PRODUCT.glob("perdure/engines/*/__init__.py"))
GROUPS = {"core": BELOW_STORES, "API": API, "the engines": ENGINES}
PATH = re.compile(r"`((?:src|examples|tests|stores|kernel|engines|rules)/[\w/.]+)`")


def names(cell: str) -> set[str]:
    return set(re.findall(r"`([\w.]+)`", cell))


def table() -> dict[str, set[str]]:
    """Room -> rooms that the page allows it to import."""
    rows = re.findall(r"^\| (`.*?) \| .*? \| (.*?) \|$", PAGE.partition("## The shape")[0], re.MULTILINE)
    return {
        room: names(cell).union(*(rooms for word, rooms in GROUPS.items() if word in cell))
        for cells, cell in rows
        for room in names(cells)
    }


def real_arrows() -> dict[str, set[str]]:
    arrows: dict[str, set[str]] = defaultdict(set)
    for file in PRODUCT.glob("perdure/**/*.py"):
        path = PurePosixPath(file.relative_to(PRODUCT))
        here = room_of(module_name(path))
        arrows[here] |= {room_of(item.module) for item in own_imports(ast.parse(file.read_text()), path)} - {here}
    return arrows


def test_the_table_names_every_room() -> None:
    assert set(table()) == set(real_arrows()) - {"engines", "__main__"}


def test_the_table_covers_every_import() -> None:
    allowed = table()
    drawn = {here: arrows for here, arrows in real_arrows().items() if here in allowed}
    lazily = {"opening": ENGINES}
    extra = {here: sorted(arrows - allowed[here] - lazily.get(here, set())) for here, arrows in drawn.items()}
    assert {here: rooms for here, rooms in extra.items() if rooms} == {}


def test_the_table_allows_nothing_that_the_arrows_forbid() -> None:
    for room, allowed in table().items():
        rule = ENGINE_MAY_IMPORT if room.startswith("engines.") else ARROWS[room]
        assert allowed - rule - (ENGINES if room == "testkit" else set()) == set(), room


def test_every_path_exists() -> None:
    mentioned = PATH.findall(PAGE)
    assert len(mentioned) > 20
    missing = [path for path in mentioned if not any((root / path).exists() for root in (ROOT, PRODUCT / "perdure"))]
    assert missing == []
