"""Test servers are found, keep their data through a kill, and are gone when their process is."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.servers import Server, ServerMissing, fresh_database, redis_cluster, server, stop_all
from tests.support.servers.asking import redis_answer
from tests.support.servers.local import ForeignServer, LocalServer
from tests.support.servers.mysql import system_tables
from tests.support.servers.process import STOP_DEADLINE, StartFailed
from tests.support.servers.redis import RedisRecipe

ENGINES = ("postgres", "mysql", "redis")
ROOT = Path(__file__).resolve().parents[2]


def port_of(url: str) -> int:
    port = urlsplit(url).port
    if port is None:
        raise RuntimeError(f"{url} has no port")
    return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STOP_DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("it never came true")
        time.sleep(0.02)


class ShapeCache:
    """One value in a database, written and read by the driver of each kind."""

    @staticmethod
    async def write_postgres(url: str) -> None:
        import asyncpg

        link = await asyncpg.connect(url)
        await link.execute("CREATE TABLE IF NOT EXISTS kept (n int); INSERT INTO kept VALUES (7)")
        await link.close()

    @staticmethod
    async def read_postgres(url: str) -> list[int]:
        import asyncpg

        link = await asyncpg.connect(url)
        rows = await link.fetch("SELECT n FROM kept")
        await link.close()
        return [row["n"] for row in rows]

    @staticmethod
    async def write_mysql(url: str) -> None:
        from tests.support.servers.databases import _mysql

        if not await _mysql(url, "SHOW TABLES LIKE 'kept'"):
            await _mysql(url, "CREATE TABLE kept (n int) ENGINE=InnoDB")
        await _mysql(url, "INSERT INTO kept VALUES (7)")

    @staticmethod
    async def read_mysql(url: str) -> list[int]:
        from tests.support.servers.databases import _mysql

        return [n for (n,) in await _mysql(url, "SELECT n FROM kept")]

    @staticmethod
    async def write_redis(url: str) -> None:
        from redis.asyncio import Redis

        client: Any = Redis.from_url(url)
        await client.rpush("kept", 7)
        await client.aclose()

    @staticmethod
    async def read_redis(url: str) -> list[int]:
        from redis.asyncio import Redis

        client: Any = Redis.from_url(url)
        kept = await client.lrange("kept", 0, -1)
        await client.aclose()
        return [int(n) for n in kept]


def write(name: str, url: str) -> None:
    asyncio.run(getattr(ShapeCache, f"write_{name}")(url))


def read(name: str, url: str) -> list[int]:
    found: list[int] = asyncio.run(getattr(ShapeCache, f"read_{name}")(url))
    return found


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("name", ENGINES)
def test_a_killed_server_comes_back_with_everything_it_acknowledged(name: str, durable: bool) -> None:
    ours = server(name, durable=durable)
    url = asyncio.run(fresh_database(ours, "kept"))
    write(name, url)
    ours.kill()
    assert ours.pid is None
    assert not listens(port_of(url))
    ours.restart()
    assert read(name, url) == [7]
    ours.stop()
    assert not listens(port_of(url))
    ours.restart()
    assert read(name, url) == [7]


@pytest.mark.parametrize("name", ENGINES)
def test_a_fresh_database_is_empty_and_apart_from_others(name: str) -> None:
    ours = server(name)
    one, other = (asyncio.run(fresh_database(ours, label)) for label in ("one", "other"))
    assert one != other
    write(name, one)
    write(name, other)
    assert asyncio.run(fresh_database(ours, "one")) == one
    write(name, one)
    assert read(name, one) == [7]
    assert read(name, other) == [7]


def test_a_server_is_started_once_and_a_durable_one_is_another() -> None:
    assert server("redis") is server("redis")
    assert server("redis") is not server("redis", durable=True)
    for durable, sync in ((False, b"no"), (True, b"always")):
        answer = redis_answer(port_of(server("redis", durable=durable).url), "CONFIG", "GET", "appendfsync")
        assert answer.split(b"\r\n")[4] == sync


def test_killing_takes_every_child_along() -> None:
    ours = server("postgres")
    family = children(ours)
    assert family
    ours.kill()
    assert not [pid for pid in family if alive(pid)]
    ours.restart()


def children(ours: Server) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(ours.pid)], check=False, capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(os.getuid() != 0, reason="only root has privileges to drop")
@pytest.mark.parametrize("name", ENGINES)
def test_no_server_runs_as_root(name: str) -> None:
    pid = server(name).pid
    assert Path(f"/proc/{pid}").stat().st_uid != 0


HOLDER = """
import sys, threading
from tests.support.servers import server
def start():
    ours = server("redis")
    print(ours.url, ours.pid, ours.folder, flush=True)
