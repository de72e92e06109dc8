"""`perdure health`, `migrate` and `copy` as a keeper meets them: tables, JSON, exit codes, and never a password."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import Program
from tests.cli.steering import steering_on_screen
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

import perdure
from perdure.opening import _SERVERS, open_engine

OLD = Path(__file__).parents[1] / "fixtures"
SECRET = "hunter2"


@pytest.fixture(params=("postgres", "mysql", "redis"))
def empty(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database on a server."""
    try:
        return asyncio.run(fresh_database(server(request.param), "cli"))
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))


def old_file(tmp_path: Path) -> str:
    oldest = min(OLD.glob("schema-*.db"))
    return str(shutil.copy(oldest, tmp_path / "old.db"))


def test_health_of_a_file(program: Program) -> None:
    done = program.run("health", program.url)
    # The test's own folder is one for temporary files, and health says so.
    assert done.code == 1
    assert "synchronous" in done.out
    assert "problem" in done.out
    document = json.loads(program.run("health", "--json").out)
    assert document["health"]["engine"] == document["capabilities"]["engine"] == "sqlite"
    assert document["health"]["problems"]


def test_health_makes_nothing(program: Program, tmp_path: Path) -> None:
    assert "there is no file" in program.error("health", str(tmp_path / "no.db"))
    assert not (tmp_path / "no.db").exists()


def test_health_of_an_old_file_says_so_and_leaves_it(program: Program, tmp_path: Path) -> None:
    path = old_file(tmp_path)
    before = Path(path).read_bytes()
    done = program.run("health", path)
    assert (done.code, done.err) == (1, "")
    assert "run perdure migrate" in done.out
    assert Path(path).read_bytes() == before


def test_migrate(program: Program, tmp_path: Path) -> None:
    path = old_file(tmp_path)
    before = Path(path).read_bytes()
    checked = program.run("migrate", path, "--check")
    assert checked.code == 1
    assert checked.out.splitlines() == [
        "pending: from version 1 to version 3; nothing was changed",
        "1 new table, 9 new indexes, 2 changed tables, 4 dropped indexes (--verbose shows every statement)",
    ]
    verdict, *statements = program.run("migrate", path, "--check", "--verbose").out.splitlines()
    assert verdict.startswith("pending")
    assert {words.split(" ", 1)[0] for words in statements} == {"ALTER", "CREATE", "DROP"}
    assert Path(path).read_bytes() == before
    assert program.json("migrate", path, "--check", code=1)["pending"] is True
    assert program("migrate", path).startswith("migrated from version 1 to version 3\n")
    assert "up to date" in program("migrate", path, "--check")
    assert program.json("migrate", path) == {
        "engine": "sqlite",
        "current": 3,
        "wanted": 3,
        "steps": [],
        "pending": False,
        "migrated": False,
    }


def test_migrate_makes_no_file_and_knows_no_memory(program: Program, tmp_path: Path) -> None:
    assert "there is no file" in program.error("migrate", str(tmp_path / "no.db"))
    assert "nothing to migrate" in program.error("migrate", "memory://")


def test_copy(program: Program, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'copy.db'}"
    planned = program("copy", program.url, target, "--dry-run")
    assert "would be copied" in planned
    assert not (tmp_path / "copy.db").exists()
    done = program("copy", program.url, target)
    assert "counts and checksums are the same" in done
    assert "messages" in done
    again = program.json("copy", program.url, target)
    assert (again["copied"], again["dry_run"]) == (0, False)
    assert again["rows"] > 0
    assert program("export") == program("export", "--store", target)


def test_copy_of_one_scope(program: Program, tmp_path: Path) -> None:
    target = str(tmp_path / "copy.db")
    assert "no scope 'acme'" in program.error("copy", program.url, target, "--scope", "acme")
    assert not (tmp_path / "copy.db").exists()
    assert program.json("copy", program.url, target, "--scope", "default")["copied"] > 0


def test_copy_takes_no_store(program: Program, tmp_path: Path) -> None:
    urls = [program.url, str(tmp_path / "copy.db")]
    for arguments in (["copy", *urls, "--store", "other.db"], ["--store", "other.db", "copy", *urls]):
        assert "perdure copy takes no --store" in program.error(*arguments)
    assert not (tmp_path / "copy.db").exists()
    told = program("copy", "--help")
    assert "--store" not in told
    assert "all tenants" in told


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(("more", "said"), [([], "run it again to resume"), (["--dry-run"], "nothing was changed")])
def test_an_interrupted_copy_says_what_that_means(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], said: str
) -> None:
    async def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr("perdure.cli.commands.copy.copy_store", interrupted)
    done = program.run("copy", program.url, str(tmp_path / "copy.db"), *more)
    assert (done.code, done.out, done.err) == (130, "", f"stopped; {said}\n")


def test_copy_refuses_what_differs(program: Program, tmp_path: Path) -> None:
    target = str(tmp_path / "copy.db")
    program("copy", program.url, target)
    program("switch", "kyoto", "main", "--store", target)
    line = program.error("copy", program.url, target)
    assert "table thread_heads, scope 'default', 'kyoto' differs: branch is" in line
    assert "copy into an empty store" in line
    assert "empty the destination first or choose another" in line


def test_copy_makes_no_source(program: Program, tmp_path: Path) -> None:
    assert "there is no file" in program.error("copy", str(tmp_path / "no.db"), str(tmp_path / "copy.db"))
    assert not (tmp_path / "copy.db").exists()


