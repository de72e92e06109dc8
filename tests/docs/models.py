"""The pages that call a model: their SDK talks to a server of our own, which speaks the provider's protocol."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from tests.docs.pages import Page
from tests.support.models import model_server

CALLING = frozenset(("docs/openai.md", "docs/anthropic.md", "docs/workers.md"))


@contextmanager
def models_for(page: Page) -> Iterator[None]:
    """Lead the SDKs of such a page to that server; other pages see no model."""
    if page.name not in CALLING:
        yield
        return
    with model_server() as server, mock.patch.dict(os.environ, server.environment):
        yield