starter = threading.Thread(target=start)
starter.start()
starter.join()
sys.stdin.read()
"""


@pytest.mark.parametrize("ending", ["exit", "killed"])
def test_a_server_is_gone_with_its_process_though_the_thread_that_asked_for_it_ended_before(ending: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        if holder.stdin is None or holder.stdout is None:
            raise RuntimeError("no pipes")
        url, pid, folder = holder.stdout.readline().split()
        assert redis_answer(port_of(url), "PING") == b"+PONG\r\n"
        if ending == "killed":
            holder.send_signal(signal.SIGKILL)
        holder.stdin.close()
        holder.wait()
    until(lambda: not alive(int(pid)) and not listens(port_of(url)))
    if ending == "exit":
        assert not Path(folder).exists()


def test_data_that_a_killed_process_left_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp")
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    left = Path(f"/tmp/perdure-server-redis-{gone.pid}-left")
    left.mkdir()
    alive_one = Path(f"/tmp/perdure-server-redis-{os.getpid()}-mine")
    alive_one.mkdir()
    try:
        LocalServer(RedisRecipe(durable=False)).dispose()
        assert not left.exists()
        assert alive_one.exists()
    finally:
        alive_one.rmdir()


def test_a_forked_child_does_not_end_the_servers_of_its_parent() -> None:
    ours = server("redis")
    child = os.fork()
    if child == 0:
        try:
            stop_all()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert redis_answer(port_of(ours.url), "PING") == b"+PONG\r\n"


def test_the_environment_names_a_server_that_tests_may_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TEST_POSTGRES_URL", "postgresql://somebody@db.example/theirs")
    monkeypatch.setattr("tests.support.servers._running", {})
    theirs = server("postgres")
    assert isinstance(theirs, ForeignServer)
    assert theirs.url == "postgresql://somebody@db.example/theirs"
    for end in (theirs.kill, theirs.stop, theirs.restart):
        with pytest.raises(PermissionError, match="PERDURE_TEST_POSTGRES_URL"):
            end()


def test_what_cannot_be_had_says_everything_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.servers._running", {})
    monkeypatch.setattr("tests.support.servers.find._MORE_FOLDERS", ())
    monkeypatch.setattr("tests.support.servers.packages.shutil.which", lambda name, path=None: None)
    with pytest.raises(ServerMissing) as refused:
        server("mysql")
    for part in ("PERDURE_TEST_MYSQL_URL is not set", "mariadbd or mysqld is not on the PATH", "no apt-get"):
        assert part in str(refused.value)
    with pytest.raises(ServerMissing):
        server("mysql")


@pytest.mark.parametrize(("folder", "maker"), [("mysql", "mysql"), ("mysql", "mariadb"), ("mariadb", "mariadb")])
@pytest.mark.parametrize("installed", [True, False])
def test_the_system_tables_of_mariadb_are_found_in_old_and_new_packages(
    folder: str, maker: str, installed: bool, tmp_path: Path
) -> None:
    prefix, system = tmp_path / "unpacked/usr", tmp_path / "usr"
    share = (system if installed else prefix) / "share" / folder
    share.mkdir(parents=True)
    names = [f"{maker}_{name}.sql" for name in ("system_tables", "performance_tables", "system_tables_data")]
    for name in names:
        (share / name).write_text("")
    assert list(system_tables(prefix, system)) == [share / name for name in names]
    (share / names[0]).unlink()
    with pytest.raises(StartFailed, match="neither below"):
        system_tables(prefix, system)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="postgres, mysql, redis"):
        server("oracle")


WANTS_A_SERVER = """
import pytest
from perdure.testkit.kit import ServerMissing

@pytest.fixture
def missing():
    raise ServerMissing("postgres", ["nothing was found"])

def test_in_a_fixture(missing):
    pass

def test_in_the_test():
    raise ServerMissing("postgres", ["nothing was found"])
"""


@pytest.mark.parametrize("variables", [{}, {"CI": "true"}, {"PERDURE_REQUIRE_SERVERS": "1"}, {"CI": "false"}])
def test_a_missing_server_is_a_loud_skip_and_a_failure_where_it_is_required(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    (tmp_path / "test_it.py").write_text(WANTS_A_SERVER)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "perdure.testkit.plugin"]
    command += ["-p", "no:xdist", "-p", "no:cacheprovider"]
    done = subprocess.run(command, check=False, cwd=tmp_path, env=variables, capture_output=True, text=True)
    required = "true" in variables.values() or "1" in variables.values()
    assert done.returncode == int(required), done.stdout
    assert ("1 failed, 1 error" if required else "2 skipped") in done.stdout
    assert "no postgres server: nothing was found" in done.stdout


def test_the_pooler_serves_the_database_behind_it() -> None:
    import asyncpg

    async def ask() -> int:
        link = await asyncpg.connect(server("pgbouncer").url, statement_cache_size=0)
        try:
            found: int = int((await link.execute("SELECT 1; SELECT 2; SELECT 3")).split()[1])
            return found
        finally:
            await link.close()

    assert asyncio.run(ask()) == 1
    assert port_of(server("pgbouncer").url) != port_of(server("postgres").url)


def test_the_cluster_divides_the_keys_and_serves_again_after_a_kill() -> None:
    ours = redis_cluster()
    ports = [member.port for member in ours.members]
    answers = [redis_answer(port, "SET", "one-key", "v") for port in ports]
    assert sorted(answer[:5] for answer in answers) == [b"+OK\r\n", b"-MOVE", b"-MOVE"]
    ours.kill()
    ours.restart()
    assert [redis_answer(port, "GET", "one-key").endswith(b"v\r\n") for port in ports].count(True) == 1


def test_the_sentinel_names_the_master() -> None:
    sentinel = port_of(server("redis-sentinel").url)

    def named_is_master() -> bool:
        named = redis_answer(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "perdure")
        return redis_answer(int(named.split(b"\r\n")[4]), "ROLE").split(b"\r\n")[2] == b"master"

    # On a busy machine it may take the master for dead, and then it takes a moment to appoint another.
    until(named_is_master)


def test_the_encrypted_server_answers_those_who_trust_its_certificate() -> None:
    from redis.asyncio import Redis

    async def ask() -> object:
        client: Any = Redis.from_url(server("redis-tls").url)
        try:
            return await client.ping()
        finally:
            await client.aclose()

    assert asyncio.run(ask()) is True
