"""Spans of commits and loads, as the real OpenTelemetry SDK exports them; nothing is imported unless asked for."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import perdure
import perdure.sync
from perdure import InvalidError, Message, NotFoundError, VersionConflict
from perdure.otel import instrument

WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
import perdure, perdure.sync, perdure.opening
try:
    import perdure.otel
except ImportError as error:
    print(error)
"""


class Spans:
    """A provider, and the spans that ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def facts(self) -> list[tuple[str, dict[str, Any]]]:
        return [(span.name, plain(span.attributes or {})) for span in self.ended]


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("perdure."): value for name, value in attributes.items()}


@pytest.fixture
def spans() -> Spans:
    return Spans()


def test_a_commit_and_a_load_are_spans(spans: Spans) -> None:
    async def main() -> None:
        async with perdure.open("memory://", scope="acme") as store:
            assert instrument(store, spans.provider) is store
            for _ in range(2):
                await store.commit("t", messages=[Message.user("a"), Message.user("b")], key="k")
            await store.load("t")

    asyncio.run(main())
    common = {"engine": "memory", "scope": "acme", "thread_id": "t", "messages": 2}
    assert spans.facts() == [
        ("perdure.commit", {**common, "replayed": False, "durable": "none"}),
        ("perdure.commit", {**common, "replayed": True, "durable": "none"}),
        ("perdure.load", common),
    ]
    scope = spans.ended[0].instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.version) == ("perdure", perdure.__version__)


def test_a_call_that_raises_records_the_exception_and_its_code(spans: Spans) -> None:
    async def main() -> None:
        async with perdure.open("memory://") as store:
            instrument(store, spans.provider)
            with pytest.raises(NotFoundError):
                await store.load("missing")
            await store.commit("t", messages=[Message.user("a")])
            with pytest.raises(VersionConflict):
                await store.commit("t", expect=9, messages=[Message.user("b")])
            with pytest.raises(InvalidError):
                await store.commit(7)  # type: ignore[arg-type]

    asyncio.run(main())
    missing, sound, conflict, invalid = spans.ended
    assert [span.status.status_code for span in spans.ended] == [
        StatusCode.ERROR,
        StatusCode.UNSET,
        StatusCode.ERROR,
        StatusCode.ERROR,
    ]
    assert [(span.attributes or {}).get("perdure.error_code") for span in (missing, sound, conflict, invalid)] == [
        "not_found",
        None,
        "version_conflict",
        "invalid",
    ]
    assert [event.name for event in conflict.events] == ["exception"]
    assert "perdure.thread_id" not in (invalid.attributes or {})


def test_scoped_stores_are_instrumented_and_others_are_not(spans: Spans) -> None:
    async def main() -> None:
        async with perdure.open("memory://") as store, perdure.open("memory://") as other:
            before = store.scoped("before")
            instrument(instrument(store, spans.provider), spans.provider)
            for target in (before, store.scoped("b").scoped("c"), other):
                await target.commit("t", messages=[Message.user("a")])

    asyncio.run(main())
    assert [facts["scope"] for _, facts in spans.facts()] == ["c"]


@pytest.mark.parametrize("face", ["async", "sync"])
def test_spans_belong_to_the_span_of_the_caller(face: str, spans: Spans, tmp_path: Path) -> None:
    tracer = spans.provider.get_tracer("test")

    async def main() -> None:
        async with perdure.open(tmp_path / "a.db") as store:
            instrument(store, spans.provider)
            with tracer.start_as_current_span("step"):
                await store.commit("t", messages=[Message.user("a")])

    if face == "async":
        asyncio.run(main())
    else:
        with perdure.sync.open(tmp_path / "a.db") as store:
            instrument(store, spans.provider)
            with tracer.start_as_current_span("step"):
                store.commit("t", messages=[Message.user("a")])
                assert store.scoped("b").commit("t", messages=[Message.user("a")]).version == 1
    *commits, step = spans.ended
    assert step.name == "step"
    assert commits
    for commit in commits:
        assert commit.parent is not None
        assert commit.parent.span_id == step.context.span_id


def test_the_calls_keep_their_signatures(spans: Spans) -> None:
    with perdure.sync.open("memory://") as plain_store, perdure.sync.open("memory://") as store:
        instrument(store, spans.provider)
        for name in ("commit", "load", "scoped"):
            traced, plain_call = getattr(store._inner, name), getattr(plain_store._inner, name)
            assert inspect.signature(traced) == inspect.signature(plain_call)
            assert traced.__doc__ == plain_call.__doc__


@pytest.mark.parametrize("nonsense", [None, "memory://", 7, object()])
def test_only_a_store_can_be_instrumented(nonsense: Any) -> None:
    with pytest.raises(InvalidError, match="instrument takes an open store"):
        instrument(nonsense)


def test_without_opentelemetry_only_this_module_is_missing() -> None:
    answer = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, check=True, text=True)
    assert answer.stdout.strip() == (
        "perdure.otel needs OpenTelemetry, which is not installed (pip install opentelemetry-api)"
    )


def test_nothing_else_imports_opentelemetry() -> None:
    code = "import perdure, perdure.sync, sys; sys.exit('opentelemetry' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
