"""The page runner is itself tested: each kind of broken page must be refused, by page and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import Page
from tests.docs.running import BlockFailed, run_page
from tests.docs.test_snippets import leads_somewhere, unexplained


def page(folder: Path, text: str) -> Page:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return Page(path, text)


def test_blocks_share_a_namespace_a_loop_and_a_folder(tmp_path: Path) -> None:
    text = (
        "```python file=saved.py\nx = 1\n```\n```sh run\ncat saved.py\n```\n```text output\nx = 1\n```\n"
        "```python\nimport asyncio\nfrom pathlib import Path\nPath('made').write_text('x')\n"
        "loop = await asyncio.sleep(0, asyncio.get_running_loop())\n```\n"
        "```python\nassert loop is await asyncio.sleep(0, asyncio.get_running_loop())\nprint('one', 2)\n```\n"
        "```text output\none ...\n```\n"
        "```sh run\ncat made\n```\n```text output\nx\n```\n```sh\nfalse\n```\n"
    )
    assert run_page(page(tmp_path, text), tmp_path) == 5


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("# t\n\n```python\nx = 1\n1 / 0\n```\n", 5, "ZeroDivisionError"),
        ("```python\nimport asyncio\nawait asyncio.sleep(0)\nraise KeyError('gone')\n```\n", 4, "gone"),
        ("```python\nx = (\n```\n", 2, "never closed"),
        ("```python\nprint(1)\n```\n\n```text output\n2\n```\n", 6, "prints"),
        ("```text output\n2\n```\n", 2, "follows no block"),
        ("```sh run\nexit 3\n```\n", 2, "ended with 3"),
        ("```sh run\nfalse\ntrue\n```\n", 2, "ended with 1"),
    ],
)
def test_a_broken_block_is_named(tmp_path: Path, text: str, line: int, word: str) -> None:
    with pytest.raises(BlockFailed, match=f"page.md:{line}: ") as failure:
        run_page(page(tmp_path, text), tmp_path)
    assert word in str(failure.value)


def test_an_open_fence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"page.md:1: .* never closed"):
        page(tmp_path, "```python\nx = 1\n").blocks()


def test_a_block_left_out_needs_a_reason(tmp_path: Path) -> None:
    bare = "```python no-run\nx\n```\n"
    assert len(unexplained(page(tmp_path, bare))) == 1
    assert not unexplained(page(tmp_path, bare.replace("x\n", "# not run: it needs a server\nx\n")))


def test_dead_links_are_seen(tmp_path: Path) -> None:
    made = page(tmp_path, "# A title, here\n")
    assert leads_somewhere(made, "#a-title-here")
    assert not leads_somewhere(made, "#another")
    assert not leads_somewhere(made, "missing.md")
