"""The house rules as functions: each takes one file and yields what is wrong with it, line by line.

Rules are pure, so that the self-tests can feed each of them a bad snippet and see it bite. `test_tidy.py` walks the
real tree with the same functions. Import arrows live next door, in `arrows.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import TypeVar

from tests.tidy.arrows import forbidden_arrows

MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 70
REVIVING_MODULES = frozenset({"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"})
BANNED_CALLS = frozenset({"eval", "exec", "__import__"})
# What a pure decision has no business with: time, chance, processes, files, networks, threads.
IMPURE_MODULES = frozenset(
    {"asyncio", "concurrent", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets"}
    | {"select", "shutil", "signal", "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time"}
    | {"urllib", "uuid"}
)
# What the standard library reads differently from one Python to the next.
URL_PARSERS = frozenset({"urlsplit", "urlparse", "parse_qs", "parse_qsl"})
# What writes to a terminal without a `Screen` in between.
WRITERS = frozenset(
    {"print", "typer.echo", "typer.secho", "click.echo", "rich.print", "Console", "rich.console.Console", "os.write"}
)
# What a store is made of: the command line asks the store instead.
BELOW_THE_CALLS = frozenset(
    {"perdure.kernel.ops", "perdure.kernel.validate", "perdure.stores.context", "perdure.stores.cleanup"}
    | {"perdure.stores.branch_paths", "perdure.stores.records"}
)
IMPURE_BUILTINS = frozenset({"open", "print", "input"})
# Participles that stand for a noun: `found` may be a row, a list or an error. Name the thing.
VAGUE_NAMES = frozenset("found told given wanted shown kept said taken seen got res place places".split())
ENGINE_PARTS = frozenset(
    "__init__ engine open target connections errors schema migrate read write watch health".split()
)
"""The modules and folders of an engine: knowing one engine is knowing all."""
VAGUE_NAMES_ALLOWED: dict[str, dict[str, str]] = {
    "kernel/engine.py": {"wanted": "a field of Migration, which `perdure migrate --json` prints"},
}
"""File -> name -> why it may stay."""
# Character classes keep these patterns from finding themselves.
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:(?:home|Users)/\w|(?:root|work)/)")
# No package index has Perdure: an extra is installed from a clone ('.[cli]'), a hint names the packages themselves.
FROM_AN_INDEX = re.compile(r"install ['\"]?per[d]ure\b|\bper[d]ure\[[a-z]+")
SQL = re.compile(
    r"\s*(?:select\s[\s\S]+\sfrom\s|insert\s+(?:or\s+\w+\s+)?into\s|update\s+\S+\s+set\s|delete\s+from\s|replace\s+into\s"
    r"|create\s+(?:unique\s+|virtual\s+|temp\s+)*(?:table|index|view|trigger)\s|drop\s+(?:table|index|view)\s"
    r"|alter\s+table\s|pragma\s+\w+|(?-i:(?:BEGIN|SAVEPOINT|RELEASE|VACUUM|ATTACH)\b))",
    re.IGNORECASE,
)

Finding = tuple[int, str]
Node = TypeVar("Node", bound=ast.stmt | ast.expr)


@dataclass(frozen=True)
class File:
    """A file of the repository: its path from the root, and its text."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @property
    def is_python(self) -> bool:
        return self.path.suffix == ".py"

    @property
    def is_product(self) -> bool:
        return self.is_python and self.path.parts[0] == "src"

    def inside(self, room: str) -> bool:
        return self.is_product and self.path.parts[2:3] == (room,)


def arrows_point_down(file: File) -> Iterator[Finding]:
    if file.is_product:
        yield from forbidden_arrows(file.tree, file.path.relative_to("src"))


def modules_are_short(file: File) -> Iterator[Finding]:
    lines = len(file.text.splitlines())
    if file.is_python and lines > MAX_MODULE_LINES:
        yield 1, f"{lines} lines; a module has at most {MAX_MODULE_LINES}"


def functions_are_short(file: File) -> Iterator[Finding]:
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
        *_nodes(file, ast.FunctionDef),
        *_nodes(file, ast.AsyncFunctionDef),
    ]
    for node in functions:
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield node.lineno, f"{node.name} has {lines} lines; a function has at most {MAX_FUNCTION_LINES}"


