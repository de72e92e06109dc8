"""Every example of the documentation is run, and every link leads somewhere.

Each page is one test. Pages that run nothing are listed here by name, so that a page cannot lose its examples unseen.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.models import models_for
from tests.docs.pages import Block, Page, all_pages
from tests.docs.running import run_page
from tests.docs.servers import EXAMPLES, server_of
from tests.support.servers import ServerMissing, servers_required

PAGES = all_pages()
REASON = "# not run: "
# Prose. Decision records tell why, not how, so they may be prose as well.
NOTHING_TO_RUN = {"docs/README.md", "docs/architecture.md", "docs/coming-from.md"}


def runs_something(page: Page) -> bool:
    return any(block.runs for block in page.blocks())


@pytest.mark.parametrize("page", [page for page in PAGES if runs_something(page)], ids=lambda page: page.name)
def test_every_snippet_of_the_page_runs(page: Page, tmp_path: Path) -> None:
    try:
        server = server_of(page)
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))
    with models_for(page):
        ran = run_page(page, tmp_path, server)
    assert ran == sum(block.runs for block in page.blocks())


def test_the_pages_without_a_snippet_are_the_known_ones() -> None:
    silent = {page.name for page in PAGES if not runs_something(page)}
    print("no snippet runs on:", *sorted(silent))
    assert {name for name in silent if not name.startswith("docs/decisions/")} == NOTHING_TO_RUN


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_of_a_server_uses_its_example_throughout(name: str) -> None:
    """Another URL in a block that runs would lead nowhere, or to somebody's real server."""
    page = next(page for page in PAGES if page.name == name)
    scheme = EXAMPLES[name][1].partition("://")[0]
    found = {url for block in page.blocks() if block.runs for url in re.findall(rf"{scheme}://[^\s\"'?]+", block.code)}
    assert found == {EXAMPLES[name][1]}


def unexplained(page: Page) -> list[Block]:
    """Python blocks that are left out without saying why."""
    blocks = (block for block in page.blocks() if block.language == "python" and "no-run" in block.flags)
    return [block for block in blocks if not block.code.startswith(REASON)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_snippet_is_left_out_only_with_a_reason(page: Page) -> None:
    assert not [f"{page.name}:{block.line}" for block in unexplained(page)]


def test_the_index_leads_to_every_page() -> None:
    index = next(page for page in PAGES if page.name == "docs/README.md")
    reached = {(index.path.parent / target).resolve() for _, target in index.links()}
    assert [page.name for page in PAGES if page.path not in reached] == ["README.md", "docs/README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    dead = [f"{page.name}:{line}: {target}" for line, target in page.links() if not leads_somewhere(page, target)]
    assert not dead, "\n" + "\n".join(dead)


def leads_somewhere(page: Page, target: str) -> bool:
    if "://" in target:
        return True
    path, _, anchor = target.partition("#")
    file = (page.path.parent / path).resolve() if path else page.path
    if not file.exists():
        return False
    return not anchor or anchor in Page(file, file.read_text(encoding="utf-8")).anchors()
