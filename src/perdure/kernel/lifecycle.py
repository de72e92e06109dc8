"""The errors of a store used at the wrong time or place, worded once for all engines.

Closed, opened before a fork, opened in another event loop, or opened read-only.
"""

from __future__ import annotations

from perdure.errors import UnavailableError, UnsupportedError


def closed() -> UnavailableError:
    """For every call after `close`; retrying it cannot help."""
    return UnavailableError("the store is closed", hint="open it again", retryable=False)


def forked() -> UnsupportedError:
    """For every call in a child of the process that opened the store."""
    return UnsupportedError(
        "the store was opened before this process was forked; its connections belong to the parent",
        hint="open the store in the child process",
    )


def other_loop() -> UnsupportedError:
    """For a call from another event loop than the one that opened the store."""
    return UnsupportedError(
        "the store was opened in another event loop; its connections cannot be used from this one",
        hint="open one store per event loop, or use perdure.sync from plain threads",
    )


def opened_read_only(where: str) -> UnsupportedError:
    """For writes to a store opened with `read_only`."""
    return UnsupportedError(f"{where} was opened read-only", hint="open it without read_only to write")
