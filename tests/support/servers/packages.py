"""Servers from the system's packages, without installing them.

The package and those of its dependencies that this machine lacks are downloaded with `apt-get`, which checks their
signatures, and unpacked into the user's cache; the system itself is not touched, and root is not needed. When the
machine's package lists are missing or too old, private ones are fetched beside the cache.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from tests.support.servers.account import one_at_a_time, reachable

_NEVER = ("libc6_", "libc-bin_")
"""The loader that is running belongs to the system's C library, so that one cannot be brought along."""
_PATIENCE = 300


class FetchFailed(Exception):
    """A package could not be had."""


@dataclass(frozen=True)
class Unpacked:
    """A package as a tree of files."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """What lets its programs find the libraries that came along."""
        folders = sorted({str(library.parent) for library in self.root.rglob("*.so.*")})
        return {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}


def fetched(package: str) -> Unpacked:
    """The package, from the cache or from the distribution."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise FetchFailed(f"package {package}: this system has no apt-get")
    with one_at_a_time(package) as cache:
        tree = cache / f"{_release()}-{package}"
        if not tree.exists():
            half = Path(tempfile.mkdtemp(prefix=f"{package}-", dir=cache))
            try:
                half.chmod(0o755)
                _unpack(package, half, cache / "apt")
                half.rename(tree)
            except BaseException:
                shutil.rmtree(half, ignore_errors=True)
                raise
    if not reachable(tree):
        raise FetchFailed(f"package {package}: servers cannot read {tree}")
    return Unpacked(tree)


def _release() -> str:
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    names = [facts.get(name, "").strip('"') for name in ("ID", "VERSION_ID")]
    return "-".join([*filter(None, names), _run(["dpkg", "--print-architecture"], Path("/")).strip()])


def _unpack(package: str, into: Path, state: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-packages-") as folder:
        debs = Path(folder)
        try:
            _download(package, debs, [])
        except FetchFailed:
            _download(package, debs, _private_lists(state))
        for deb in sorted(debs.glob("*.deb")):
            _run(["dpkg", "-x", str(deb), str(into)], debs)


def _download(package: str, folder: Path, options: list[str]) -> None:
    """The package and what it needs: just what an installation would fetch."""
    plan = ["apt-get", *options, "--print-uris", "-qq", "-y", "--no-install-recommends", "install", package]
    files = [unquote(line.split()[1]) for line in _run(plan, folder).splitlines() if line.startswith("'")]
    versions = [f"{name}={version}" for name, version, _ in (file.split("_") for file in files if _may_come(file))]
    if not versions:
        raise FetchFailed(f"package {package}: apt-get has nothing to download")
    _run(["apt-get", *options, "-o", "Acquire::Retries=3", "-qq", "download", *versions], folder)


def _may_come(file: str) -> bool:
    return not file.startswith(_NEVER)


def _private_lists(state: Path) -> list[str]:
    """Options that make apt-get use lists of our own, freshly fetched from the system's own sources."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    options = [
        *("-o", f"Dir::State::Lists={state / 'lists'}"),
        *("-o", f"Dir::Cache={state / 'cache'}"),
        *("-o", "APT::Sandbox::User="),
    ]
    # A source that does not answer is not yet a failure: the package may come from another one.
    subprocess.run(["apt-get", *options, "-qq", "update"], check=False, capture_output=True, timeout=_PATIENCE)
    return options


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, check=False, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchFailed(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise FetchFailed(f"{' '.join(command[:6])} …: {done.stderr.strip()[-500:]}")
    return done.stdout
