"""Streams that cannot hold every character: a redirected Windows console, an ASCII terminal, the C locale.

What the encoding lacks is spelled out instead of failing: our own marks in ASCII (`->`, `*`), all else as an escape
(`\\u4eac`). In JSON the escape is JSON's own, so the document means the same in every encoding.
"""

from __future__ import annotations

import codecs
import io
import sys
from typing import IO, Any

from perdure.cli.escaping import escaped, escaped_in_json, harmless_json, to_json_text
from perdure.cli.terminal import stream_encoding

_PLAIN, _JSON = "perdure-plain", "perdure-json"
_MARKS = {
    "→": "->",
    "←": "<-",
    "◂": "<",
    "‹": "<",
    "•": "*",
    "◦": "o",
    "│": "|",
    "├": "|",
    "└": "`",
    "─": "-",
    "–": "-",
    "…": "...",
    "⋯": "...",
}


def tolerate_any_encoding() -> None:
    """Let stdout and stderr spell out what their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_PLAIN)


def write_json(stream: IO[str], document: Any) -> None:
    """Write one JSON document on one line."""
    stream.write(fitted_json(stream, to_json_text(document)) + "\n")
    stream.flush()


def json_for_screen(stream: IO[str], line: bytes) -> bytes:
    """A line of JSON in the encoding of a terminal, with nothing in it that the terminal would obey."""
    return fitted_json(stream, harmless_json(line.decode())).encode(stream_encoding(stream))


def fitted_json(stream: IO[str], text: str) -> str:
    """The same JSON, with escapes for the characters that the stream cannot hold."""
    encoding = stream_encoding(stream)
    return text.encode(encoding, _JSON).decode(encoding)


def fitted_text(stream: IO[str], text: str) -> str:
    """The same text, with what the stream cannot hold spelled out."""
    encoding = stream_encoding(stream)
    return text.encode(encoding, _PLAIN).decode(encoding)


def _spell_plainly(error: UnicodeError) -> tuple[str, int]:
    return "".join([_MARKS.get(each) or escaped(each) for each in _refused(error)]), _end(error)


def _spell_in_json(error: UnicodeError) -> tuple[str, int]:
    return escaped_in_json(_refused(error)), _end(error)


def _refused(error: UnicodeError) -> str:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return error.object[error.start : error.end]


def _end(error: UnicodeError) -> int:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return error.end


codecs.register_error(_PLAIN, _spell_plainly)
codecs.register_error(_JSON, _spell_in_json)
