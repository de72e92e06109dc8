"""A server that is told to stop ends the streams of its tabs, in a real process."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading

import pytest

from perdure import InvalidError, sse

SERVER = """
import asyncio, signal
import perdure
from perdure import sse

async def main() -> None:
    told, closing = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):        # like uvicorn, before the application starts
        signal.signal(number, lambda number, frame: loop.call_soon_threadsafe(told.set))
    loop = asyncio.get_running_loop()
    sse.stop_on_signals(closing)
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
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
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


ALONE = """
import asyncio, signal
from perdure import sse

async def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sse.stop_on_signals(stop := asyncio.Event())
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(0)
    print("ignored", stop.is_set(), signal.getsignal(signal.SIGINT) == signal.SIG_IGN, flush=True)
    signal.raise_signal(signal.SIGTERM)
    print("still there", flush=True)

asyncio.run(main())
"""


def test_a_process_without_handlers_does_what_it_did_before() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode, done.stderr) == ("ignored False True\n", -signal.SIGTERM, "")


def test_in_another_thread_nothing_is_changed() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    async def lifespan() -> None:
        sse.stop_on_signals(asyncio.Event())

    thread = threading.Thread(target=lambda: asyncio.run(lifespan()))
    thread.start()
    thread.join()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(InvalidError, match=r"stop must be an asyncio\.Event"):
        sse.stop_on_signals(None)  # type: ignore[arg-type]
