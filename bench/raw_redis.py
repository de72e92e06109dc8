"""The least that does the job on Redis: one script, loaded once, that writes what a commit writes and checks nothing.

The keys are those of a commit: the messages (a list) with the index that finds one by its id, the thread's hot row and
its place in the list of threads by activity (one member out, one in), the branch, the run, the documents if any. The
client remembers what the script would have to look up.
"""

from __future__ import annotations

import time
from typing import Any, Self

import msgspec
import redis.asyncio
from raw_postgres import Prepared, bodies, prepare
from workload import Commit

SCRIPT = """
local call, seq, count = redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
for n = 1, count do
  call('RPUSH', KEYS[1], ARGV[7 + 2 * n])
  call('HSET', KEYS[2], ARGV[6 + 2 * n], seq + n)
end
call('HSET', KEYS[3], 'version', seq + count, 'updated_at', ARGV[3], 'active_run', ARGV[4], 'open_run', ARGV[4],
     'latest_run', ARGV[4])
call('HSET', KEYS[4], 'head', ARGV[6 + 2 * count], 'head_seq', seq + count, 'length', seq + count)
call('HSET', KEYS[5], 'body', ARGV[5])
call('ZREM', KEYS[6], ARGV[6])
call('ZADD', KEYS[6], 0, ARGV[7])
for n = 7, #KEYS do
  call('HSET', KEYS[n], 'at', ARGV[3], 'body', ARGV[2 * count + n + 1])
end
return seq + count
"""
_decode = msgspec.json.Decoder().decode


def keys(thread: str, documents: list[str]) -> list[str]:
    own = [f"{{raw}}:{kind}:{thread}" for kind in ("log", "ids", "head", "branch", "run")]
    return [*own, "{raw}:active", *(f"{{raw}}:state:{thread}:{name}" for name in documents)]


class RawRedis:
    """One client, one script call a commit."""

    name = "raw redis-py, one script"
    grows = False
    prepare = staticmethod(prepare)

    def __init__(self, client: Any, sha: str) -> None:
        self.client, self.sha = client, sha
        self.heads: dict[str, int] = {}
        self.members: dict[str, str] = {}

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
        seq, count, now = self.heads[thread], len(commit.bodies), int(time.time() * 1000)
        before, member = self.members.get(thread, ""), f"{now:016d}{thread}"
        arguments: list[Any] = [seq, count, now, thread, commit.run, before, member]
        for body in commit.bodies:
            arguments += (body[7:37], body)  # the id, as `bodies` made it
        names = keys(thread, commit.names)
        await self.client.evalsha(self.sha, len(names), *names, *arguments, *commit.documents)
        self.heads[thread], self.members[thread] = seq + count, member

    async def load(self, thread: str) -> list[Any]:
        return [_decode(body) for body in await self.client.lrange(keys(thread, [])[0], 0, -1)]

    async def close(self) -> None:
        await self.client.aclose()
