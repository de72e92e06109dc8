"""Prose is wrapped, links of the pages outside `docs/` lead somewhere, and unidiomatic phrases stay out."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT, Page, all_pages
from tests.docs.test_snippets import leads_somewhere

COLUMNS = 120
OTHERS = [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "bench/README.md")]
OTHER_PAGES = [Page(path, path.read_text(encoding="utf-8")) for path in OTHERS]
PAGES = [*all_pages(), *OTHER_PAGES]
# Words that are rare in technical English, and a sign that a sentence should be rewritten.
UNIDIOMATIC = re.compile(
    r"\b(?:whoever|nobody|somebody|meanwhile|for ever|in vain|so many|under way|(?:is|are) told)\b"
    r"|\bof (?:its|their) own\b|\bmend(?:s|ed|ing)?\b|\bstands? (?:in|on|at|before|beside)\b|\bby itself\b|\bbeside\b",
    re.IGNORECASE,
)


def too_long(page: Page) -> list[int]:
    """Prose lines beyond the limit; tables, headings and lines that are one long word or link cannot be broken."""
    lines = ((number, line) for number, line in page.prose() if not line.lstrip().startswith(("|", "#", "![", "[")))
    return [number for number, line in lines if len(line) > COLUMNS and not re.match(r"\s*(?:\d+\.|-)? *\[", line)]


def unidiomatic(page: Page) -> list[str]:
    text = "\n".join(line for _, line in page.prose())
    return [match.group() for match in UNIDIOMATIC.finditer(re.sub(r"`[^`]*`", "", text))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_is_wrapped(page: Page) -> None:
    assert too_long(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_is_idiomatic(page: Page) -> None:
    assert unidiomatic(page) == []


@pytest.mark.parametrize("page", OTHER_PAGES, ids=lambda page: page.name)
def test_links_outside_docs_lead_somewhere(page: Page) -> None:
    assert [target for _, target in page.links() if not leads_somewhere(page, target)] == []


def test_the_checks_bite() -> None:
    page = Page(ROOT / "x.md", f"# {'x' * 130}\n\n{'word ' * 30}\n\n| {'x ' * 80} |\n\nNobody mends it.\n")
    assert too_long(page) == [3]
    assert unidiomatic(page) == ["Nobody", "mends"]
