"""The proxy does to a connection exactly what it was told, and nothing when it was told nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.support.proxy import Direction, Proxy
from tests.support.servers.process import free_port

DEADLINE = 60.0


class Echo:
    """A server that sends back what it gets, and keeps it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.got = b""
        self.ended = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: socket.socket) -> None:
        with link:
            try:
                while data := link.recv(1000):
                    self.got += data
                    link.sendall(data)
            except OSError:
                pass
        self.ended += 1


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    # Closing alone would not wake the thread that accepts.
    made.listener.shutdown(socket.SHUT_RDWR)
    made.listener.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.port) as made:
        yield made


def link_to(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), DEADLINE)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("it never came true")
        time.sleep(0.002)


def read(link: socket.socket, count: int) -> bytes:
    """Exactly so many bytes, or what came before the end."""
    got = b""
    while len(got) < count:
        try:
            piece = link.recv(count - len(got))
        except ConnectionError:
            break
        if not piece:
            break
        got += piece
    return got


def test_bytes_pass_and_are_counted(proxy: Proxy) -> None:
    data = bytes(range(256)) * 2000
    with link_to(proxy) as link:
        sender = threading.Thread(target=link.sendall, args=(data,))
        sender.start()
        assert read(link, len(data)) == data
        sender.join()
    assert proxy.seen == {"up": len(data), "down": len(data)}
    assert (proxy.accepted, proxy.cuts) == (1, 0)


def test_the_url_leads_through_it(proxy: Proxy) -> None:
    url = "postgresql://me:pass%40word@db.example:5432/base?schema=x"
    assert proxy.through(url) == f"postgresql://me:pass%40word@127.0.0.1:{proxy.port}/base?schema=x"


def test_an_end_is_passed_on(proxy: Proxy, echo: Echo) -> None:
    with link_to(proxy) as link:
        link.sendall(b"a")
        assert read(link, 1) == b"a"
    until(lambda: echo.ended == 1)


def test_dropped_it_cuts_and_refuses_until_it_restarts(proxy: Proxy, echo: Echo) -> None:
    with link_to(proxy) as link:
        link.sendall(b"a")
        assert read(link, 1) == b"a"
        proxy.drop()
        assert read(link, 1) == b""
    until(lambda: echo.ended == 1)
    with pytest.raises(ConnectionRefusedError):
        link_to(proxy)
    proxy.restart()
    with link_to(proxy) as link:
        link.sendall(b"b")
        assert read(link, 1) == b"b"


def test_a_cut_spares_those_who_come_after(proxy: Proxy) -> None:
    with link_to(proxy) as first:
        first.sendall(b"a")
        assert read(first, 1) == b"a"
        proxy.cut()
        assert read(first, 1) == b""
    with link_to(proxy) as second:
        second.sendall(b"b")
        assert read(second, 1) == b"b"


@pytest.mark.parametrize("count", [0, 1, 6, 10])
def test_cut_on_the_way_up(proxy: Proxy, echo: Echo, count: int) -> None:
    with link_to(proxy) as link:
        link.sendall(b"before")
        assert read(link, 6) == b"before"
        proxy.cut_after(count, "up")
        link.sendall(b"0123456789")
        read(link, 11)
    until(lambda: echo.ended == 1)
    assert echo.got == b"before" + b"0123456789"[:count]
    until(lambda: proxy.cuts == 1)


@pytest.mark.parametrize("count", [0, 1, 6, 10])
def test_cut_on_the_way_down(proxy: Proxy, echo: Echo, count: int) -> None:
    with link_to(proxy) as link:
        link.sendall(b"before")
        assert read(link, 6) == b"before"
        proxy.cut_after(count, "down")
        link.sendall(b"0123456789")
        assert read(link, 11) == b"0123456789"[:count]
    until(lambda: echo.ended == 1)
    assert echo.got == b"before0123456789"
    until(lambda: proxy.cuts == 1)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_cut_beyond_the_end_does_not_strike_and_can_be_disarmed(proxy: Proxy, direction: Direction) -> None:
    proxy.cut_after(4, direction)
    with link_to(proxy) as link:
        link.sendall(b"abc")
        assert read(link, 3) == b"abc"
        assert proxy.cuts == 0
        proxy.heal()
        link.sendall(b"def")
        assert read(link, 3) == b"def"
    assert proxy.cuts == 0


def test_bytes_are_counted_over_connections_and_a_cut_strikes_once(proxy: Proxy) -> None:
    proxy.cut_after(3, "up")
    with link_to(proxy) as first:
        first.sendall(b"ab")
        assert read(first, 2) == b"ab"
    with link_to(proxy) as second:
        second.sendall(b"cd")
        until(lambda: proxy.cuts == 1)
    with link_to(proxy) as third:
        third.sendall(b"e" * 100)
        assert read(third, 100) == b"e" * 100
    assert proxy.cuts == 1


def test_half_open_says_nothing_and_closes_nothing(proxy: Proxy, echo: Echo) -> None:
    with link_to(proxy) as old, link_to(proxy) as other:
        old.sendall(b"a")
        assert read(old, 1) == b"a"
        proxy.half_open()
        old.sendall(b"lost")
        with link_to(proxy) as new:
            new.sendall(b"lost too")
            new.settimeout(0.05)
            with pytest.raises(TimeoutError):
                new.recv(1)
            # Whoever is not let in before it heals is served like anybody who comes afterwards.
            until(lambda: proxy.accepted == 3)
        proxy.heal()
        assert read(old, 1) == b""
        assert read(other, 1) == b""
    assert echo.got == b"a"
    with link_to(proxy) as link:
        link.sendall(b"b")
        assert read(link, 1) == b"b"


def test_a_delay_holds_traffic_back(proxy: Proxy, echo: Echo) -> None:
    proxy.delay(3600)
    with link_to(proxy) as link:
        link.sendall(b"held")
        link.settimeout(0.05)
        with pytest.raises(TimeoutError):
            link.recv(1)
        assert echo.got == b""
    proxy.delay(0.001)
    with link_to(proxy) as link:
        link.sendall(b"late")
        assert read(link, 4) == b"late"


def test_throttled_traffic_comes_piece_by_piece(proxy: Proxy) -> None:
    proxy.throttle(20)
    data = b"0123456789" * 90
    with link_to(proxy) as link:
        link.sendall(data)
        # Few enough to come in one piece otherwise, and yet all of them would take most of a minute.
        assert 0 < len(link.recv(len(data))) < len(data)


def test_a_server_that_is_down_ends_the_connection() -> None:
    with Proxy("127.0.0.1", free_port()) as proxy, link_to(proxy) as link:
        assert read(link, 1) == b""


def test_closing_frees_the_port_and_may_be_done_twice(echo: Echo) -> None:
    proxy = Proxy("127.0.0.1", echo.port)
    with link_to(proxy) as link:
        link.sendall(b"a")
        assert read(link, 1) == b"a"
        proxy.close()
        proxy.close()
        assert read(link, 1) == b""
    with pytest.raises(ConnectionRefusedError):
        link_to(proxy)


def test_a_negative_count_is_refused(proxy: Proxy) -> None:
    with pytest.raises(ValueError, match="not negative"):
        proxy.cut_after(-1, "up")
