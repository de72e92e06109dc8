"""Which errors of the real SDKs, and of others, a worker takes for trouble that passes."""

from __future__ import annotations

import errno
import importlib
import socket
import ssl
import urllib.error
from email.message import Message as Headers
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import anthropic
import openai
import pytest
from tests.workers.scenes import ended, finish, serving
from tests.workers.test_serving import on_memory

from perdure import InvalidError, Store
from perdure.clock import ManualClock
from perdure.workers import Job, driving, transient


def of_library(module: str, name: str, base: type[Exception] = Exception, **fields: Any) -> Exception:
    """An error as a library defines it; most of these libraries are not installed here."""
    return type(name, (base,), {"__module__": module, **fields})("it failed")


class Odd(Exception):
    @property
    def status_code(self) -> int:
        raise RuntimeError("not read yet")

    retryable = code = response = status_code


def sdk_error(sdk: Any, status: int, body: object = None) -> Exception:
    """The error that a real SDK raises for this status."""
    client = sdk.AsyncOpenAI(api_key="k") if sdk is openai else sdk.AsyncAnthropic(api_key="k")
    request = client._build_request(SDK_OPTIONS[sdk].construct(method="post", url="/x"))
    http = importlib.import_module(type(request).__module__.partition(".")[0])  # the client that the SDK uses
    response = http.Response(status, request=request)
    error: Exception = client._make_status_error("it failed", body=body, response=response)
    return error


SDK_OPTIONS: dict[Any, Any] = {
    openai: openai._models.FinalRequestOptions,
    anthropic: anthropic._models.FinalRequestOptions,
}


@pytest.mark.parametrize("sdk", [openai, anthropic], ids=["openai", "anthropic"])
@pytest.mark.parametrize(
    ("status", "passes"),
    [(408, True), (409, True), (429, True), (500, True), (503, True), (529, True)]
    + [(status, False) for status in (400, 401, 403, 404, 413, 422)],
)
def test_the_status_of_an_answer(sdk: Any, status: int, passes: bool) -> None:
    assert transient(sdk_error(sdk, status)) is passes


@pytest.mark.parametrize("sdk", [openai, anthropic], ids=["openai", "anthropic"])
def test_lost_connections_of_sdks(sdk: Any) -> None:
    request: Any = SimpleNamespace()
    assert transient(sdk.APIConnectionError(request=request))
    assert transient(sdk.APITimeoutError(request=request))


@pytest.mark.parametrize(
    ("kind", "passes"),
    [("server_error", True), ("overloaded_error", True), ("invalid_request_error", False), ("billing_error", False)],
)
def test_errors_in_the_middle_of_a_stream(kind: str, passes: bool) -> None:
    request: Any = SimpleNamespace()
    assert transient(openai.APIError("it failed", request, body={"type": kind})) is passes
    body = {"type": "error", "error": {"type": kind, "message": "it failed"}}
    assert transient(sdk_error(anthropic, 200, body)) is passes


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (of_library("httpx._exceptions", "TransportError"), True),
        (of_library("httpx", "ReadError", type(of_library("httpx", "TransportError"))), True),
        (of_library("aiohttp.client_exceptions", "ClientPayloadError"), True),
        (of_library("requests.exceptions", "HTTPError", response=SimpleNamespace(status_code=502)), True),
        (of_library("requests.exceptions", "HTTPError", response=SimpleNamespace(status_code=400)), False),
        (of_library("my.app", "TransportError"), False),
        (of_library("my.app", "Failed", status_code="500"), False),
        (of_library("my.app", "Failed", status_code=True), False),
        (of_library("my.app", "Failed", status_code=200), False),
        (Odd(), False),
        (urllib.error.URLError(ConnectionRefusedError()), True),
        (urllib.error.URLError("unknown url type"), False),
        (urllib.error.HTTPError("http://x", 503, "busy", Headers(), None), True),
        (urllib.error.HTTPError("http://x", 404, "gone", Headers(), None), False),
        (socket.gaierror(socket.EAI_AGAIN, "later"), True),
        (socket.gaierror(socket.EAI_NONAME, "no such host"), False),
        (OSError(errno.EHOSTUNREACH, "no route"), True),
        (ssl.SSLEOFError(), True),
        (ssl.SSLCertVerificationError(), False),
        (of_library("aiohttp.client_exceptions", "ClientResponseError", status=503), True),
        (of_library("my.app", "Failed", status_code=HTTPStatus.SERVICE_UNAVAILABLE), True),
        (of_library("google.genai.errors", "ServerError", code=503), True),
        (of_library("openai", "RateLimitError", status_code=429, code="insufficient_quota"), False),
        (ValueError("a bug"), False),
        (InvalidError("a bug"), False),
        (FileNotFoundError("prompt.txt"), False),
    ],
)
def test_other_errors(error: Exception, passes: bool) -> None:
    assert transient(error) is passes


def test_by_default_a_worker_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "FIRST_PAUSE", 0.001)
    errors: list[Exception] = [sdk_error(openai, 503), TimeoutError(), ConnectionResetError()]

    async def handler(job: Job) -> None:
        if errors:
            raise errors.pop()
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler):
            assert (await ended(store, run.id)).final_output == "Done."
        assert errors == []
        errors.append(TimeoutError())
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler, retry_on=()):
            done = await ended(store, run.id)
        assert done.outcome is not None
        assert done.outcome.termination.type == "error"

    on_memory(body)


def test_an_error_whose_properties_raise_is_the_cause_all_the_same() -> None:
    async def handler(job: Job) -> None:
        raise Odd("the handler failed")

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler):
            outcome = (await ended(store, run.id)).outcome
        assert outcome is not None
        assert outcome.termination.detail == "Odd: the handler failed"

    on_memory(body)
