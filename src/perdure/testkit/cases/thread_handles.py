"""Cases: `store.thread`. A handle is the calls of the stores with the id of its thread filled in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from perdure.errors import InvalidError, NotFoundError
from perdure.model.message import Compaction, Message
from perdure.model.thread import NewThread
from perdure.model.tickets import Ticket
from perdure.stores.thread_handle import ThreadHandle
from perdure.testkit.kit import Kit, case, collect, equal, raises
from perdure.testkit.probe import untouched


@case("threads", "handle", covers=("store.thread",))
async def case_handle(kit: Kit) -> None:
    """Every call of a handle reaches its own thread and no other."""
    chat, other = kit.store.thread("t"), kit.store.thread("u")
    equal(await chat.find(), None, "a handle creates nothing")
    await raises(NotFoundError, chat.get(), "no thread yet")
    await other.append(Message.user("elsewhere"))
    equal((await chat.ensure(title="A trip", resource_id="ann")).title, "A trip", "created")
    first = await chat.append(Message.user("q"), Message.assistant("a"), state={"plan": 1}, key="k")
    again = await chat.append(Message.user("q"), Message.assistant("a"), state={"plan": 1}, key="k")
    equal((again.replayed, again.message_ids), (True, first.message_ids), "the options of a commit")
    run = await chat.start("agent", messages=[Message.user("go")])
    done = await chat.commit(messages=[Message.assistant("done")], run=run.finish("done"))
    equal((done.run.status, done.version), ("done", 4), "a run")
    branch = await chat.fork(at=first.message_ids[0], name="else", messages=[Message.user("b")], switch=True)
    equal([record.text for record in await chat.history()], ["q", "b"], "the fork")
    equal([record.text for record in await chat.path(branch="main")], ["q", "a", "go", "done"], "another branch")
    equal([record.text for record in (await chat.page(limit=1)).items], ["b"], "a page")
    equal([variant.branch for variant in await chat.variants(first.message_ids[1])], [0, branch.id], "variants")
    equal((await chat.checkout(done.message_ids[0])).id, 0, "checkout")
    equal((await chat.load()).state["plan"].value, 1, "load")
    equal(len((await chat.tree()).nodes), 5, "tree")
    equal([record.text for record in await collect(chat.follow(timeout=0, after_seq=4))], ["b"], "follow")
    await chat.delete()
    equal(await chat.find(), None, "deleted")
    equal((await other.get()).version, 1, "the other thread is as it was")


@case("threads", "handle-owned", covers=("store.thread",))
async def case_handle_owned(kit: Kit) -> None:
    """A handle with a resource reaches the threads of this resource; those of others do not exist for it."""
    mine, theirs = kit.store.thread("t", resource_id="ann"), kit.store.thread("t", resource_id="bob")
    equal((mine.resource_id, kit.store.thread("t").resource_id), ("ann", None), "the resource")
    await raises(NotFoundError, mine.append(Message.user("x")), "a missing thread is nobody's")
    run = await mine.start("agent", messages=[Message.user("q", id="q")])
    asking = (await mine.commit(run=run.wait([Ticket(ticket_id="k")]))).run
    equal((await mine.get()).resource_id, "ann", "created with its resource")
    equal(await theirs.find(), None, "not found")
    equal(await mine.find(resource_id="bob"), None, "both must hold")
    refused: dict[str, Callable[[], Awaitable[object]]] = {
        "get": theirs.get,
        "get of mine": lambda: mine.get(resource_id="bob"),
        "ensure": theirs.ensure,
        "update": lambda: theirs.update(title="x"),
        "delete": theirs.delete,
        "append": lambda: theirs.append(Message.user("x")),
        "commit": lambda: theirs.commit(messages=[Message.user("x")]),
        "load": theirs.load,
        "history": theirs.history,
        "external": theirs.external,
        "path": theirs.path,
        "page": theirs.page,
        "unfinished_calls": theirs.unfinished_calls,
        "fork": lambda: theirs.fork(at="q"),
        "checkout": lambda: theirs.checkout("q"),
        "switch": lambda: theirs.switch(0),
        "variants": lambda: theirs.variants("q"),
        "tree": theirs.tree,
        "start": lambda: theirs.start("agent"),
        "rerun": lambda: theirs.rerun(run.id),
        "cancel": lambda: theirs.cancel(run.id),
        "decide": lambda: theirs.decide(run.id, "k", True),
        "follow": lambda: collect(theirs.follow(timeout=0)),
        "follow_runs": lambda: collect(theirs.follow_runs(timeout=0)),
        "follow_drafts": lambda: collect(theirs.follow_drafts(timeout=0)),
        "follow_all": lambda: collect(theirs.follow_all(timeout=0)),
    }
    calls = {name for name in vars(ThreadHandle) if not name.startswith("_")} - {"id", "resource_id"}
    equal(calls - set(refused), {"find", "buffered"}, "calls that this case leaves out")
    for name, call in refused.items():
        await untouched(kit.store, NotFoundError, call(), name)
    equal([each.id for each in await collect(mine.follow_runs(timeout=0))], [asking.id], "its own runs")
    equal([each.message_id for each in await collect(mine.follow(timeout=0))], ["q"], "its own messages")
    equal((await mine.ensure()).id, "t", "it exists")
    followers = (mine.follow(), mine.follow_runs(), kit.store.runs.follow(run.id, resource_id="ann"))
    equal([getattr(await anext(each), "thread_id", None) for each in followers], ["t", "t", "t"], "what is there")
    await (await kit.second()).threads.update("t", resource_id="bob")
    await kit.store.commit("t", messages=[Message.user("for bob")], run=asking)
    for follower in followers:
        await raises(NotFoundError, anext(follower), "the thread belongs to another one now")
    equal((await kit.store.thread("u", resource_id="bob").ensure(title="b")).resource_id, "bob", "created for another")


@case("runs", "start-owned-summary", covers=("runs.start", "runs.create"))
async def case_start_owned_summary(kit: Kit) -> None:
    """Whose thread it is comes first: no error tells how long another's thread is."""
    await kit.store.commit("t", messages=[Message.user("one")], thread=NewThread(resource_id="ann"))
    for last in (1, 9):
        summary = Message.user("so far", visibility="internal", compaction=Compaction(1, last))
        for start in (kit.store.runs.start, kit.store.runs.create):
            await raises(NotFoundError, start("t", "agent", messages=[summary], resource_id="bob"), f"up to {last}")
    await raises(InvalidError, kit.store.runs.start("t", "agent", messages=[summary], resource_id="ann"), "one's own")


@case("threads", "handle-owned-refused", covers=("store.thread",))
async def case_handle_owned_refused(kit: Kit) -> None:
    """A handle refuses another resource than its own, and what cannot check it."""
    mine = kit.store.thread("t", resource_id="ann")
    await raises(InvalidError, mine.start("agent", resource_id="bob"), "start for another")
    await raises(InvalidError, mine.ensure(resource_id="bob"), "ensure for another")
    attempts: list[Callable[[], object]] = [mine.buffered]
    attempts += [partial(kit.store.thread, "t", resource_id=owner) for owner in ("", " ", "ann ", "\u00a0ann")]
    for attempt in attempts:
        try:
            attempt()
        except InvalidError:
            continue
        raise InvalidError(f"{attempt!r} was accepted")
    equal(await kit.store.threads.find("t"), None, "nothing was created")


@case("threads", "handle-refused", covers=("store.thread",))
async def case_handle_refused(kit: Kit) -> None:
    """A wrong id is refused when the handle is made, before anything is read."""
    for bad in ("", "a\nb", "x" * 257, 5, None):
        try:
            kit.store.thread(bad)  # type: ignore[arg-type]
        except InvalidError:
            continue
        raise InvalidError(f"{bad!r} was accepted as a thread id")
