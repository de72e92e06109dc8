"""Write `src/perdure/sync/stores/` from the async stores: the same methods, the same types, blocking.

Only async code is written by hand. Each `async def` becomes a plain method that drives the same coroutine, an async
iterator becomes an iterator, an object with a blocking twin is wrapped in it, and everything else passes through. A
test fails when a file is not what this tool would write.

    tools/make_sync.py            write the files
    tools/make_sync.py --check    only report whether they are up to date
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORES = ROOT / "src" / "perdure" / "stores"
TARGET = ROOT / "src" / "perdure" / "sync" / "stores"
CLASSES = ("threads", "messages", "branches", "pending", "runs", "state", "profiles")
READS = {"find", "get", "list", "children", "validate_parent", "range", "history", "external", "unfinished_calls"}
READS |= {"current", "labels", "threads", "latest", "load", "health", "variants", "tree", "path", "page"}
READS |= {"with_prefix", "count"}
"""Methods that write nothing. Any other counts as a write, whose outcome can be unknown."""
TWINS = {
    "BufferedWriter": "perdure.sync.buffered",
    "Follower": "perdure.sync.follower",
    "ThreadHandle": "perdure.sync.stores.thread_handle",
}
"""Classes that async methods return, whose blocking twin of the same name is in this module."""
WRAPPED = {"BufferedWriter": ".buffer"}
"""What of such an object its twin wraps, if not the object itself."""
WIDTH = 118

HEAD = '''"""{what}, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.{module}`: edit that instead.
"""

from __future__ import annotations

'''

STORE = '''class Store(Face[async_store.Store], of=async_store.Store):
    """`perdure.Store`, blocking. Made by `perdure.sync.open`."""

    def __init__(self, inner: async_store.Store, driver: Driver, *, owner: bool = True) -> None:
        super().__init__(inner, driver)
        self._owner = owner
{fields}

{methods}
    def __repr__(self) -> str:
        return repr(self._inner).replace("perdure.Store", "perdure.sync.Store", 1)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
'''

BODIES = {
    "scoped": "return Store(self._inner.scoped(scope), self._driver, owner=False)",
    "close": """if self._owner and self._driver.alive:
            try:
                self._driver.run(self._inner.close())
            finally:
                self._driver.close()""",
}
"""Methods of `Store` that do more than drive their async twin."""

Method = ast.FunctionDef | ast.AsyncFunctionDef


def fill(opening: str, parts: list[str], closing: str, indent: int) -> str:
    """`opening`, the parts and `closing` on one line, or wrapped with as many parts per line as fit."""
    pad = " " * indent
    line = f"{pad}{opening}{', '.join(parts)}{closing}"
    if len(line) <= WIDTH:
        return line
    lines = [f"{pad}{opening}"]
    current = ""
    for part in parts:
        if current and indent + 4 + len(current) + len(part) + 2 > WIDTH:
            lines.append(f"{pad}    {current}")
            current = ""
        current += f"{' ' if current else ''}{part},"
    return "\n".join([*lines, f"{pad}    {current.removesuffix(',')}", f"{pad}{closing}"])


def parameters(node: Method) -> list[str]:
    """Each parameter as it is written, with `*` as one of its own."""
    arguments = node.args
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + list(arguments.defaults)
    parts = [parameter(a, d) for a, d in zip(arguments.args, defaults, strict=True)]
    if arguments.vararg is not None:
        parts.append(f"*{parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    if arguments.kwonlyargs:
        parts += [parameter(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg is not None:
        parts.append(f"**{parameter(arguments.kwarg, None)}")
    return parts


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    """One parameter with its type and default."""
    text = argument.arg if argument.annotation is None else f"{argument.arg}: {ast.unparse(argument.annotation)}"
    return text if default is None else f"{text}{' = ' if argument.annotation else '='}{literal(default)}"


def literal(value: ast.expr) -> str:
    """A default value, in double quotes where it is text."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return f'"{value.value}"'
    return ast.unparse(value)


def call_arguments(node: Method) -> list[str]:
    """The arguments with which the blocking method calls the async one."""
    parts = [argument.arg for argument in node.args.args[1:]]
    if node.args.vararg is not None:
        parts.append(f"*{node.args.vararg.arg}")
    parts += [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
    if node.args.kwarg is not None:
        parts.append(f"**{node.args.kwarg.arg}")
    return parts


def docstring(node: Method) -> str:
    """The first line of the async method's docstring; `Face` fills in the rest when the class is made."""
    return f'        """{(ast.get_docstring(node) or "").splitlines()[0]}"""'


def method(node: Method, owner: str) -> str:
    """The blocking twin of one method or property."""
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    arguments = call_arguments(node)
    target = f"self._inner.{node.name}"
    lines = [f"    @{name}" for name in ("property", "overload") if is_decorated(node, name)]
    if is_decorated(node, "overload"):
        return "\n".join([*lines, fill(f"def {node.name}(", parameters(node), f") -> {returns}: ...", 4)]) + "\n"
    if is_decorated(node, "property"):
        body = f"        return {target}"
    elif returns in TWINS:
        body = fill(f"return {returns}({target}(", arguments, f"){WRAPPED.get(returns, '')}, self._driver)", 8)
    elif isinstance(node, ast.FunctionDef):
        body = fill(f"return {target}(", arguments, ")", 8)
    elif returns.startswith("AsyncIterator"):
        returns = returns.replace("AsyncIterator", "Iterator", 1)
        body = fill(f"return self._driver.iterate({target}(", arguments, "))", 8)
    else:
        drive = "read" if node.name in READS else "run"
        body = fill(f"return self._driver.{drive}({target}(", arguments, "))", 8)
    if owner == "perdure.Store" and node.name in BODIES:
        body = f"        {BODIES[node.name]}"
    lines += [fill(f"def {node.name}(", parameters(node), f") -> {returns}:", 4), docstring(node), body]
    return "\n".join(lines) + "\n"


def is_decorated(node: Method, decorator: str) -> bool:
    """Does it have this decorator?"""
    return any(isinstance(name, ast.Name) and name.id == decorator for name in node.decorator_list)


def public_methods(tree: ast.Module, name: str) -> list[Method]:
    """The methods of a class that a caller may use, in order."""
    cls = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return [n for n in cls.body if isinstance(n, Method) and not n.name.startswith("_")]


def names_used(methods: list[Method]) -> set[str]:
    """The names in the signatures of these methods."""
    nodes: list[ast.AST] = [*(m.args for m in methods), *(m.returns for m in methods if m.returns)]
    nodes += [decorator for m in methods for decorator in m.decorator_list]
    return {name.id for node in nodes for name in ast.walk(node) if isinstance(name, ast.Name)}


def parsed(module: str) -> ast.Module:
    """The source of one store."""
    return ast.parse((STORES / f"{module}.py").read_text(encoding="utf-8"))


def store_class(module: str) -> tuple[str, list[str]]:
    """One blocking class, and the import lines its signatures need."""
    tree, name = parsed(module), class_name(module)
    methods = public_methods(tree, name)
    what = ast.get_docstring(next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)) or ""
    header = (
        f"class {name}(Face[async_{module}.{name}], of=async_{module}.{name}):\n"
        f'    """{what.splitlines()[0].removesuffix(".")}, blocking."""\n\n'
    )
    source = "\n".join(method(node, f"perdure.stores.{module}.{name}") for node in methods)
    return header + source, imports_for(tree, module, names_used(methods))


def class_name(module: str) -> str:
    """The class of a module: `thread_handle` -> `ThreadHandle`."""
    return "".join(word.capitalize() for word in module.split("_"))


def whole_store() -> tuple[str, list[str]]:
    """The blocking `Store`, and its imports."""
    tree = parsed("store")
    methods = public_methods(tree, "Store")
    fields = [f"        self.{name}: {class_name(name)} = {class_name(name)}(inner.{name}, driver)" for name in CLASSES]
    text = STORE.format(fields="\n".join(fields), methods="\n".join(method(node, "perdure.Store") for node in methods))
    imports = [f"from perdure.sync.stores.{name} import {class_name(name)}" for name in CLASSES]
    imports += imports_for(tree, "store", names_used(methods) - {"Store"})
    return text, [*imports, "from types import TracebackType"]


def imports_for(tree: ast.Module, module: str, used: set[str], *, blocking: bool = True) -> list[str]:
    """Import lines for the names a signature uses: where the store imports them, or the store module itself."""
    lines = [f"from perdure.stores import {module} as async_{module}"]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [alias.name for alias in node.names if alias.name in used]
            twins = TWINS if blocking else {}
            lines += [f"from {twins.get(name, node.module)} import {name}" for name in names]
        elif isinstance(node, ast.Import):
            lines += [f"import {alias.name}" for alias in node.names if alias.name in used]
    local = {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    local |= {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    local |= {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    lines += [f"from perdure.stores.{module} import {name}" for name in sorted(used & local)]
    return lines


def generate() -> dict[str, str]:
    """Every file of the folder, by name."""
    return {f"{module}.py": module_source(module) for module in (*CLASSES, "thread_handle", "store")}


def module_source(module: str) -> str:
    """One file, with its imports in order."""
    text, imports = whole_store() if module == "store" else store_class(module)
    imports = [line for line in imports if "AsyncIterator" not in line]
    imports += ["from collections.abc import Iterator", "from perdure.sync.driver import Driver"]
    imports += ["from perdure.sync.face import Face"]
    head = HEAD.format(what=f"`{class_name(module)}`", module=module)
    # Signatures are packed, not one parameter per line: the async stores show those.
    return formatted(head + "\n".join(imports) + "\n\n# fmt: off\n\n\n" + text, TARGET / f"{module}.py")


def formatted(source: str, file: Path) -> str:
    """The source as ruff leaves it, without unused imports."""
    ruff = str(Path(sys.executable).parent / "ruff")
    for command in (["check", "--fix", "--quiet", "--select", "I,F401"], ["format", "--quiet"]):
        done = subprocess.run(
            [ruff, *command, "--stdin-filename", str(file), "-"],
            input=source,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        source = done.stdout
    return source


def write_or_check(files: dict[Path, str], tool: str) -> int:
    """Write the files, or with `--check` report whether they are what they should be."""
    if "--check" in sys.argv:
        stale = [file.name for file, text in files.items() if not file.exists() or file.read_text("utf-8") != text]
        print(f"stale: {', '.join(stale)}: run {tool}" if stale else "up to date")
        return 1 if stale else 0
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    return 0


def main() -> int:
    TARGET.mkdir(exist_ok=True)
    return write_or_check({TARGET / name: text for name, text in generate().items()}, "tools/make_sync.py")


if __name__ == "__main__":
    sys.exit(main())
