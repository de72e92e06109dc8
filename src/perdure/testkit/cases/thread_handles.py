"""Cases: `store.thread`. A handle is the calls of the stores with the id of its thread filled in."""

from __future__ import annotations

from perdure.errors import InvalidError, NotFoundError
from perdure.model.message import Message
from perdure.testkit.kit import Kit, case, collect, equal, raises


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


@case("threads", "handle-refused", covers=("store.thread",))
async def case_handle_refused(kit: Kit) -> None:
    """A wrong id is refused when the handle is made, before anything is read."""
    for bad in ("", "a\nb", "x" * 257, 5, None):
        try:
            kit.store.thread(bad)  # type: ignore[arg-type]
        except InvalidError:
            continue
        raise InvalidError(f"{bad!r} was accepted as a thread id")
