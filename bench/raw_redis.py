"""The least that does the job on Redis: one script, loaded once, that writes what a commit writes and checks nothing.

The keys are those of a commit: the thread's hot row and its place in the list of threads by activity, the branch, the
run's counters, the messages with the index that finds one by its id, the documents if any.
"""

from __future__ import annotations

import time
from typing import Any, Self

import msgspec
import redis.asyncio
from raw_postgres import Prepared, bodies, prepare
from workload import Commit

SCRIPT = """
local thread, seq, now, run = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local count = tonumber(ARGV[5])
for n = 1, count do
  local id = ARGV[4 + 2 * n]
  redis.call('HSET', KEYS[4], seq + n, ARGV[5 + 2 * n])
  redis.call('HSET', KEYS[5], id, seq + n)
end
redis.call('HSET', KEYS[1], 'version', seq + count, 'updated_at', now, 'active_run', thread, 'open_run', thread,
           'latest_run', thread)
redis.call('HSET', KEYS[2], 'head', ARGV[4 + 2 * count], 'head_seq', seq + count, 'length', seq + count)
redis.call('HSET', KEYS[3], 'body', run)
redis.call('ZADD', KEYS[6], now, thread)
for n = 6 + 2 * count, #ARGV, 2 do
  redis.call('HSET', KEYS[7], ARGV[n], ARGV[n + 1])
end
return seq + count
"""
_decode = msgspec.json.Decoder().decode


def keys(thread: str) -> list[str]:
    return [f"{{raw}}:{kind}:{thread}" for kind in ("head", "branch", "run", "log", "ids")] + [
        "{raw}:active",
        f"{{raw}}:state:{thread}",
    ]


class RawRedis:
    """One client, one script call a commit."""

    name = "raw redis-py, one script"
    grows = False
    prepare = staticmethod(prepare)

    def __init__(self, client: Any, sha: str) -> None:
        self.client, self.sha = client, sha
        self.heads: dict[str, int] = {}

    @classmethod
    async def open(cls, url: str) -> Self:
        client = redis.asyncio.from_url(url)
        return cls(client, await client.script_load(SCRIPT))

    async def create(self, thread: str, first: Commit) -> None:
        messages = bodies(first.messages)
        self.heads[thread] = 0
        for at in range(0, max(1, len(messages)), 500):
            await self.commit(thread, Prepared(messages[at : at + 500], b"{}", [], []))

    async def commit(self, thread: str, commit: Prepared) -> None:
        seq, count = self.heads[thread], len(commit.bodies)
        arguments: list[Any] = [thread, seq, int(time.time() * 1000), commit.run, count]
        for body in commit.bodies:
            arguments += (body[7:37], body)  # the id, as `bodies` made it
        for name, body in zip(commit.names, commit.documents, strict=True):
            arguments += (name, body)
        await self.client.evalsha(self.sha, 7, *keys(thread), *arguments)
        self.heads[thread] = seq + count

    async def load(self, thread: str) -> list[Any]:
        held = await self.client.hmget(keys(thread)[3], range(1, self.heads[thread] + 1))
        return [_decode(body) for body in held]

    async def close(self) -> None:
        await self.client.aclose()
