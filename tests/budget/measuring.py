"""What a call costs: processor time beside that of plain content, and peak memory beside the bytes of its content.

Both sides are timed in one process, the cheapest of several attempts counts, and what looks too dear is measured again,
so that a busy machine does not fail the test: noise only ever adds.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from tests.budget.calls import Call
from tests.budget.contents import MESSAGE, PLAIN, Material

from perdure import Store
from perdure.errors import CorruptError, InvalidError

TIMES = 10.0
"""How much more processor time than plain content of the same size, or than the bare JSON decoder with this content.

Many small containers make the decoder itself dear, and the garbage collector behind it: `[[[[…]]]]` takes it eleven
times as long as a list of records. A call that does nothing with plain content is compared with the decoder too.
"""
MEMORY = 20.0
"""How many bytes of memory for one byte of content, beyond the answer itself; or twice what the bare decoder takes.

An answer weighs what Python objects weigh: `[]` is 3 bytes of JSON and 64 of memory, whoever decodes it. Some calls
read back what they were given, to compare it, and drop it again.
"""
FLOOR = 96 * 1024
"""Bytes that any call may take: statements, pages, small objects."""
ATTEMPTS_IN_DOUBT = 10


@dataclass
class Cost:
    """One call with one material: a multiple, of plain content's processor time or of the content's own bytes."""

    call: str
    material: str
    multiple: float
    most: float

    @property
    def within(self) -> bool:
        """Is it within the budget?"""
        return self.multiple <= self.most


class Bench:
    """A store that is filled with one material, and the calls that are made on it.

    `refuses` is the error that every call must end with; one that `may_refuse` may. `body` is what is stored, where
    that is not the material's message.
    """

    def __init__(
        self,
        store: Store,
        material: Material,
        *,
        refuses: type[Exception] | None = None,
        may_refuse: type[Exception] | None = None,
        body: bytes | None = None,
    ) -> None:
        self.store = store
        self.material = material
        self.decoder = decoder_seconds(material, body)
        self.decoder_bytes = decoder_bytes(material)
        self._refuses = refuses
        self._may_refuse = may_refuse
        self._count = 0

    async def seconds(self, call: Call, attempts: int = 1) -> float:
        """Processor time of the cheapest attempt."""
        return min([await self._attempt(call) for _ in range(attempts)])

    async def _attempt(self, call: Call) -> float:
        await self._set_up(call)
        start = time.process_time()
        await self._run(call)
        return time.process_time() - start

    async def memory(self, call: Call) -> int:
        """Peak memory of a call, less what its answer holds of it."""
        await self._set_up(call)
        gc.collect()
        tracemalloc.start()
        try:
            answer = await self._run(call)
            after, peak = tracemalloc.get_traced_memory()
            del answer
            left = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        return peak - (after - left)

    async def _set_up(self, call: Call) -> None:
        self._count += 1
        if call.setup is not None:
            await call.setup(self.store, self.material, self._count)

    async def _run(self, call: Call) -> object:
        try:
            answer = await call.run(self.store, self.material, self._count)
        except (InvalidError, CorruptError) as error:
            if type(error) not in (self._refuses, self._may_refuse):
                raise
            return str(error)
        if self._refuses is not None:
            raise LookupError(f"{self.material.name} was accepted")
        return answer


def decoder_seconds(material: Material, body: bytes | None) -> float:
    """Processor time that decoding takes, without anything of ours: of this content, or of plain content."""
    texts = [msgspec.json.encode(each.decoded) for each in (PLAIN, material) if not each.refused]
    if body is not None:
        texts.append(body)

    def once(text: bytes) -> float:
        start = time.process_time()
        with suppress(RecursionError, msgspec.DecodeError):
            msgspec.json.decode(text)
        return time.process_time() - start

    return max(min(once(text) for _ in range(3)) for text in texts)


def decoder_bytes(material: Material) -> float:
    """Bytes of memory that the bare decoder takes for each byte of this content."""
    if material.refused:
        return 0.0
    text = msgspec.json.encode(material.decoded)
    tracemalloc.start()
    try:
        value = msgspec.json.decode(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del value
    return peak / len(text)


async def time_cost(name: str, call: Call, plain: Bench, hurt: Bench, known: float) -> Cost:
    """How much more time a call takes; `known` is what it took with plain content before."""
    seconds = await hurt.seconds(call)
    least = hurt.decoder * max(1.0, call.weight / MESSAGE)
    for _ in range(ATTEMPTS_IN_DOUBT):
        if seconds <= TIMES * max(known, least):
            break
        known, seconds = min(known, await plain.seconds(call)), min(seconds, await hurt.seconds(call))
    return Cost(name, hurt.material.name, seconds / max(known, least), TIMES)


async def memory_cost(name: str, call: Call, hurt: Bench) -> Cost:
    """How much memory a call takes for each byte of its content."""
    weight = call.weight // hurt.material.part
    most = max(MEMORY, 2 * hurt.decoder_bytes) if weight else 0
    peak = await hurt.memory(call)
    for _ in range(2):
        if peak <= FLOOR + most * weight:
            break
        peak = min(peak, await hurt.memory(call))
    return Cost(name, hurt.material.name, max(0, peak - FLOOR) / max(weight, 1), most)
