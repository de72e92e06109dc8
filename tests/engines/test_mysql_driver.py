"""What the MySQL engine expects of asyncmy beyond its documented API: a new release that changes it fails here."""

from __future__ import annotations

import asyncio

import pytest
from tests.engines.mysql_place import connect, emptied, run, sql

from perdure.engines.mysql.connections.driver import transport_of

WARNS = "SELECT CAST('seven' AS SIGNED)"
ASKED = "SHOW SESSION STATUS LIKE 'Com_show_warnings'"


def test_connect_returns_the_transport_of_an_open_connection() -> None:
    async def scenario() -> None:
        connection = await connect(await emptied("driver"))
        transport = await transport_of(connection._driver)
        assert isinstance(transport, asyncio.Transport)
        assert transport is connection._transport
        connection.abort()
        assert transport.is_closing()
        assert connection.closed

    run(scenario())


def test_a_connection_that_the_server_ended_is_known_to_be_closed() -> None:
    async def scenario() -> None:
        url = await emptied("driver")
        connection = await connect(url)
        (((number,),),) = await connection.run("SELECT CONNECTION_ID()")
        assert not connection.closed
        await sql(url, f"KILL {number}")
        while not connection.closed:  # noqa: ASYNC110 - the driver has no event for it
            await asyncio.sleep(0.01)
        connection.abort()

    run(scenario())


def test_warnings_cost_no_round_trip(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        connection = await connect(await emptied("driver"))
        assert await connection.run(WARNS) == [((0,),)]
        assert await connection.run("SELECT @@warning_count") == [((1,),)]
        await connection.run(WARNS)
        (((_, count),),) = await connection.run(ASKED)
        assert count == "0"
        await connection.close()

    run(scenario())
    assert "Truncated" not in caplog.text


def test_a_release_that_hides_the_transport_is_refused() -> None:
    class Other:
        async def connect(self) -> None:
            return

    with pytest.raises(TypeError, match="does not return its transport"):
        asyncio.run(transport_of(Other()))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
