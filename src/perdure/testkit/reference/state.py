"""State documents in the reference: read, listed, written and deleted, with their rev guards."""

from __future__ import annotations

from typing import Any

from perdure.testkit.reference.records import Document, Json, Refusal, World
from perdure.testkit.reference.views import document_data, documents


def find(world: World, *, thread_id: str, name: str, run_id: str | None = None) -> Json | None:
    """`state.find`."""
    document = world.thread(thread_id).state.get((run_id, name))
    return None if document is None else document_data(name, run_id, document)


def get(world: World, *, thread_id: str, name: str, run_id: str | None = None) -> Json:
    """`state.get`."""
    document = find(world, thread_id=thread_id, name=name, run_id=run_id)
    if document is None:
        raise Refusal("NotFoundError")
    return document


def listed(world: World, *, thread_id: str, run_id: str | None = None) -> list[Json]:
    """`state.list`."""
    return list(documents(world.thread(thread_id), run_id).values())


def _prepare_write(world: World, thread_id: str, name: str, run_id: str | None, if_rev: int | None) -> None:
    thread = world.thread(thread_id)
    if run_id is not None and (run_id not in world.runs or world.runs[run_id].thread_id != thread_id):
        raise Refusal("NotFoundError")
    document = thread.state.get((run_id, name))
    if if_rev is not None and if_rev != (0 if document is None else document.rev):
        raise Refusal("VersionConflict")
    world.next_tick()
    thread.updated_at = world.now


def put(
    world: World, *, thread_id: str, name: str, value: list[Any], run_id: str | None = None, if_rev: int | None = None
) -> Json:
    """`state.put`; `value` is the document and its schema."""
    _prepare_write(world, thread_id, name, run_id, if_rev)
    document = Document(value[0], value[1], world.now, world.tick)
    world.threads[thread_id].state[run_id, name] = document
    return document_data(name, run_id, document)


def delete(world: World, *, thread_id: str, name: str, run_id: str | None = None, if_rev: int | None = None) -> None:
    """`state.delete`."""
    _prepare_write(world, thread_id, name, run_id, if_rev)
    world.threads[thread_id].state.pop((run_id, name), None)
