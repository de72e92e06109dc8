"""What is known to leak, until it is mended: forms of URLs (`URL_FORMS`, `REACHABLE`) whose secret is shown somewhere.

The list is strict: a form that stands here and does not leak fails the full run.
"""

from __future__ import annotations

LEAKS: frozenset[str] = frozenset()
