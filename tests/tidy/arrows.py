"""Which room may import which: the arrows of the architecture as data, and the check that reads them.

A *room* is a module or folder directly under `perdure`. Engines are rooms of their own, so that no engine can lean on
another. Imports are read from the syntax tree, `TYPE_CHECKING` blocks included: an arrow is an arrow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

FOUNDATION = frozenset({"errors", "limits"})
BELOW_STORES = FOUNDATION | {"clock", "failpoints", "ids", "kernel", "model"}
EVERYTHING_BUT_ENGINES = BELOW_STORES | {"perdure", "opening", "rules", "stores", "sync"}

# room -> rooms it may import besides itself. "perdure" is the package's own __init__.
ARROWS: dict[str, frozenset[str]] = {
    "limits": frozenset(),
    "errors": frozenset({"limits"}),
    "clock": FOUNDATION,
    "ids": FOUNDATION | {"clock"},
    "failpoints": FOUNDATION,
    "scratch": FOUNDATION,
    "model": FOUNDATION,
    "rules": FOUNDATION | {"model"},
    "formats": FOUNDATION | {"model"},
    "kernel": FOUNDATION | {"clock", "ids", "model"},
    "engines": FOUNDATION,
    "stores": BELOW_STORES | {"rules", "scratch"},
    "opening": BELOW_STORES | {"rules", "stores"},
    "perdure": BELOW_STORES | {"opening", "stores"},
    "workers": FOUNDATION | {"model", "opening", "rules", "stores"},
    "copy": BELOW_STORES | {"opening", "rules"},
    "sync": EVERYTHING_BUT_ENGINES,
    "integrations": EVERYTHING_BUT_ENGINES,
    "sse": FOUNDATION | {"model", "rules", "stores"},
    "otel": FOUNDATION | {"model", "perdure", "stores", "sync"},
    "audit": FOUNDATION | {"kernel", "model", "rules", "stores"},
    "testkit": EVERYTHING_BUT_ENGINES | {"audit"},
    "cli": EVERYTHING_BUT_ENGINES | {"audit", "copy"},
    "__main__": frozenset({"cli"}),
}
ENGINE_MAY_IMPORT = BELOW_STORES | {"engines.sql", "engines.shared"}
# The reference that the product is compared with shares no code with it.
REFERENCE = "perdure.testkit.reference"


@dataclass(frozen=True)
class Import:
    """One import of ours: its line, the dotted module, and whether it runs when the file is imported."""

    line: int
    module: str
    lazy: bool


def room_of(module: str) -> str:
    """The room of a dotted module name: `perdure.engines.sqlite.write.writer` -> `engines.sqlite`."""
    parts = module.split(".")[1:]
    if not parts:
        return "perdure"
    if parts[0] == "engines":
        return ".".join(parts[:2])
    return parts[0]


def module_name(path: PurePosixPath) -> str:
    """The dotted name of a file given relative to `src`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def own_imports(tree: ast.Module, path: PurePosixPath) -> Iterator[Import]:
    """Every import of `perdure` in the file, relative ones resolved."""
    package = path.parent.parts
    for node, lazy in _walk(tree, lazy=False):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = _from_names(node, package)
        else:
            continue
        for name in names:
            if name.split(".")[0] == "perdure":
                yield Import(node.lineno, name, lazy)


def forbidden_arrows(tree: ast.Module, path: PurePosixPath) -> Iterator[tuple[int, str]]:
    """Line and reason of each import that points the wrong way."""
    here = room_of(module_name(path))
    if here not in ARROWS and not here.startswith("engines."):
        yield 1, f"{here} is a new room: say in tests/tidy/arrows.py what it may import"
    reference = module_name(path).startswith(REFERENCE)
    for found in own_imports(tree, path):
        there = room_of(found.module)
        if reference:
            if not found.module.startswith(REFERENCE):
                yield found.line, f"the reference must not import {found.module}"
        elif here == "opening" and there.startswith("engines"):
            if not found.lazy:
                yield found.line, f"{found.module} must be imported where it is opened, not at import time"
        elif not _may_import(here, there):
            yield found.line, f"{here} must not import {there}"


def _may_import(here: str, there: str) -> bool:
    if here == there:
        return True
    if here.startswith("engines."):
        return there in ENGINE_MAY_IMPORT
    # The kit proves engines, so it may also hold one in its hands.
    if here == "testkit" and there.startswith("engines"):
        return True
    return there in ARROWS.get(here, frozenset())


def _from_names(node: ast.ImportFrom, package: tuple[str, ...]) -> list[str]:
    base = node.module.split(".") if node.module else []
    if node.level:
        base = [*package[: len(package) - node.level + 1], *base]
    # `from perdure import errors` names a module; `from perdure.errors import Conflict` names a thing inside one.
    if base == ["perdure", "engines"]:
        return [f"perdure.engines.{alias.name}" for alias in node.names]
    if base == ["perdure"]:
        return [f"perdure.{alias.name}" if alias.name in ARROWS else "perdure" for alias in node.names]
    return [".".join(base)]


def _walk(node: ast.AST, *, lazy: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, lazy
        inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _walk(child, lazy=inside)
