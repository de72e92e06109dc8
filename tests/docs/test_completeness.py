"""The reference pages name everything there is, and nothing that is not: found by looking at the product itself."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import typing
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from tests.docs.pages import ROOT

import perdure
from perdure.stores.runs import StartOptions

API = (ROOT / "docs/api.md").read_text(encoding="utf-8")
FIELDS = (ROOT / "docs/records.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
NOUNS = ("threads", "messages", "branches", "pending", "runs", "state", "profiles")
ROW = re.compile(rf"^\| `((?:store|{'|'.join(NOUNS)})\.(\w+))\((.*?)\)`", re.MULTILINE)


def public_members(thing: Any) -> Iterator[str]:
    return (name for name in dir(type(thing)) if not name.startswith("_"))


def surface() -> dict[str, Any]:
    """Every public method of the store and of the stores hanging off it, by the name users call it by."""
    store = asyncio.run(_opened())
    found = {f"store.{name}": getattr(type(store), name) for name in public_members(store)}
    for noun in (name for name in vars(store) if not name.startswith("_")):
        part = getattr(store, noun)
        found |= {f"{noun}.{name}": getattr(type(part), name) for name in public_members(part)}
    return found


async def _opened() -> perdure.Store:
    async with perdure.open("memory://") as store:
        return store


SURFACE = surface()
METHODS = {name: member for name, member in SURFACE.items() if inspect.isfunction(member)}
ROWS = {name: arguments for name, _, arguments in ROW.findall(API)}
ERROR_NAMES = [name for name in perdure.__all__ if isinstance(getattr(perdure, name), type(Exception))]
ERROR_NAMES = [name for name in ERROR_NAMES if issubclass(getattr(perdure, name), perdure.PerdureError)]


def test_the_look_sees_the_product() -> None:
    assert {"store.commit", "threads.create", "messages.history", "runs.iter", "store.scope"} <= set(SURFACE)
    assert {name.split(".")[0] for name in SURFACE} == {"store", *NOUNS}


def test_every_method_has_a_row() -> None:
    assert sorted(set(METHODS) - set(ROWS)) == []


def test_every_row_is_a_method() -> None:
    assert sorted(set(ROWS) - set(METHODS)) == []


def test_every_property_is_mentioned() -> None:
    assert [name for name in SURFACE if name not in METHODS and f"`{name}`" not in API] == []


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_names_the_arguments(name: str) -> None:
    parameters = set()
    for parameter in inspect.signature(METHODS[name]).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            parameters |= {parameter.name} - {"self"}
        elif "**options" not in ROWS[name]:
            (options,) = typing.get_args(typing.get_type_hints(METHODS[name])[parameter.name])
            parameters |= set(options.__annotations__)
    written = set(re.findall(r"(?<!\*)\b[a-z_]+(?=\b(?!\"))", re.sub(r"=\S+", "", ROWS[name])))
    if "…" in ROWS[name]:
        assert written <= parameters
    else:
        assert written - {"options"} == parameters


def test_the_options_of_a_run_are_listed() -> None:
    (listed,) = re.findall(r"Options of `create` and `start`: ([^.]*)\.", API)
    assert set(re.findall(r"`(\w+)`", listed)) == set(StartOptions.__annotations__)


def test_every_public_name_is_in_the_reference() -> None:
    names = [name for name in perdure.__all__ if name not in ERROR_NAMES]
    mentioned = set(re.findall(r"`(?:perdure\.)?(\w+)", API))
    assert [name for name in names if name not in mentioned] == []


def test_every_error_has_its_part() -> None:
    headed = set(re.findall(r"^### (\w+)$", ERRORS, re.MULTILINE))
    assert headed == set(ERROR_NAMES) - {"PerdureError"}


def test_the_tree_of_errors_is_the_real_one() -> None:
    drawn = re.findall(r"^([│├└─ ]*)(\w+)(?: \(also a (\w+)\))?$", ERRORS, re.MULTILINE)
    parents = ["PerdureError"]
    for indent, name, also in drawn[drawn.index(("", "PerdureError", "")) + 1 :]:
        depth = len(indent) // 4
        parents[depth:] = [name]
        bases = [base.__name__ for base in getattr(perdure, name).__bases__]
        assert bases == [parents[depth - 1], *([also] if also else [])], name
    assert {name for _, name, _ in drawn} >= set(ERROR_NAMES)


RECORDS = [name for name in perdure.__all__ if isinstance(getattr(perdure, name), type(msgspec.Struct))]


def test_the_records_are_seen() -> None:
    assert {"Message", "Text", "Opaque", "Thread", "Run", "RunBody", "Receipt", "Page", "Health"} <= set(RECORDS)


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_has_a_table_of_its_fields(record: str) -> None:
    (table,) = re.findall(rf"^\| `{record}` \| \|\n\|---\|---\|\n((?:\|.*\n)+)", FIELDS, re.MULTILINE)
    listed = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    kind = getattr(perdure, record)
    properties = {name for name in public_members_of(kind) if isinstance(getattr(kind, name), property)}
    assert sorted(listed) == sorted({*kind.__struct_fields__, *properties})


def public_members_of(kind: type) -> Iterator[str]:
    return (name for name in dir(kind) if not name.startswith("_"))


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_documents_its_fields(record: str) -> None:
    kind = getattr(perdure, record)
    classes = [cls for cls in kind.__mro__ if cls.__module__.startswith("perdure.")]
    documented = {name for cls in classes for name in documented_fields(inspect.getsource(cls))}
    assert sorted(set(kind.__struct_fields__) - documented) == []


def documented_fields(source: str) -> Iterator[str]:
    """The fields of a class that a docstring follows."""
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for field, after in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_docstring(after):
            yield field.target.id


def is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_a_field_without_a_docstring_is_seen() -> None:
    source = "class Sample:\n    one: int\n    two: int = 2\n    'The second.'\n    three: int = 3\n"
    assert list(documented_fields(source)) == ["two"]
