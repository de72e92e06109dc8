"""The peers that know a server, driven through their public APIs: the same adapters as in `peers.py`, other stores.

SQLAlchemySession and RedisSession are given messages only (no run, no state), to their advantage, and connections that
stay open. AsyncPostgresSaver is driven without a graph, which is cheaper, over a pool set up as its manual says.
"""

from __future__ import annotations

from typing import Any

from peers import LangGraphSaver, OpenAISession
from workload import Commit


class OpenAIOnServer:
    """openai-agents sessions over one shared client; a session object per thread."""

    grows = False
    name = ""
    prepare = staticmethod(OpenAISession.prepare)

    def __init__(self) -> None:
        self._sessions: dict[str, Any] = {}

    def _session(self, thread: str) -> Any:
        raise NotImplementedError

    async def create(self, thread: str, first: Commit) -> None:
        session = self._sessions[thread] = self._session(thread)
        items = self.prepare(first)
        for at in range(0, len(items), 500):
            await session.add_items(items[at : at + 500])

    async def commit(self, thread: str, items: list[Any]) -> None:
        await self._sessions[thread].add_items(items)

    async def load(self, thread: str) -> list[Any]:
        items: list[Any] = await self._sessions[thread].get_items()
        return items


class OpenAIPostgres(OpenAIOnServer):
    """SQLAlchemySession over asyncpg, 16 connections."""

    name = "openai-agents SQLAlchemySession"

    def __init__(self, url: str) -> None:
        from sqlalchemy.ext.asyncio import create_async_engine

        super().__init__()
        self._engine = create_async_engine(
            url.replace("postgresql://", "postgresql+asyncpg://", 1), pool_size=16, max_overflow=0
        )

    def _session(self, thread: str) -> Any:
        from agents.extensions.memory import SQLAlchemySession

        return SQLAlchemySession(thread, engine=self._engine, create_tables=not self._sessions)

    async def close(self) -> None:
        await self._engine.dispose()


class OpenAIRedis(OpenAIOnServer):
    """RedisSession over one client."""

    name = "openai-agents RedisSession"

    def __init__(self, url: str) -> None:
        import redis.asyncio

        super().__init__()
        self._client = redis.asyncio.from_url(url)

    def _session(self, thread: str) -> Any:
        from agents.extensions.memory import RedisSession

        return RedisSession(thread, redis_client=self._client)

    async def close(self) -> None:
        await self._client.aclose()


class LangGraphPostgres(LangGraphSaver):
    """LangGraph AsyncPostgresSaver, driven directly."""

    name = "langgraph AsyncPostgresSaver"

    def __init__(self) -> None:
        self._threads = {}

    @classmethod
    async def connect(cls, url: str) -> LangGraphPostgres:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        self = cls()
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self._manager = AsyncConnectionPool(url, min_size=4, max_size=16, open=False, kwargs=options)
        await self._manager.open()
        self.saver = AsyncPostgresSaver(self._manager)
        await self.saver.setup()
        return self

    async def close(self) -> None:
        await self._manager.close()
