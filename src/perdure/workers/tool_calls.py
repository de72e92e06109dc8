"""Runs a tool for a call of the model. Whatever comes of it is a result that can be stored: the tool has run, or not.

An error of the tool, an unknown tool and arguments that do not fit are for the model to read. A text that is too long
or holds half a character is shortened or corrected, because a result that cannot be stored would end the run.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.model.halves import with_whole_characters
from perdure.model.message import Message, ToolUse
from perdure.workers.threads import in_thread

_CUT = " […] The result was cut here: it was too long to be stored."
_MOST = limits.MESSAGE_BYTES - 64 * 1024
"""How many bytes the JSON of a result's text may have; the rest is for the message around it."""


_KEY: ContextVar[str] = ContextVar("perdure_call_key")


def call_key() -> str:
    """Inside a tool that `use_tools` or `call_tool` runs: a key for the service that the tool calls.

    It is the same whenever this call is made again, by whichever worker, and no other call has it. A service that takes
    such an idempotency key does the work once; then the tool is `repeatable`. 64 characters.
    """
    try:
        return _KEY.get()
    except LookupError:
        hint = "call it inside a tool that job.use_tools or job.call_tool runs"
        raise InvalidError("call_key has a value only inside a tool", hint=hint) from None


async def result_of(call: ToolUse, function: Callable[..., Any] | None, key: str) -> Message:
    """The result of a call: what the function returns for its arguments, or why there is none. The key is its own."""
    checked: object = function
    if checked is not None and not callable(checked):
        raise InvalidError(f"function must be a function or None, not {short_repr(checked)}", hint="the tool to run")
    if function is None:
        return _failure(call, f"there is no tool {call.name!r}")
    arguments: object = call.input
    if not isinstance(arguments, dict):
        return _failure(call, f"the arguments of {call.name!r} must be a JSON object")
    token = _KEY.set(key)
    try:
        value = await _run(function, arguments)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _failure(call, "CancelledError: a part of the tool was cancelled")  # by the tool itself
    except Exception as error:  # noqa: BLE001 - the model reads about it
        return _failure(call, f"{type(error).__name__}: {_said(error)}")
    finally:
        _KEY.reset(token)
    try:
        return Message.tool(call.id, _storable(_as_text(value)))
    except Exception as error:  # noqa: BLE001 - a value may raise anything while it is converted
        return _failure(call, f"{call.name!r} has run, but its result is not JSON: {_said(error)}")


async def _run(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """What the function returns; a blocking one runs in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    value, error = await in_thread(partial(_caught, function, arguments))
    if error is not None:
        raise error
    return await value if inspect.isawaitable(value) else value


def _caught(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Any, Exception | None]:
    try:
        return function(**arguments), None
    except StopIteration as error:  # an asyncio future cannot carry it: the caller would wait for ever
        return None, RuntimeError(f"the tool raised {error!r}")
    except Exception as error:  # noqa: BLE001 - raised again by the caller
        return None, error


def _as_text(value: Any) -> str:
    """Text as it is, as an exact `str`: an enum's word cannot be stored; other data as JSON."""
    if value is None:
        return ""
    return str.__str__(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _said(error: Exception) -> str:
    """The text of an error, whose `__str__` may raise anything."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - then its class has to do
        return "the error cannot be described"


def _failure(call: ToolUse, text: str) -> Message:
    return Message.tool(call.id, _storable(text), is_error=True)


def _storable(text: str) -> str:
    """The text with whole characters, cut where its JSON would be too long."""
    text = with_whole_characters(text)
    if len(text) * 6 <= _MOST or len(json.dumps(text, ensure_ascii=False).encode()) <= _MOST:
        return text
    most = _MOST - len(_CUT.encode())
    low, high = most // 6, min(len(text), most)  # a character takes one to six bytes
    while low < high:
        middle = (low + high + 1) // 2
        fits = len(json.dumps(text[:middle], ensure_ascii=False).encode()) <= most
        low, high = (middle, high) if fits else (low, middle - 1)
    return text[:low] + _CUT
