"""Streamed answers: what the collectors of all formats have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Unpack

from perdure.errors import IncompleteStream, short_repr
from perdure.formats.reading import Payload, plain
from perdure.model.halves import Halves
from perdure.model.message import Message, MessageFields


class Collector(ABC):
    """Collects a streamed answer: `add` each chunk, then take the `message`.

    It works with `for` and `async for` alike, and never makes a message of a stream that was cut.
    """

    def __init__(self) -> None:
        self._halves = Halves()

    def add(self, chunk: Payload) -> str | None:
        """Take the next chunk or event; returns the text that it brings, or None.

        Args:
            chunk: a dict, or an object of the SDK.
        """
        data = plain(chunk, "chunk")
        if data.get("error"):
            error = f"the stream ended with an error: {short_repr(data['error'])}"
            raise IncompleteStream(error, hint="nothing of the answer is usable: ask the model again")
        text = self._take(data)
        return None if text is None else self._halves.joined(text) or None

    @property
    def done(self) -> bool:
        """True once the message is whole."""
        return self._missing() is None and not self._expecting()

    def message(self, **fields: Unpack[MessageFields]) -> Message:
        """The whole message, with model, stop reason and usage; `IncompleteStream` if the stream was cut.

        Args:
            **fields: fields of `Message` to set, such as `id` or `metadata`.
        """
        missing = self._missing()
        if missing is not None:
            error = f"the stream ended before {missing}, so its message is not complete"
            raise IncompleteStream(error, hint="the connection was lost: ask the model again")
        return self._make(fields)

    @abstractmethod
    def _take(self, data: dict[str, Any]) -> str | None:
        """Take a chunk; the text that it brings."""

    @abstractmethod
    def _missing(self) -> str | None:
        """What has not come yet; None if the message is whole."""

    def _expecting(self) -> bool:
        """May something still come that the message can do without?"""
        return False

    @abstractmethod
    def _make(self, fields: MessageFields) -> Message:
        """The message, once nothing is missing."""
