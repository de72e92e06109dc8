"""More of PostgreSQL: a server that speaks TLS only, and a primary with a standby that can take its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.support.servers.asking import postgres_serves
from tests.support.servers.certificates import HOST, self_signed
from tests.support.servers.find import Programs
from tests.support.servers.local import LocalServer
from tests.support.servers.postgres import SOURCE, USER, PostgresRecipe
from tests.support.servers.process import prepare
from tests.support.servers.sets import ServerSet

_SOURCE_WITH_TLS = replace(SOURCE, name="postgres-tls", wheel=None, package="postgresql")
"""The wheel's server was built without TLS; the distributions' are built with it."""
_TLS_ONLY = "hostssl all all 127.0.0.1/32 trust\nhostssl all all ::1/128 trust\n"


def tls(*, durable: bool) -> LocalServer:
    """A server that lets nobody in without TLS, with a certificate made for `localhost`."""
    return LocalServer(TlsRecipe(durable=durable))


class TlsRecipe(PostgresRecipe):
    """How a server with a certificate of its own is made and started."""

    name = "postgres-tls"

    def __init__(self, *, durable: bool) -> None:
        super().__init__(durable=durable, more={"ssl": "on"}, source=_SOURCE_WITH_TLS)
        self._certificate = Path()

    def make(self, folder: Path) -> None:
        """A cluster with key and certificate where PostgreSQL looks for them."""
        super().make(folder)
        data = folder / "data"
        self._certificate = data / "server.crt"
        self_signed(folder, self._certificate, data / "server.key")
        prepare(["tee", str(data / "pg_hba.conf")], folder, {}, _TLS_ONLY.encode())

    def answers(self, port: int) -> bool:
        """Does it let the superuser in, behind TLS?"""
        return postgres_serves(port, USER, "postgres", self._certificate)

    def url(self, port: int) -> str:
        """Where clients find it, and the certificate that they must trust."""
        return f"postgresql://{USER}@{HOST}:{port}/postgres?sslmode=verify-full&sslrootcert={self._certificate}"


class StandbyPair(ServerSet):
    """A primary and its standby, in this order in `members`; the URL names both and wants the one that can write.

    Every commit waits for the standby, so that nothing acknowledged is lost with the primary. Good for one failover:
    a primary that was replaced must not come back as one.
    """

    def __init__(self, primary: LocalServer, standby: LocalServer, programs: Programs) -> None:
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in (primary, standby))
        url = f"postgresql://{USER}@{hosts}/postgres?target_session_attrs=read-write"
        super().__init__("postgres-pair", url, [primary, standby], lambda: True)
        self._programs = programs

    def promote(self) -> None:
        """Make the standby a primary; returns when it is one."""
        standby = self.members[1]
        command = [self._programs["pg_ctl"], "promote", "-w", "-D", str(standby.folder / "data")]
        prepare(command, standby.folder, self._programs.environment)


def standby_pair(route: Callable[[int], int] = int) -> StandbyPair:
    """A new pair, even if another one runs; `route` turns the primary's port into the one that the standby goes by."""
    recipe = PostgresRecipe(durable=True, more={"synchronous_standby_names": "*"})
    primary = LocalServer(recipe)
    try:
        standby = LocalServer(StandbyRecipe(route(primary.port)))
    except BaseException:
        primary.dispose()
        raise
    return StandbyPair(primary, standby, recipe.programs)


class StandbyRecipe(PostgresRecipe):
    """How a copy of a primary is made, and started to follow it."""

    name = "postgres-standby"

    def __init__(self, primary_port: int) -> None:
        super().__init__(durable=True)
        self._primary_port = primary_port

    def make(self, folder: Path) -> None:
        """The primary's data as they are now, and where to get what comes after."""
        source = ["--host", "127.0.0.1", "--port", str(self._primary_port), "--username", USER]
        how = ["--write-recovery-conf", "--checkpoint", "fast", "--no-sync"]
        command = [self.programs["pg_basebackup"], "--pgdata", str(folder / "data"), *source, *how]
        prepare(command, folder, self.programs.environment)