def modules_introduce_themselves(file: File) -> Iterator[Finding]:
    if file.is_python and file.text.strip() and not ast.get_docstring(file.tree):
        yield 1, "a module opens with a docstring that says what it is"


def nothing_is_revived(file: File) -> Iterator[Finding]:
    if not file.is_product:
        return
    for line, module in _imported_modules(file):
        if module in REVIVING_MODULES:
            yield line, f"{module} brings stored bytes back to life as code; JSON in, JSON out"
    for line, name in _called_names(file):
        if name in BANNED_CALLS:
            yield line, f"{name}() runs text as code"


def checks_survive_optimisation(file: File) -> Iterator[Finding]:
    if file.is_product:
        for node in _nodes(file, ast.Assert):
            yield node.lineno, "assert vanishes under python -O; raise an error of perdure.errors"


def nothing_is_left_for_later(file: File) -> Iterator[Finding]:
    if file.path.suffix != ".md":
        yield from _matching_lines(file, UNFINISHED, "finish it, or open an issue")


def no_machine_is_named(file: File) -> Iterator[Finding]:
    yield from _matching_lines(file, MACHINE_PATH, "a path of one particular machine")


def no_index_is_promised(file: File) -> Iterator[Finding]:
    if file.path.name != "pyproject.toml":
        yield from _matching_lines(file, FROM_AN_INDEX, "no index has it; name the packages, or install from a clone")


def rules_are_pure(file: File) -> Iterator[Finding]:
    if not file.inside("rules"):
        return
    for kind in (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith):
        for node in _nodes(file, kind):
            yield node.lineno, "rules decide at once: nothing in them is asynchronous"
    for line, module in _imported_modules(file):
        if module in IMPURE_MODULES:
            yield line, f"rules take their facts as arguments and must not import {module}"
    for line, name in _called_names(file):
        if name in IMPURE_BUILTINS:
            yield line, f"rules do no input or output: {name}()"


def sql_stays_in_engines(file: File) -> Iterator[Finding]:
    # The scratch file of an import is not a store.
    if not file.is_product or file.inside("engines") or file.inside("scratch.py"):
        return
    docstrings = {id(node) for node in _docstrings(file.tree)}
    for line, text in _strings(file.tree, docstrings):
        if SQL.match(text):
            yield line, f"SQL belongs to engines/: {text.strip()[:40]!r}"


def server_urls_are_read_by_one_parser(file: File) -> Iterator[Finding]:
    if not file.is_product:
        return
    for origin in _nodes(file, ast.ImportFrom):
        for alias in origin.names:
            if origin.module == "urllib.parse" and alias.name in URL_PARSERS:
                yield origin.lineno, f"{alias.name} refuses some hosts on some Pythons; use perdure.kernel.url"
    for node in _nodes(file, ast.Attribute):
        if node.attr in URL_PARSERS:
            yield node.lineno, f"{node.attr} refuses some hosts on some Pythons; use perdure.kernel.url"


def one_place_writes_to_the_terminal(file: File) -> Iterator[Finding]:
    if not file.inside("cli") or file.path.name == "terminal.py":
        return
    for call in _nodes(file, ast.Call):
        name = ast.unparse(call.func)
        words = {keyword.arg: keyword.value for keyword in call.keywords}
        if name in WRITERS or name.endswith((".from_markup", ".from_ansi")):
            yield (
                call.lineno,
                f"{name}() bypasses the escaper; use CommandContext, console() or error_console()",
            )
        elif name.endswith((".write", ".writelines")) and "sys.std" in name and not _is_literal(call.args):
            yield call.lineno, f"{name}() writes text that nobody escaped; use console() or error_console()"
        elif name.endswith("TextColumn"):
            yield call.lineno, "a TextColumn reads markup; use bar_text()"
        elif "markup" in words and ast.unparse(words["markup"]) != "False":
            yield call.lineno, "no text is read as markup: it may hold a stranger's words"