def test_a_server_from_the_command_line(program: Program, empty: str) -> None:
    secret = _password(empty)
    for arguments in (["threads"], ["doctor", "sweep"], ["health", empty]):
        line = program.error(*arguments, "--store", empty)
        assert "perdure migrate" in line or "no store" in line
    verdict, summary = program.run("migrate", empty, "--check").out.splitlines()
    assert verdict.startswith("pending: from nothing to version")
    assert "1 step (" in summary if empty.startswith("redis") else " new tables" in summary
    program("migrate", empty)
    assert "up to date" in program("migrate", empty, "--check")
    said = [program("copy", program.url, empty, "--dry-run"), program("copy", program.url, empty)]
    assert "checksums are the same" in said[1]
    assert program("export", "--store", empty) == program("export")
    assert program("tree", "kyoto", "--store", empty) == program("tree", "kyoto")
    assert "all is well" in program("doctor", "verify", "--all-scopes", "--store", empty)
    health = program.run("health", empty)
    assert health.code in (0, 1)
    assert [line.split()[0] for line in health.out.splitlines() if "://" in line] == ["url"]
    document = program.run("health", empty, "--json").out
    assert json.loads(document)["health"]["settings"]["url"] in health.out
    said += [health.out, health.err, document]
    said += [program("log", "kyoto", "--store", empty), program("switch", "kyoto", "main", "--store", empty)]
    if secret:
        assert [text for text in said if f":{secret}@" in text] == []


def _password(url: str) -> str | None:
    from urllib.parse import urlsplit

    return urlsplit(url).password


@pytest.mark.urls
@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/db?connect_timeout=1",
        f"mysql://me:{SECRET}@127.0.0.1:1/db?connect_timeout=1",
        f"redis://:{SECRET}@127.0.0.1:1/0?connect_timeout=1",
        f"postgresql:/me:{SECRET}@127.0.0.1:1/db",
        f"postgres://me:{SECRET}@127.0.0.1:1/db?no_such_option=1",
        f"nosuch://me:{SECRET}@127.0.0.1:1/db",
        f"sqlite://me:{SECRET}@127.0.0.1",
        f"me:{SECRET}@127.0.0.1/db",
        f"//me:{SECRET}@127.0.0.1/db",
        f"host=127.0.0.1 user=me password={SECRET}",
        f"host=127.0.0.1 password='{SECRET} and more'",
        f"jdbc:postgresql://127.0.0.1/db?user=me&password={SECRET}",
        f"sqlite:///missing.db?password={SECRET}",
    ],
)
@pytest.mark.parametrize("command", ["health", "migrate", "threads", "copy", "import"])
def test_no_message_holds_a_password(program: Program, url: str, command: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text("")
    given = {"copy": [program.url, url], "threads": ["--store", url], "import": ["--store", url, str(lines)]}
    arguments = [command, *given.get(command, [url])]
    for more in ([], ["--json"]):
        done = program.run(*arguments, *more)
        assert done.code == 2, done
        assert SECRET not in done.out + done.err


def test_the_example_of_a_hint_stays_readable(program: Program) -> None:
    line = program.error("threads", "--store", f"mysql://me:{SECRET}@127.0.0.1:1")
    assert "mysql://user:password@host:3306/database" in line


@pytest.mark.urls
def test_a_refused_url_keeps_what_is_no_secret(program: Program) -> None:
    line = program.error("health", f"sqlite://me:{SECRET}@h/d")
    assert "'sqlite://***' names no file" in line


@pytest.mark.parametrize(("scheme", "said"), [("postgresql+asyncpg", "postgresql"), ("mysql+aiomysql", "mysql")])
def test_a_driver_in_the_scheme(program: Program, scheme: str, said: str) -> None:
    line = program.error("threads", "--store", f"{scheme}://me:{SECRET}@h/d")
    assert f"no engine is known for {scheme}://" in line
    assert f"drop +{scheme.partition('+')[2]} and write {said}://" in line


@pytest.mark.urls
def test_an_unknown_scheme_is_answered_with_all_that_are_known(program: Program) -> None:
    line = program.error("threads", "--store", "nope://x")
    known = line.partition("known: ")[2]
    assert [scheme for scheme in _SERVERS if f"{scheme}://" not in known] == []


@pytest.mark.parametrize(("name", "driver"), [("postgres", "asyncpg"), ("mysql", "asyncmy")])
def test_a_missing_driver_is_named_with_how_to_install_it(name: str, driver: str) -> None:
    code = f"import sys; sys.modules[{driver!r}] = None; import perdure.cli; perdure.cli.main()"
    url = f"{name}://127.0.0.1:1/d"
    command = [sys.executable, "-c", code, "threads", "--store", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"the {name} engine needs {driver}" in done.stderr
    assert f"(pip install {driver})" in done.stderr


def test_engines_are_closed(program: Program, tmp_path: Path) -> None:
    """A copy leaves no side files: both of its stores were closed."""
    target = tmp_path / "copy.db"
    program("copy", program.url, str(target))
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(("-wal", "-shm"))] == []

    async def look() -> Any:
        engine = await open_engine(str(target), read_only=True)
        try:
            return await engine.check()
        finally:
            await engine.close()

    assert asyncio.run(look()) == []


@pytest.mark.parametrize("scope", ["tenant[/x]", "[link=http://evil]x[/link]", ":smile:"])
def test_a_scope_cannot_steer_the_progress_of_a_copy(program: Program, tmp_path: Path, scope: str) -> None:
    source = f"sqlite:///{tmp_path}/source.db"

    async def fill() -> None:
        async with perdure.open(source, scope=scope) as store:
            await store.threads.create("t")

    asyncio.run(fill())
    done = program.run("copy", source, f"sqlite:///{tmp_path}/copy.db", screen=True, COLUMNS="120")
    assert (done.code, steering_on_screen(done.out), steering_on_screen(done.err)) == (0, [], [])
    assert scope in done.out
    assert scope in done.err
