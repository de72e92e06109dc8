"""Running a page: its blocks in order, one namespace, one event loop, one empty directory.

A Python block may `await` at its top level, so that examples stay short; one that does not is run with no event loop
about, as a script would be. A failure names the page and the line.

The page of a server's engine uses one example URL throughout; wherever it stands, a private test server stands in.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.docs.pages import Block, Page
from tests.docs.servers import ServerOfPage

SHELL_SECONDS = 120
_OUTPUT = doctest.OutputChecker()
_LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class BlockFailed(Exception):
    """A block raised, ended with an error, or printed something else than the page says."""


def run_page(page: Page, folder: Path, server: ServerOfPage | None = None) -> int:
    """Execute a page in `folder`; the number of blocks that ran."""
    count, printed = 0, None
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder), _importable(folder), asyncio.Runner() as runner:
        for block in page.blocks():
            if block.runs:
                printed = _run(page, block if server is None else server.in_place(block), namespace, runner, server)
                count += 1
            elif block.is_output:
                _compare(page, block, printed)
                printed = None
    return count


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """A file that a page saves can be imported by its later blocks, as in a program that runs there."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _run(
    page: Page, block: Block, namespace: dict[str, Any], runner: asyncio.Runner, server: ServerOfPage | None
) -> str:
    if block.language == "sh":
        return _run_shell(page, block)
    if block.language == "sql":
        if server is None:
            raise BlockFailed(f"{page.name}:{block.line}: SQL runs on the page of an engine with a server")
        with _located(page, block):
            return runner.run(server.ask(block.code))
    if block.file is not None:
        Path(block.file).write_text(block.code, encoding="utf-8")
        if "save" in block.flags:
            return ""
    printed = io.StringIO()
    with _located(page, block), contextlib.redirect_stdout(printed):
        tree = ast.parse(block.code, filename=str(page.path))
        ast.increment_lineno(tree, block.line - 1)
        # An example's assert is a check, under `python -O` too.
        allow_await = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(tree, str(page.path), "exec", flags=allow_await, dont_inherit=True, optimize=0)
        result = eval(code, namespace)
        if inspect.iscoroutine(result):
            runner.run(result)
    return printed.getvalue()


@contextlib.contextmanager
def _located(page: Page, block: Block) -> Iterator[None]:
    try:
        yield
    except SyntaxError as error:
        line = block.line - 1 + (error.lineno or 1)
        raise BlockFailed(f"{page.name}:{line}: {error.msg}") from None
    except Exception as error:  # noqa: BLE001 - whatever an example raises is this page's failure
        frames = traceback.extract_tb(error.__traceback__)
        here = (frame.lineno for frame in reversed(frames) if frame.filename == str(page.path))
        line = next(here, None) or block.line
        story = "".join(traceback.format_exception(error))
        raise BlockFailed(f"{page.name}:{line}: {type(error).__name__}: {error}\n\n{story}") from None


def _run_shell(page: Page, block: Block) -> str:
    tools = Path(sys.executable).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    environment |= {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1", "COLUMNS": "100"}
    answer = subprocess.run(
        ["sh", "-eu", "-c", block.code],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SHELL_SECONDS,
        check=False,
    )
    if answer.returncode != 0:
        said = f"{answer.stdout}{answer.stderr}"
        raise BlockFailed(f"{page.name}:{block.line}: ended with {answer.returncode}\n{block.code}\n{said}")
    return answer.stdout


def _compare(page: Page, block: Block, printed: str | None) -> None:
    if printed is None:
        raise BlockFailed(f"{page.name}:{block.line}: this output follows no block that ran")
    if not _OUTPUT.check_output(block.code, printed, _LOOSE):
        raise BlockFailed(f"{page.name}:{block.line}: the page says\n{block.code}\nand the block prints\n{printed}")
