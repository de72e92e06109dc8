"""The peers, driven through their public APIs with the messages they natively take.

Neither stores more than it is asked to: SQLiteSession gets messages only (no run, no state), to its advantage;
AsyncSqliteSaver gets messages and a run channel, written as one superstep does it: the task's writes, then the
checkpoint. It is driven without a graph, which is cheaper; a compiled graph with its delta channel was measured too and
took 21–30 ms at 1,000 messages, a tie. Both switch WAL on themselves and leave `synchronous` at SQLite's default, which
is FULL; the benchmark reads the settings of their real connections and shows them. Their page size is their own.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

from workload import RUN_RECORD, Commit, Json


class OpenAISession:
    """openai-agents SQLiteSession, one session object per thread on one file."""

    name = "openai-agents SQLiteSession"
    grows = False

    def __init__(self, path: Path) -> None:
        from agents.memory.sqlite_session import SQLiteSession

        self.path = path
        self._new = SQLiteSession
        self._sessions: dict[str, Any] = {}

    @staticmethod
    def prepare(commit: Commit) -> list[Json]:
        return [{"role": m["role"], "content": _plain(m)} for m in commit.messages]

    async def create(self, thread: str, first: Commit) -> None:
        session: Any = self._new(thread, self.path)
        self._sessions[thread] = session
        await session.add_items(self.prepare(first))
        # It opens a connection per worker thread on first use: have them open before the clock starts.
        await asyncio.gather(*(session.get_items(limit=1) for _ in range(12)))

    async def commit(self, thread: str, items: list[Json]) -> None:
        await self._sessions[thread].add_items(items)

    async def load(self, thread: str) -> list[Any]:
        items: list[Any] = await self._sessions[thread].get_items()
        return items

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()


def _plain(message: Json) -> str:
    """The message's content as one string, which is what these peers' simplest messages hold."""
    block = message["content"][0]
    if block["type"] == "text":
        text: str = block["text"]
        return text
    return str(block["content"][0]["text"]) if block["type"] == "tool_result" else json.dumps(message["content"])


class LangGraphSaver:
    """LangGraph AsyncSqliteSaver, driven directly: cheaper than through a compiled graph."""

    name = "langgraph AsyncSqliteSaver"
    grows = True
    saver: Any
    _manager: Any

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads: dict[str, dict[str, Any]] = {}

    @classmethod
    async def open(cls, path: Path) -> LangGraphSaver:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        self = cls(path)
        self._manager = AsyncSqliteSaver.from_conn_string(str(path))
        self.saver = await self._manager.__aenter__()
        await self.saver.setup()
        return self

    @staticmethod
    def prepare(commit: Commit) -> list[Any]:
        return [_langchain(message) for message in commit.messages]

    async def create(self, thread: str, first: Commit) -> None:
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self._threads[thread] = {"config": config, "messages": [], "version": 0}
        await self._checkpoint(thread, self.prepare(first))

    async def commit(self, thread: str, messages: list[Any]) -> None:
        config = self._threads[thread]["config"]
        await self.saver.aput_writes(config, [("messages", messages), ("run", RUN_RECORD)], uuid.uuid4().hex)
        await self._checkpoint(thread, messages)

    async def _checkpoint(self, thread: str, messages: list[Any]) -> None:
        from langgraph.checkpoint.base import empty_checkpoint

        own = self._threads[thread]
        own["messages"] = own["messages"] + messages
        own["version"] += 1
        version = f"{own['version']:032}.0"
        versions: Json = {"messages": version, "run": version}
        point = empty_checkpoint()
        point["channel_values"] = {"messages": own["messages"], "run": RUN_RECORD}
        point["channel_versions"] = versions
        about = {"source": "loop", "step": own["version"], "parents": {}}
        own["config"] = await self.saver.aput(own["config"], point, about, versions)

    async def load(self, thread: str) -> list[Any]:
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        found = await self.saver.aget_tuple(config)
        messages: list[Any] = found.checkpoint["channel_values"]["messages"]
        return messages

    async def settings(self) -> tuple[str, int, int]:
        """Journal mode, synchronous level and page size of its one connection."""
        asked = ("journal_mode", "synchronous", "page_size")
        rows = [await (await self.saver.conn.execute(f"pragma {name}")).fetchone() for name in asked]
        return rows[0][0], rows[1][0], rows[2][0]

    async def close(self) -> None:
        await self._manager.__aexit__(None, None, None)


def _langchain(message: Json) -> Any:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    block, identity = message["content"][0], uuid.uuid4().hex
    if message["role"] == "user":
        return HumanMessage(content=block["text"], id=identity)
    if message["role"] == "tool":
        return ToolMessage(content=block["content"][0]["text"], tool_call_id=block["tool_use_id"], id=identity)
    calls = [
        {"id": use["id"], "name": use["name"], "args": use["input"], "type": "tool_call"}
        for use in message["content"]
        if use["type"] == "tool_use"
    ]
    return AIMessage(content="" if calls else block["text"], id=identity, tool_calls=calls)
