"""The servers behind the pages of server engines: each page has one example URL, and a private server stands in for it.

SQL blocks are asked of that server by its own driver, as a report would be, and print one row per line.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.docs.pages import Block, Page
from tests.support.servers import fresh_database, server

EXAMPLES = {
    "docs/engines/postgres.md": ("postgres", "postgresql://app:secret@localhost/agents"),
    "docs/engines/mysql.md": ("mysql", "mysql://app:secret@localhost/agents"),
    "docs/engines/redis.md": ("redis", "redis://localhost:6379/0"),
}


@dataclasses.dataclass(frozen=True)
class ServerOfPage:
    """A test server in the place of a page's example."""

    engine: str
    example: str
    url: str

    def in_place(self, block: Block) -> Block:
        return dataclasses.replace(block, code=block.code.replace(self.example, self.url))

    async def ask(self, sql: str) -> str:
        rows = await (self._ask_postgres(sql) if self.engine == "postgres" else self._ask_mysql(sql))
        return "".join(" ".join(map(_text, row)) + "\n" for row in rows)

    async def _ask_postgres(self, sql: str) -> list[Any]:
        import asyncpg

        link = await asyncpg.connect(self.url)
        try:
            return list(await link.fetch(sql))
        finally:
            await link.close()

    async def _ask_mysql(self, sql: str) -> list[Any]:
        import asyncmy

        parts = urlsplit(self.url)
        link = await asyncmy.connect(
            host=parts.hostname,
            port=parts.port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=parts.path[1:],
        )
        try:
            async with link.cursor() as cursor:
                await cursor.execute(sql)
                return list(await cursor.fetchall())
        finally:
            await link.ensure_closed()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def server_of(page: Page) -> ServerOfPage | None:
    """The server of this page, empty; None for a page that needs none."""
    if page.name not in EXAMPLES:
        return None
    engine, example = EXAMPLES[page.name]
    return ServerOfPage(engine, example, asyncio.run(fresh_database(server(engine), "docs")))
