"""The page of limits has the values of `perdure.limits`, and names every limit that a caller can meet."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

from perdure import limits

ROW = re.compile(r"^\| `([A-Z_]+)` \| (.+?) \|", re.MULTILINE)
ROWS = dict(ROW.findall((ROOT / "docs/limits.md").read_text(encoding="utf-8")))
UNITS = {
    "bytes": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "ms": 1,
    "second": 1000,
    "seconds": 1000,
    "day": 86_400_000,
    "days": 86_400_000,
}
INTERNAL = """WATCH_POLL_MS BATCH_ROWS ERASE_ROWS ERASE_ENTRIES CLEANUP_ROWS CLEANUP_INTERVAL_MS CLEANUP_RETRY_MS
    CONTENTION_ATTEMPTS IMPORT_AHEAD_MS IMPORT_NUMBER_MAX DURABILITY_AGE_MS DURABILITY_PATIENCE_MS IDLE_CHECK_MS
    SIGN_OF_LIFE_MS LOGIN_BYTES SERVER_TEXT_BYTES ANSWER_BYTES CASCADE_THREADS
    TRIM_ENTRIES TRIM_PIECE CLOCK_OFFSET_MS DISPERSED_THREADS CHILDREN_NAMED LOG_AGAIN_MS HINTS_HELD
    FOLLOW_REST_MS FOLLOW_TAIL FOLLOW_TAIL_BYTES FOLLOW_TAILS_BYTES FOLLOW_READS""".split()
"""Sizes of steps and patience with servers: no argument of a call can exceed them."""


def value_of(text: str) -> int:
    number, _, unit = text.replace(",", "").partition(" ")
    base, _, exponent = number.partition("^")
    return int(base) ** int(exponent or 1) * UNITS.get(unit, 1)


def test_the_page_has_the_real_values() -> None:
    assert {name: value_of(text) for name, text in ROWS.items()} == {name: getattr(limits, name) for name in ROWS}


def test_the_page_names_every_limit_of_a_caller() -> None:
    names = {name for name in vars(limits) if name.isupper()}
    assert sorted(names - set(ROWS)) == sorted(INTERNAL)
