"""Every Python example of the documentation passes strict type checkers: users copy them into typed code.

The blocks of a page become one async function in one file, so that they share names as they do when they run. A block
that the page saves becomes a module beside it, under a name of its own, from which the page's other blocks import. Line
numbers stay those of the page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Block, Page, all_pages

OPENING = "async def page() -> None:\n"


def modules_of(page: Page) -> Iterator[tuple[str, str]]:
    """The page's Python as modules, with their names: one for each file it saves, and one for all other blocks."""
    blocks = [block for block in page.blocks() if block.language == "python" and block.runs]
    name = re.sub(r"\W", "_", page.name.removesuffix(".md"))
    files = {Path(block.file).stem: block for block in blocks if block.file}
    names = {file: f"{name}_{file}" for file in files}
    for file, block in files.items():
        yield names[file], renamed("\n" * (block.line - 1) + block.code, names)
    others = [block for block in blocks if not block.file]
    if others:
        yield name, renamed(as_function(others), names)


def as_function(blocks: list[Block]) -> str:
    lines = [OPENING.rstrip("\n")]
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines))
        lines += [f"    {line}" if line else "" for line in block.code.splitlines()]
    return "\n".join(lines) + "\n"


def renamed(code: str, names: dict[str, str]) -> str:
    """The code with imports of the page's own files led to their modules."""
    for name, module in names.items():
        code = re.sub(rf"^( *)from {name} import", rf"\1from {module} import", code, flags=re.MULTILINE)
        code = re.sub(rf"^( *)import {name}$", rf"\1import {module} as {name}", code, flags=re.MULTILINE)
    return code


def write_modules(folder: Path) -> list[Path]:
    files = []
    for page in all_pages():
        for name, code in modules_of(page):
            file = folder / f"{name}.py"
            file.write_text(code, encoding="utf-8")
            files.append(file)
    return files


CHECKERS = {
    "mypy": ["mypy", "--strict", "--no-error-summary", "--config-file=", "--cache-dir=/dev/null"],
    "pyright": ["basedpyright", "--pythonpath", sys.executable, "--level", "error"],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_examples_pass_a_type_checker(checker: str, tmp_path: Path) -> None:
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', encoding="utf-8")
    files = write_modules(tmp_path)
    command, *options = CHECKERS[checker]
    answer = subprocess.run(
        [Path(sys.executable).parent / command, *options, *(file.name for file in files)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(files) > 8
    assert answer.returncode == 0, f"{answer.stdout}{answer.stderr}"


def test_a_module_has_the_lines_of_its_page() -> None:
    page = Page(ROOT / "x.md", "# x\n\n```python\na = 1\nawait b(a)\n```\n\n```python\nc = 2\n```\n")
    assert list(modules_of(page)) == [("x", OPENING + "\n\n    a = 1\n    await b(a)\n\n\n\n    c = 2\n")]


def test_a_saved_file_is_a_module_of_its_own() -> None:
    page = Page(ROOT / "x.md", "```python file=a.py\nb = 1\n```\n\n```python\nimport a\nfrom a import b\n```\n")
    assert list(modules_of(page)) == [
        ("x_a", "\nb = 1\n"),
        ("x", OPENING + "\n\n\n\n    import x_a as a\n    from x_a import b\n"),
    ]
