"""A server that is told to stop ends the streams of its tabs: the recipe of the page on chat UIs, in a real process."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "chat-ui.md"
SERVER = """
import asyncio, signal
from typing import Any
import perdure
from perdure import sse

RECIPE

async def main() -> None:
    told, closing = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):        # like uvicorn, before the application starts
        signal.signal(number, lambda number, frame: loop.call_soon_threadsafe(told.set))
    loop = asyncio.get_running_loop()
    end_tabs_on_signals(closing)
    async with perdure.open("memory://") as store:
        await store.threads.create("t")

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            responses.append(asyncio.current_task())
            async for chunk in sse.stream(store.thread("t").follow(), stop=closing):
                writer.write(chunk)
                await writer.drain()
            writer.close()

        responses = []
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await told.wait()
        server.close()
        await asyncio.gather(*responses)                  # graceful: until every response has ended
    print("stopped", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_tabs_do_not_delay_a_server_that_stops(number: signal.Signals) -> None:
    recipe = re.search(r"^def end_tabs_on_signals.*?(?=^```)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert recipe is not None
    program = SERVER.replace("RECIPE", recipe[0])
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = ("127.0.0.1", int(process.stdout.readline()))
            with socket.create_connection(address, 30) as one, socket.create_connection(address, 30) as two:
                for tab in (one, two):
                    tab.settimeout(30)
                    assert tab.recv(100) == b"retry: 1000\n\n"
                process.send_signal(number)
                assert [tab.recv(100) for tab in (one, two)] == [b"", b""], "each stream has ended"
            assert process.communicate(timeout=30)[0] == "stopped\n"
        finally:
            process.kill()
