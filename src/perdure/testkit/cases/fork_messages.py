"""Cases: a fork that brings its first messages. One transaction, the same checks as a commit, safe to repeat."""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.errors import AlreadyExists, InvalidError, KeyReused, NotFoundError, StaleClaim
from perdure.model.message import Message
from perdure.testkit.helpers import fork_x, path, say
from perdure.testkit.kit import Kit, case, equal, expect, raises
from perdure.testkit.probe import dump, overtaken, together, untouched

FORK = ("branches.fork",)


def users(*texts: str) -> list[Message]:
    """User messages whose ids are their texts."""
    return [Message.user(text, id=text) for text in texts]


@case("branches", "fork-messages", covers=FORK)
async def case_fork_messages(kit: Kit) -> None:
    """The branch and its messages are there together: head, lengths, preview and version are right at once."""
    await say(kit.store, "t", *"abc")
    kit.clock.advance(5)
    made = await kit.store.branches.fork("t", before="c", name="x", switch=True, messages=users("d", "e"))
    expected = fork_x(kit, head="e", head_seq=5, length=2, path_length=4, current=True, preview="e")
    equal(made, expected, "the branch")
    equal(await kit.store.branches.current("t"), expected, "as it is read")
    equal((await path(kit), await path(kit, 0)), (["a", "b", "d", "e"], ["a", "b", "c"]), "paths")
    equal((await kit.store.threads.get("t")).version, 5, "the version")
    equal((await kit.store.messages.get("t", "d")).parent_id, "b", "the parent")


@case("branches", "fork-messages-elsewhere", covers=FORK)
async def case_fork_messages_elsewhere(kit: Kit) -> None:
    """Without a switch the current branch stays; a root may bring messages too, and ids are minted."""
    await say(kit.store, "t", "a")
    made = await kit.store.branches.fork("t", at="a", messages=[Message.user("two")])
    equal((made.current, made.path_length, made.preview), (False, 2, "two"), "a fork aside")
    await say(kit.store, "t", "b")
    equal(await path(kit), ["a", "b"], "the current branch")
    root = await kit.store.branches.fork("t", at=None, messages=[Message.system("x"), Message.user("y")])
    equal((root.parent, root.fork_seq, root.length, root.path_length), (None, 0, 2, 2), "a root")
    records = await kit.store.messages.history("t", branch=root.id)
    equal([record.text for record in records], ["x", "y"], "its path")
    equal((await kit.store.branches.get("t", root.id)).head, records[-1].message_id, "its head has a minted id")


@case("branches", "fork-messages-refused", covers=FORK)
async def case_fork_messages_refused(kit: Kit) -> None:
    """Messages are checked as in a commit, and a refusal leaves neither the branch nor a message."""
    await say(kit.store, "t", "a", "b")
    await kit.store.pending.append("t", users("queued"))
    fork = kit.store.branches.fork

    async def refused(kind: type[BaseException], what: str, **options: Any) -> None:
        await untouched(kit.store, kind, fork("t", at="a", **options), what)

    await refused(InvalidError, "not a list", messages=Message.user("x"))
    await refused(InvalidError, "not messages", messages=["x"])
    await refused(InvalidError, "twice one id", messages=users("x", "x"))
    await refused(InvalidError, "a result that is no result", messages=[Message(role="tool", content=[])])
    await refused(InvalidError, "a summary of what is to come", messages=[Message.summary("s", 1, 9)])
    await refused(InvalidError, "too many", messages=users(*map(str, range(limits.COMMIT_MESSAGES + 1))))
    await refused(InvalidError, "too long", messages=[Message.user("x" * (limits.MESSAGE_BYTES + 1))])
    await refused(InvalidError, "a key without messages", key="k")
    await refused(InvalidError, "a fence that is no number", messages=users("x"), fence="1")
    await refused(AlreadyExists, "an id of the log", messages=users("x", "b"))
    await refused(AlreadyExists, "an id of the queue", messages=users("queued"))
    await refused(AlreadyExists, "a name", messages=users("x"), name="main")
    await untouched(kit.store, NotFoundError, fork("t", at="missing", messages=users("x")), "at a missing message")
    await untouched(kit.store, NotFoundError, fork("u", at=None, messages=users("x")), "a missing thread")


@case("branches", "fork-fence", covers=FORK)
async def case_fork_fence(kit: Kit) -> None:
    """A fork takes a fence: an old one is refused, a new one counts from then on."""
    await say(kit.store, "t", "a")
    await kit.store.branches.fork("t", at="a", fence=3)
    equal((await kit.store.threads.get("t")).fence, 3, "the fence")
    await untouched(kit.store, StaleClaim, kit.store.branches.fork("t", at="a", fence=2), "an old fence")
    await untouched(kit.store, StaleClaim, kit.store.branches.fork("t", at="a", fence=2, messages=users("x")), "again")


