"""Every target, by its name."""

from __future__ import annotations

from tests.fuzz.answers import ANSWERS
from tests.fuzz.cursors import CURSORS
from tests.fuzz.formats import FORMATS
from tests.fuzz.imports import IMPORTS
from tests.fuzz.messages import MESSAGES
from tests.fuzz.rows import ROWS
from tests.fuzz.target import Target
from tests.fuzz.urls import URLS

TARGETS: dict[str, Target] = {
    target.name: target for target in (MESSAGES, FORMATS, CURSORS, IMPORTS, URLS, ANSWERS, ROWS)
}  # fmt: skip
