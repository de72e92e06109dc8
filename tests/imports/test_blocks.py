"""A message of more blocks than the API takes: an import refuses it, in the log and among pending messages."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.imports.judging import valid_lines

import perdure
from perdure import InvalidError, limits
from perdure.stores.transfer.export import import_lines


def with_blocks(lines: list[bytes], name: str, content: list[Any]) -> list[bytes]:
    """The file with this content in the first message of the log, or in the first pending message."""
    parsed = [json.loads(line) for line in lines]
    line = next(line for line in parsed if name in (line.get("table"), line.get("log")))
    body = line["body"]["message"] if name == "pending" else line["body"]
    body["content"] = content
    return [json.dumps(line, separators=(",", ":")).encode() for line in parsed]


def texts(count: int) -> list[Any]:
    return [{"type": "text", "text": "x"}] * count


@pytest.mark.parametrize("name", ["messages", "pending"])
def test_too_many_blocks_are_refused(name: str) -> None:
    async def main() -> None:
        lines = await valid_lines()
        async with perdure.open("memory://") as store:
            excess = with_blocks(lines, name, texts(limits.BLOCKS_PER_MESSAGE + 1))
            with pytest.raises(InvalidError, match=r"10,001 blocks, the limit for one message is 10,000"):
                await import_lines(store, lambda: excess)
            assert (await store.threads.list()).items == []
            await import_lines(store, lambda: with_blocks(lines, name, texts(limits.BLOCKS_PER_MESSAGE)))

    asyncio.run(main())
