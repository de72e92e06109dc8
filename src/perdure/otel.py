"""OpenTelemetry spans for `commit` and `load`, on request: `perdure.otel.instrument(store)`.

Only this module imports OpenTelemetry (the package `opentelemetry-api`, the extra `otel`), and only a store that was
instrumented pays for it: the two calls of that one object are replaced by calls in a span.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import perdure
from perdure import limits, sync
from perdure.errors import InvalidError, PerdureError, short_repr
from perdure.model.receipt import Receipt, Snapshot
from perdure.stores.store import Store
from perdure.sync.face import async_twin

try:
    from opentelemetry import trace
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "perdure.otel needs OpenTelemetry, which is not installed (pip install opentelemetry-api)", name="opentelemetry"
    ) from None

StoreT = TypeVar("StoreT", bound=Store | sync.Store)


def instrument(store: StoreT, tracer_provider: trace.TracerProvider | None = None) -> StoreT:
    """Make every `commit` and `load` of this store a span, `perdure.commit` or `perdure.load`; returns the store.

    - `store`: an open store, async or blocking. Stores that it makes later with `scoped` are instrumented too; a store
      that is instrumented already stays as it is.
    - `tracer_provider`: where the spans go. By default the global provider, which drops them until an SDK is set up.

    Spans have the attributes `perdure.engine`, `perdure.scope` and `perdure.thread_id`; those of commits also
    `perdure.messages` (how many), `perdure.replayed` and `perdure.durable`; those of loads `perdure.messages`. A call
    that raises records the exception, and `perdure.error_code` if it is an error of Perdure.
    """
    opened: object = store
    inner = async_twin(opened) if isinstance(opened, sync.Store) else opened
    if not isinstance(inner, Store):
        raise InvalidError(f"instrument takes an open store, not {short_repr(store)}")
    if "commit" not in vars(inner):
        _wrap(inner, trace.get_tracer("perdure", perdure.__version__, tracer_provider))
    return store


def _wrap(store: Store, tracer: trace.Tracer) -> None:
    """Put traced calls in front of those of the class, on this object."""
    plain_commit, plain_load, plain_scoped = store.commit, store.load, store.scoped

    @wraps(plain_commit)
    async def commit(thread_id: str, **options: Any) -> Receipt:
        with _span(tracer, "perdure.commit", store, thread_id) as span:
            messages = options.get("messages", ())
            if isinstance(messages, (list, tuple)):
                span.set_attribute("perdure.messages", len(messages))
            receipt: Receipt = await plain_commit(thread_id, **options)
            span.set_attribute("perdure.replayed", receipt.replayed)
            span.set_attribute("perdure.durable", receipt.durable)
            return receipt

    @wraps(plain_load)
    async def load(thread_id: str, **options: Any) -> Snapshot:
        with _span(tracer, "perdure.load", store, thread_id) as span:
            snapshot = await plain_load(thread_id, **options)
            span.set_attribute("perdure.messages", len(snapshot.messages))
            return snapshot

    @wraps(plain_scoped)
    def scoped(scope: str) -> Store:
        other = plain_scoped(scope)
        _wrap(other, tracer)
        return other

    vars(store).update(commit=commit, load=load, scoped=scoped)


@contextmanager
def _span(tracer: trace.Tracer, name: str, store: Store, thread_id: object) -> Iterator[trace.Span]:
    attributes = {"perdure.engine": store.capabilities().engine, "perdure.scope": store.scope}
    if isinstance(thread_id, str):
        attributes["perdure.thread_id"] = thread_id[: limits.ID_BYTES].encode(errors="replace").decode()
    with tracer.start_as_current_span(name, kind=trace.SpanKind.CLIENT, attributes=attributes) as span:
        try:
            yield span
        except PerdureError as error:
            span.set_attribute("perdure.error_code", error.code)
            raise
