"""Where an export goes: a file that takes its name only when it is whole, or a stream that is written into.

A regular file is written beside its destination and renamed. Whatever else exists under the name stays what it is: a
device, a FIFO, or one of the names of an open file (`/dev/stdout`, `/dev/fd/3`), also behind a link, is opened and
written into. A link to a regular file, or to nothing, is replaced by the file; its target stays as it was.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from perdure.cli.escaping import visible
from perdure.cli.terminal import error_console
from perdure.errors import InvalidError, NotFoundError

STANDARD = "-"
_LINKS = 40
_POLL = 0.05
_REFUSED = {stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a block device"}


def is_stdout(out: str) -> bool:
    """Whether this is stdout, by `-` or by one of the names that systems have for it."""
    if out == STANDARD:
        return True
    try:
        return _is_stream(Path(out)) and os.path.samestat(Path(out).stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False


def would_replace(out: str) -> bool:
    """Whether a file, or a link to one, has this name already; never true of a stream."""
    _check_name(out)
    path = Path(out)
    return out != STANDARD and os.path.lexists(path) and not _is_stream(path)


@asynccontextmanager
async def destination(out: str, *, replace: bool = False) -> AsyncIterator[BinaryIO]:
    """What to write to. A file appears at the end, and not at all if the body fails.

    Without `replace`, a file of that name that appeared meanwhile stays.
    """
    _check_name(out)
    if is_stdout(out):
        yield cast("BinaryIO", sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    if _is_stream(path):
        with os.fdopen(await _opened(path, _kind(path)), "wb") as file:
            yield file
        return
    with _new_file(path, replace=replace) as file:
        yield file


def _check_name(out: str) -> None:
    """Refuse what the system cannot take for a name."""
    try:
        bad = b"\x00" in os.fsencode(out)
    except UnicodeEncodeError:
        bad = True
    if bad:
        raise InvalidError(f"{out!r:.120} cannot be the name of a file", hint="it holds NUL or half a character")


def _is_stream(path: Path) -> bool:
    """Whether something is there that must not be replaced: it is no regular file, or the name of an open one."""
    try:
        return not stat.S_ISREG(path.stat().st_mode) or _names_open_file(path)
    except OSError:
        return False


def _names_open_file(path: Path) -> bool:
    """Follow the links one by one: `/dev/stdout` may lead to a regular file, and must not be replaced by another."""
    for _ in range(_LINKS):
        folder = os.path.realpath(path.parent)
        if folder == "/dev/fd" or folder.startswith("/proc/"):
            return True
        if not path.is_symlink():
            return False
        if folder == "/dev":
            return True
        path = Path(folder, path.readlink())
    return False


def _kind(path: Path) -> int:
    """What kind of thing is there, if it can be written into."""
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind == stat.S_IFDIR:
        raise InvalidError(f"{str(path)!r} is a folder", hint="name a file in it")
    if kind in _REFUSED:
        raise InvalidError(f"{str(path)!r} is {_REFUSED[kind]}", hint="name a file, a FIFO or a character device")
    return kind


async def _opened(path: Path, kind: int) -> int:
    """The stream, opened; waits for somebody to read a FIFO, in a way that hears Ctrl-C."""
    waits = False
    while True:
        try:
            # Appending: an open file that is reached by another name is not written over from its beginning.
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or kind != stat.S_IFIFO:
                raise
            if not waits:
                error_console().print(f"waiting for a reader of {visible(str(path))}")
            waits = True
            await asyncio.sleep(_POLL)
            continue
        os.set_blocking(descriptor, True)
        return descriptor


@contextmanager
def _new_file(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """A file of its own beside the path, readable by its owner only, that takes the path's name at the end."""
    name = repr(str(path))
    if not path.parent.is_dir():
        raise NotFoundError(f"cannot write {name}: there is no folder {str(path.parent)!r}", hint="make it first")
    if not os.access(path.parent, os.W_OK):
        raise InvalidError(f"permission denied: cannot write to {str(path.parent)!r}")
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".perdure-export-", delete=False) as file:
        try:
            yield cast("BinaryIO", file)
            file.flush()
            os.fsync(file.fileno())
            _give_name(Path(file.name), path, replace=replace)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _give_name(file: Path, path: Path, *, replace: bool) -> None:
    """Let the file have its name; only `replace` takes the name from another file."""
    if not replace:
        try:
            os.link(file, path)
        except FileExistsError:
            raise InvalidError(f"{str(path)!r} appeared during the export", hint="--force replaces it") from None
        except OSError as error:
            # Some file systems have no links; there the rename has to do.
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
        else:
            file.unlink()
            return
    file.replace(path)
