"""Write `src/perdure/sync/stores.py` from the async stores: the same methods, the same types, blocking.

Only async code is written by hand. Each `async def` of a store becomes a plain method that drives the same coroutine;
an async iterator becomes an iterator. A test fails when the written file is not what this tool would write.

    tools/make_sync.py            write the file
    tools/make_sync.py --check    only say whether it is up to date
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORES = ROOT / "src" / "perdure" / "stores"
TARGET = ROOT / "src" / "perdure" / "sync" / "stores.py"
CLASSES = ("threads", "messages", "branches", "pending", "runs", "state")
READS = {"find", "get", "list", "children", "validate_parent", "range", "history", "external", "unfinished_calls"}
READS |= {"current", "labels", "threads", "latest"}
"""Methods that write nothing. One that is not named here counts as a write, whose outcome can be unknown."""

HEAD = '''"""The stores as blocking callers see them.

Written by tools/make_sync.py from the async stores: edit those instead.
"""

from __future__ import annotations

'''


def signature_call(node: ast.AsyncFunctionDef) -> str:
    """The arguments with which the blocking method calls the async one."""
    parts = [argument.arg for argument in node.args.args[1:]]
    parts += [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
    if node.args.kwarg is not None:
        parts.append(f"**{node.args.kwarg.arg}")
    return ", ".join(parts)


def method(node: ast.AsyncFunctionDef) -> str:
    """The blocking twin of one async method."""
    arguments = ast.unparse(node.args)
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    call = f"self._inner.{node.name}({signature_call(node)})"
    doc = ast.get_docstring(node) or ""
    lines = doc.splitlines()
    text = "\n        ".join(line.rstrip() for line in lines) + ("\n        " if len(lines) > 1 else "")
    if returns.startswith("AsyncIterator"):
        returns = returns.replace("AsyncIterator", "Iterator", 1)
        body = f"return self._driver.iterate({call})"
    else:
        body = f"return self._driver.{'read' if node.name in READS else 'run'}({call})"
    return f'    def {node.name}({arguments}) -> {returns}:\n        """{text}"""\n        {body}\n'


def face(module: str) -> tuple[str, list[str]]:
    """One blocking class, and the import lines its signatures need."""
    tree = ast.parse((STORES / f"{module}.py").read_text(encoding="utf-8"))
    name = module.capitalize()
    cls = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    methods = [n for n in cls.body if isinstance(n, ast.AsyncFunctionDef) and not n.name.startswith("_")]
    source = "\n".join(method(node) for node in methods)
    used = {n.id for m in methods for n in ast.walk(m.args) if isinstance(n, ast.Name)}
    used |= {n.id for m in methods if m.returns for n in ast.walk(m.returns) if isinstance(n, ast.Name)}
    header = (
        f'class {name}:\n    """`store.{module}`, blocking."""\n\n'
        f"    def __init__(self, inner: async_{module}.{name}, driver: Driver) -> None:\n"
        "        self._inner = inner\n        self._driver = driver\n\n"
    )
    return header + source, imports_for(tree, module, used)


def imports_for(tree: ast.Module, module: str, used: set[str]) -> list[str]:
    """Import lines for the names a signature uses: where the store imports them, or the store module itself."""
    lines = [f"from perdure.stores import {module} as async_{module}"]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            lines += [f"from {node.module} import {alias.name}" for alias in node.names if alias.name in used]
        elif isinstance(node, ast.Import):
            lines += [f"import {alias.name}" for alias in node.names if alias.name in used]
    local = {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    local |= {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    local |= {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    lines += [f"from perdure.stores.{module} import {name}" for name in sorted(used & local)]
    return lines


def generate() -> str:
    """The whole file, formatted."""
    faces = [face(module) for module in CLASSES]
    imports = sorted({line for _, lines in faces for line in lines})
    imports = [line for line in imports if "AsyncIterator" not in line]
    imports += ["from collections.abc import Iterator", "from perdure.sync.driver import Driver"]
    source = HEAD + "\n".join(imports) + "\n\n\n" + "\n\n".join(text for text, _ in faces)
    ruff = str(Path(sys.executable).parent / "ruff")
    for command in (["check", "--fix", "--quiet", "--select", "I,F401"], ["format", "--quiet"]):
        done = subprocess.run(
            [ruff, *command, "--stdin-filename", str(TARGET), "-"],
            input=source,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        source = done.stdout
    return source


def main() -> int:
    source = generate()
    if "--check" in sys.argv:
        fresh = TARGET.exists() and TARGET.read_text(encoding="utf-8") == source
        print("up to date" if fresh else "stale: run tools/make_sync.py")
        return 0 if fresh else 1
    TARGET.write_text(source, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