@case("branches", "fork-key", covers=FORK)
async def case_fork_key(kit: Kit) -> None:
    """A repeated fork with a key has one effect and returns the branch as it is now; other content is refused."""
    await say(kit.store, "t", "a", "b")
    options: dict[str, Any] = {"name": "x", "switch": True, "messages": [Message.user("one")], "key": "k"}
    first = await kit.store.branches.fork("t", at="a", **options)
    before = await dump(kit.store)
    equal(await kit.store.branches.fork("t", at="a", **options), first, "the same branch")
    equal(await dump(kit.store), before, "nothing was written")
    fork = kit.store.branches.fork
    await untouched(kit.store, KeyReused, fork("t", at="b", **options), "at another message")
    await untouched(kit.store, KeyReused, fork("t", at="a", **{**options, "name": "y"}), "another name")
    await untouched(kit.store, KeyReused, fork("t", at="a", **{**options, "switch": False}), "without a switch")
    await untouched(kit.store, KeyReused, fork("t", at="a", **{**options, "messages": users("z")}), "other messages")
    commit = kit.store.commit("t", messages=[Message.user("one")], key="k")
    await untouched(kit.store, KeyReused, commit, "a commit under the key of a fork")
    await say(kit.store, "t", "more")
    again = await (await kit.second()).branches.fork("t", at="a", **options)
    equal((again.id, again.head, again.length, again.path_length), (first.id, "more", 2, 3), "as it is now")


@case("branches", "fork-messages-race", covers=FORK)
async def case_fork_messages_race(kit: Kit) -> None:
    """Forks at once get numbers, names and messages of their own; with one key only one of them is made."""
    await say(kit.store, "t", "a")
    stores = [kit.store, await kit.second()]
    made = await together(
        *[stores[n % 2].branches.fork("t", at="a", messages=users(f"m{n}"), switch=n % 2 == 0) for n in range(8)]
    )
    equal(sorted(branch.id for branch in made), list(range(1, 9)), "numbers")
    for n, branch in enumerate(made):
        equal((branch.head, branch.length, branch.path_length), (f"m{n}", 1, 2), f"fork {n}")
        equal(await path(kit, branch.id), ["a", f"m{n}"], f"the path of fork {n}")
    keyed = await together(
        *[store.branches.fork("t", at="a", messages=[Message.user("k")], key="k") for store in stores * 3]
    )
    equal(len({branch.id for branch in keyed}), 1, "branches made under one key")
    equal(len(await kit.store.branches.list("t")), 10, "branches")
    equal((await kit.store.threads.get("t")).version, 10, "messages")


@case("branches", "fork-race-append", covers=FORK)
async def case_fork_race_append(kit: Kit) -> None:
    """A fork that is overtaken by a commit, by another fork or by its own name still lands once, or is refused."""
    await say(kit.store, "t", "a", "b")
    made, _ = await overtaken(
        kit, lambda s: s.branches.fork("t", at="a", messages=users("x")), lambda s: say(s, "t", "c")
    )
    equal((made.head, made.head_seq, made.fork_seq, made.path_length), ("x", 4, 1, 2), "after a commit")
    made, other = await overtaken(
        kit,
        lambda s: s.branches.fork("t", at="b", messages=users("y")),
        lambda s: s.branches.fork("t", at="b", messages=users("z")),
    )
    equal((made.id, other.id, made.name), (3, 2, "branch-3"), "after a fork")
    refused, _ = await overtaken(
        kit,
        lambda s: s.branches.fork("t", at="b", messages=users("v"), name="n"),
        lambda s: s.branches.fork("t", at="b", messages=users("w"), name="n"),
    )
    expect(isinstance(refused, AlreadyExists), f"the name is taken: {refused!r}")
    await raises(NotFoundError, kit.store.messages.get("t", "v"))
    gone, _ = await overtaken(
        kit, lambda s: s.branches.fork("t", at="a", messages=users("u")), lambda s: s.threads.delete("t")
    )
    expect(isinstance(gone, NotFoundError), f"the thread is gone: {gone!r}")


@case("branches", "fork-made-up-name", covers=FORK)
async def case_fork_made_up_name(kit: Kit) -> None:
    """Where the name of the next number is taken, another one is made up, and the messages come along."""
    await say(kit.store, "t", "a")
    await kit.store.branches.rename("t", 0, "branch-1")
    made = await kit.store.branches.fork("t", at="a", messages=users("x"))
    expect(made.name.startswith("branch-1-"), f"a name of its own: {made.name}")
    equal((made.id, made.head), (1, "x"), "the branch")
