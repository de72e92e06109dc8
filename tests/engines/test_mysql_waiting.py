"""Waiting on MySQL: for a connection, for a turn, for a lock. Each wait is in order and ends by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engines.mysql_place import run, sql, stranger
from tests.engines.pacing import slow_clock
from tests.engines.test_mysql_transactions import fresh
from tests.engines.toys import SCOPE, columns, do, row

from perdure.engines.mysql.connections.permits import Permits, Use
from perdure.engines.mysql.write.row_queue import RowQueue
from perdure.errors import UnavailableError
from perdure.kernel.ops import Inc, Patch, Put, Scan

PATIENCE = 3
"""Seconds: the `command_timeout` of stores whose waits are to end."""


async def _turn_of_the_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Line:
    """Users of places, in the order in which they got one."""

    def __init__(self, most: int) -> None:
        self.permits = Permits(most)
        self.served: list[str] = []

    def join(self, name: str, use: Use = "write") -> asyncio.Task[None]:
        async def take() -> None:
            await self.permits.take(use, 600)
            self.served.append(name)

        return asyncio.create_task(take())


def test_a_place_goes_to_whoever_waited_longest() -> None:
    async def scenario() -> None:
        line = Line(1)
        tasks = [line.join(name) for name in "abcd"]
        await _turn_of_the_loop()
        for served in ("ab", "abc"):
            line.permits.give_back("write")
            # A caller that comes at this very moment does not overtake the one who was just woken.
            tasks.append(line.join("late"))
            await _turn_of_the_loop()
            assert "".join(line.served) == served
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(scenario())


def test_a_place_that_was_handed_to_a_cancelled_caller_goes_on() -> None:
    async def scenario() -> None:
        line = Line(1)
        first, second, third = line.join("first"), line.join("second"), line.join("third")
        await _turn_of_the_loop()
        line.permits.give_back("write")
        second.cancel()
        await _turn_of_the_loop()
        assert line.served == ["first", "third"]
        line.permits.give_back("write")
        await line.join("fourth")
        await asyncio.gather(first, second, third, return_exceptions=True)

    run(scenario())


def test_writes_leave_places_to_reads_and_retries_leave_some_to_writes() -> None:
    async def scenario() -> None:
        line = Line(10)
        tasks = [line.join("retry", "retry") for _ in range(20)]
        await _turn_of_the_loop()
        assert line.served == ["retry"] * 3
        tasks += [line.join("write") for _ in range(20)]
        await _turn_of_the_loop()
        assert line.served[3:] == ["write"] * 4
        tasks += [line.join("read", "read") for _ in range(20)]
        await _turn_of_the_loop()
        assert line.served[7:] == ["read"] * 3
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(scenario())


@pytest.mark.parametrize("use", ["read", "write", "retry"])
@pytest.mark.parametrize("most", [1, 2, 3, 4, 100])
def test_every_use_finds_a_place_however_few_there_are(most: int, use: Use) -> None:
    async def scenario() -> None:
        await Line(most).join("one", use)

    run(scenario())


def test_waiting_for_a_connection_ends_with_what_to_do() -> None:
    async def scenario() -> None:
        _, engine = await fresh(f"?connections=1&command_timeout={PATIENCE}")
        pass_time = slow_clock()
        held = await engine._pool.acquire()
        asked = asyncio.create_task(engine.view(SCOPE, [Scan("items")]))
        await _turn_of_the_loop()
        pass_time(PATIENCE + 1)
        with pytest.raises(UnavailableError, match="stayed busy") as refusal:
            await asked
        assert "connections=" in (refusal.value.hint or "")
        engine._pool.release(held)
        assert await engine.view(SCOPE, [Scan("items")]) == [[]]
        await engine.close()

    run(scenario())


def test_a_lock_that_never_goes_is_unavailable_and_nothing_is_written() -> None:
    async def scenario() -> None:
        # On the slow clock the timeouts of answers cannot strike: what ends is the number of waits for the lock.
        slow_clock()
        url, engine = await fresh(f"?command_timeout={PATIENCE}")
        await do(engine, Put("items", ("a",), {"n": 1}))
        other = await stranger(url)
        await other.run("START TRANSACTION; SELECT * FROM items WHERE id = 'a' FOR UPDATE")
        with pytest.raises(
            UnavailableError, match=f"locked by others for {PATIENCE} s.*nothing was written"
        ) as refusal:
            await do(engine, Put("items", ("b",), {}), Patch("items", ("a",), {"n": Inc()}))
        assert "innodb_trx" in (refusal.value.hint or "")
        await other.run("ROLLBACK")
        assert await row(engine, "items", "b") is None
        assert await columns(engine, "items", "a") == {"n": 1}
        (((open_transactions,),),) = await sql(url, "SELECT COUNT(*) FROM information_schema.innodb_trx")
        assert open_transactions == 0
        await other.close()
        await engine.close()

    run(scenario())


def test_a_turn_that_never_comes_ends_too() -> None:
    async def scenario() -> None:
        pass_time = slow_clock()
        queue = RowQueue("mysql://here/db", PATIENCE)
        async with queue.turn(["row"]):
            late = asyncio.create_task(_take_turn(queue, []))
            await _turn_of_the_loop()
            pass_time(PATIENCE + 1)
            with pytest.raises(UnavailableError, match="nothing was written"):
                await late

    run(scenario())


async def _take_turn(queue: RowQueue, order: list[Any], name: Any = None) -> None:
    async with queue.turn(["row"]):
        order.append(name)


def test_a_caller_that_gives_up_its_turn_lets_nobody_overtake() -> None:
    async def scenario() -> None:
        queue, order = RowQueue("mysql://here/db", 600), []
        async with queue.turn(["row"]):
            second = asyncio.create_task(_take_turn(queue, order, 2))
            third = asyncio.create_task(_take_turn(queue, order, 3))
            await _turn_of_the_loop()
            second.cancel()
            await _turn_of_the_loop()
            assert order == []
        await third
        assert order == [3]
        assert not queue._tails
        await asyncio.gather(second, return_exceptions=True)

    run(scenario())
