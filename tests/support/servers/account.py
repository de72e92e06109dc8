"""Whom a server runs as, and which folders that account can reach.

PostgreSQL and PgBouncer refuse to run as root and MariaDB would rather not, so root starts every server as `nobody`.
Nothing is created in the system: no account, no group. What `nobody` cannot reach, such as a virtual environment under
`/root`, is copied once to a folder that it can.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "perdure-server-"
_UNIX_SOCKET_ROOM = 50
"""A socket's path may have about a hundred characters, and servers put theirs below this folder."""


@dataclass(frozen=True)
class Account:
    """An unprivileged account."""

    uid: int
    gid: int

    def owns(self, folder: Path) -> None:
        """Hand a folder and everything in it to this account."""
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def unprivileged() -> Account | None:
    """`nobody` when we are root, else None: a server then runs as ourselves."""
    if os.getuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def reachable(path: Path) -> bool:
    """Can the account that servers run as get there and read it?"""
    if unprivileged() is None:
        return os.access(path, os.R_OK)
    whole = path.resolve()
    if not whole.exists() or not whole.stat().st_mode & stat.S_IROTH:
        return False
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in whole.parents)


def temporary_folder(name: str) -> Path:
    """A new private folder with a short path, owned by the account that servers run as."""
    roots = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    root = next((root for root in roots if len(str(root)) <= _UNIX_SOCKET_ROOM and reachable(root)), roots[0])
    _remove_leftovers(root)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{name}-{os.getpid()}-", dir=root))
    account = unprivileged()
    if account is not None:
        account.owns(folder)
    return folder


def _remove_leftovers(root: Path) -> None:
    """Remove the folders of processes that were killed before they could do so themselves."""
    for folder in root.glob(f"{_PREFIX}*"):
        owner = folder.name.split("-")[-2]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)


def cache_folder() -> Path:
    """Where fetched servers are kept between runs: the user's cache, or below /var/tmp if servers cannot read that."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perdure" / "servers"
    shared = Path(f"/var/tmp/perdure-servers-{os.getuid()}")
    for folder in (home, shared):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK) and reachable(folder):
            return folder
    raise PermissionError(f"neither {home} nor {shared} can keep servers")


@contextmanager
def one_at_a_time(name: str) -> Iterator[Path]:
    """Hold the cache for one name, so that two test processes do not fetch the same server at once."""
    folder = cache_folder()
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def readable_copy(tree: Path, name: str, *, only: Sequence[str]) -> Path:
    """A copy of some folders of a tree in the cache, where servers can read it; made once."""
    with one_at_a_time(name) as cache:
        copy = cache / name
        if not copy.exists():
            half = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=cache))
            half.chmod(0o755)
            for folder in only:
                if (tree / folder).exists():
                    shutil.copytree(tree / folder, half / folder, symlinks=True)
            half.rename(copy)
    return copy
