"""What the tests of rogue SQL servers share: a certificate that nobody vouches for, and a client that meets a rogue."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rogue.sql_rogue import PASSWORD, Rogue, Script, check_error, opened, refusal_of

from perdure.errors import PerdureError
from perdure.opening import plan_migration
from perdure.testkit.servers.account import temporary_folder
from perdure.testkit.servers.certificates import self_signed

Certificate = tuple[Path, Path]


@pytest.fixture(scope="module")
def certificate() -> Iterator[Certificate]:
    """A self-signed certificate and its key; `another.crt` in the same folder has the same name."""
    folder = temporary_folder("rogue-sql")
    self_signed(folder, folder / "server.crt", folder / "server.key", "IP:127.0.0.1")
    self_signed(folder, folder / "another.crt", folder / "another.key", "IP:127.0.0.1")
    yield folder / "server.crt", folder / "server.key"
    shutil.rmtree(folder)


async def meet_rogue(scheme: str, script: Script, certificate: Certificate | None, options: str) -> list[PerdureError]:
    """Open a rogue's store, and ask what that would change; the errors, and never the password."""
    async with Rogue(script, certificate) as rogue:
        url = f"{scheme}://app:{PASSWORD}@127.0.0.1:{rogue.port}/agents?{options}"
        errors = [await refusal_of(opened(url)), await refusal_of(plan_migration(url))]
        assert rogue.clients
        assert PASSWORD.encode() not in rogue.received
        for error in errors:
            check_error(error)
        return errors