def the_command_line_uses_public_calls(file: File) -> Iterator[Finding]:
    if not file.inside("cli"):
        return
    for node in _nodes(file, ast.Attribute):
        private = node.attr.startswith("_") and not node.attr.startswith("__")
        if private and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            yield node.lineno, f"{ast.unparse(node)} is private: use, or add, a public call"
    for origin in _nodes(file, ast.ImportFrom):
        for alias in origin.names:
            if alias.name.startswith("_"):
                yield origin.lineno, f"{alias.name} is private: use, or add, a public call"
        if origin.module in BELOW_THE_CALLS:
            yield origin.lineno, f"{origin.module} goes past the stores: use, or add, a public call"


def engines_have_one_shape(file: File) -> Iterator[Finding]:
    parts = file.path.parts
    if not file.inside("engines") or len(parts) < 5 or parts[3] in ("shared", "sql"):
        return
    part = parts[4].removesuffix(".py")
    if part not in ENGINE_PARTS:
        yield 1, f"an engine has {', '.join(sorted(ENGINE_PARTS))}, and not {part}"


def values_are_named_by_nouns(file: File) -> Iterator[Finding]:
    if not file.is_product:
        return
    room = "/".join(file.path.parts[2:])
    allowed = VAGUE_NAMES_ALLOWED.get(room, {})
    for line, name in _bound_names(file):
        bare = name.strip("_")
        if bare in VAGUE_NAMES and bare not in allowed:
            yield line, f"{file.path.parent}: {name} says nothing about the value: name the thing by its noun"


RULES: tuple[Callable[[File], Iterator[Finding]], ...] = (
    arrows_point_down,
    modules_are_short,
    functions_are_short,
    modules_introduce_themselves,
    nothing_is_revived,
    checks_survive_optimisation,
    nothing_is_left_for_later,
    no_machine_is_named,
    no_index_is_promised,
    rules_are_pure,
    sql_stays_in_engines,
    server_urls_are_read_by_one_parser,
    one_place_writes_to_the_terminal,
    the_command_line_uses_public_calls,
    engines_have_one_shape,
    values_are_named_by_nouns,
)


def _bound_names(file: File) -> Iterator[Finding]:
    """Every variable, parameter and attribute that the file binds or declares."""
    for name in _nodes(file, ast.Name):
        if isinstance(name.ctx, ast.Store):
            yield name.lineno, name.id
    for attribute in _nodes(file, ast.Attribute):
        if isinstance(attribute.ctx, ast.Store):
            yield attribute.lineno, attribute.attr
    if not file.is_python:
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.ClassDef):
            members = [m for m in node.body if isinstance(m, ast.FunctionDef) and m.decorator_list]
            yield from ((m.lineno, m.name) for m in members if "property" in ast.unparse(m.decorator_list[0]))
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name is not None:
            yield node.lineno, node.name


def _is_literal(arguments: list[ast.expr]) -> bool:
    return all(isinstance(argument, ast.Constant) for argument in arguments)


def _nodes(file: File, kind: type[Node]) -> Iterator[Node]:
    if file.is_python:
        yield from (node for node in ast.walk(file.tree) if isinstance(node, kind))


def _imported_modules(file: File) -> Iterator[tuple[int, str]]:
    """The top-level name of every absolute import, with its line."""
    for node in _nodes(file, ast.Import):
        yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
    for origin in _nodes(file, ast.ImportFrom):
        if origin.module and not origin.level:
            yield origin.lineno, origin.module.split(".")[0]


def _called_names(file: File) -> Iterator[tuple[int, str]]:
    for node in _nodes(file, ast.Call):
        if isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


def _matching_lines(file: File, pattern: re.Pattern[str], reason: str) -> Iterator[Finding]:
    for number, line in enumerate(file.text.splitlines(), start=1):
        if match := pattern.search(line):
            yield number, f"{match.group()!r}: {reason}"


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    """Every string that stands alone as a statement: docstrings, and the notes under attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _strings(node: ast.AST, skip: set[int]) -> Iterator[tuple[int, str]]:
    """String literals; an f-string counts as one, with a stand-in for each value."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "x" for part in child.values)
            yield child.lineno, "".join(map(str, parts))
        elif isinstance(child, ast.Constant):
            if isinstance(child.value, str) and id(child) not in skip:
                yield child.lineno, child.value
        else:
            yield from _strings(child, skip)
