"""A blocking store on a server runs its calls on another thread, in an event loop: their spans keep their parent."""

from __future__ import annotations

import asyncio

from tests.support.servers import fresh_database, server
from tests.unit.test_otel import Spans

import perdure.sync
from perdure import Message
from perdure.otel import instrument


def test_a_blocking_store_on_a_server_keeps_the_span_of_the_caller() -> None:
    spans = Spans()
    url = asyncio.run(fresh_database(server("postgres"), "otel"))
    with perdure.sync.open(url) as store:
        instrument(store, spans.provider)
        with spans.provider.get_tracer("test").start_as_current_span("step"):
            store.commit("t", messages=[Message.user("a")])
    commit, step = spans.ended
    assert commit.parent is not None
    assert commit.parent.span_id == step.context.span_id
    assert (commit.attributes or {})["perdure.engine"] == "postgres"
