"""What a server says, before it is believed or repeated.

A server may be another program than the URL means, be broken, or be hostile. Its words are shown cut and on one line;
an answer of the wrong shape is an error of ours; and no error repeats the password, even if the server does.
"""

from __future__ import annotations

import struct
from types import TracebackType

from perdure.errors import CorruptError, PerdureError

REPEATED_CHARACTERS = 300
NONSENSE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)
"""What code trips over when an answer has other columns, rows or types than the question asked for."""
_SECRET_CHARACTERS = 4
"""A shorter password is part of too many words to be taken out of them."""


def repeated(text: str) -> str:
    """A server's words for a message: what does not print is escaped, and the end of a long text is cut off."""
    cut = text if len(text) <= REPEATED_CHARACTERS else text[:REPEATED_CHARACTERS] + "…"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut)


class Sense:
    """A `with` block around whatever reads a server's answers; it may be entered again and by several at once.

    `where` names the server in messages. `secret` is the password, and `known` are names that the server may repeat
    although they are the same as the password.
    """

    def __init__(self, where: str, secret: str = "", known: tuple[str, ...] = ()) -> None:
        self._where = where
        self._secret = secret if len(secret) >= _SECRET_CHARACTERS and not any(secret in name for name in known) else ""

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.judge(error)

    def judge(self, error: BaseException | None) -> None:
        """What the block does at its end, for callers that catch the error themselves."""
        if isinstance(error, PerdureError):
            self._hide_secret(error)
        elif isinstance(error, NONSENSE):
            what = repeated(repr(error)).replace(self._secret or "\0", "***")
            raise CorruptError(f"the server's answer makes no sense: {what}", where=self._where) from (
                None if self._secret and self._secret in repr(error) else error
            )

    def _hide_secret(self, error: PerdureError) -> None:
        secret = self._secret
        if not secret or secret not in f"{error!s} {error.__cause__!r}":
            return
        error.message = error.message.replace(secret, "***")
        error.args = (error.message,)
        error.hint = error.hint and error.hint.replace(secret, "***")
        error.__cause__ = None  # the driver's error shows the same text
