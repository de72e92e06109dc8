"""Cases: the guards of a commit: expect, expect_head, fence, branch; and which refusal wins if several apply.

The order is: shape, key, fence, expect (with the branch and its head), the run, state, message ids. A worker that was
superseded must learn that first, and a commit that already landed is simply replayed.
"""

from __future__ import annotations

from typing import Any

from perdure.errors import (
    AlreadyExists,
    ConflictError,
    IllegalTransition,
    InvalidError,
    KeyReused,
    NotFoundError,
    StaleClaim,
    VersionConflict,
)  # fmt: skip
from perdure.model.message import Message
from perdure.model.run import NewRun
from perdure.testkit.helpers import commit_texts, conflict, move, race, texts
from perdure.testkit.kit import Kit, case, equal
from perdure.testkit.probe import dump, untouched


@case("commit", "expect", covers=("store.commit",))
async def case_expect(kit: Kit) -> None:
    """expect is the thread's version; a stale one names both and writes nothing, with messages and without."""
    await commit_texts(kit.store, "t", "a", "b", expect=0)
    conflict(await untouched(kit.store, VersionConflict, commit_texts(kit.store, "t", "c", expect=0)), 0, 2)
    conflict(await untouched(kit.store, VersionConflict, commit_texts(kit.store, "t", "c", expect=3)), 3, 2)
    bare = kit.store.commit("t", state={"s": 1}, expect=1)
    conflict(await untouched(kit.store, VersionConflict, bare, "without messages"), 1, 2)
    await kit.store.commit("t", state={"s": 1}, expect=2)
    equal((await commit_texts(kit.store, "t", "c", expect=2)).version, 3, "the right version")


@case("commit", "expect-all-branches", covers=("store.commit",))
async def case_expect_all_branches(kit: Kit) -> None:
    """The version counts messages over all branches, and never falls."""
    receipt = await commit_texts(kit.store, "t", "a", "b")
    fork = await kit.store.branches.fork("t", at=receipt.message_ids[0])
    await commit_texts(kit.store, "t", "c", branch=fork.id, expect=2)
    conflict(await untouched(kit.store, VersionConflict, commit_texts(kit.store, "t", "d", branch=0, expect=2)), 2, 3)
    await kit.store.branches.delete("t", fork.id)
    equal((await commit_texts(kit.store, "t", "d", expect=3)).version, 4, "a deleted branch's messages still count")


@case("commit", "expect-head", covers=("store.commit",))
async def case_expect_head(kit: Kit) -> None:
    """expect_head is the branch's last message: writers on parallel branches do not disturb each other."""
    one, two = (await commit_texts(kit.store, "t", "a", "b")).message_ids
    fork = await kit.store.branches.fork("t", at=one)
    side = await commit_texts(kit.store, "t", "c", branch=fork.id, expect_head=one)
    main = await commit_texts(kit.store, "t", "d", branch=0, expect_head=two)
    late = commit_texts(kit.store, "t", "e", branch=0, expect_head=two)
    conflict(await untouched(kit.store, VersionConflict, late), two, main.message_ids[-1])
    wrong = commit_texts(kit.store, "t", "e", expect_head=side.message_ids[-1])
    await untouched(kit.store, VersionConflict, wrong, "another branch's head")
    bare = kit.store.commit("t", state={"s": 1}, expect_head=two)
    await untouched(kit.store, VersionConflict, bare, "without messages")
    await kit.store.commit("t", state={"s": 1}, expect_head=main.message_ids[-1])


@case("commit", "expect-head-empty", covers=("store.commit",))
async def case_expect_head_empty(kit: Kit) -> None:
    """A branch without records ends at its fork point; a root without records ends nowhere."""
    await kit.store.threads.create("t")
    conflict(await untouched(kit.store, VersionConflict, commit_texts(kit.store, "t", "a", expect_head="m")), "m", None)
    (one,) = (await commit_texts(kit.store, "t", "a")).message_ids
    fork = await kit.store.branches.fork("t", at=one, switch=True)
    await commit_texts(kit.store, "t", "b", expect_head=one)
    equal(texts(await kit.store.messages.history("t", branch=fork.id)), ["a", "b"], "the fork")


@case("commit", "racing-heads", covers=("store.commit",))
async def case_racing_heads(kit: Kit) -> None:
    """Writers on two branches that each guard their own head both go on; of two on one branch, one does."""
    (one,) = (await commit_texts(kit.store, "t", "a")).message_ids
    fork = await kit.store.branches.fork("t", at=one)
    clients = [kit.store, await kit.second()]
    calls = [
        commit_texts(clients[i % 2], "t", str(i), branch=(0, fork.id)[i // 2 % 2], expect_head=one) for i in range(16)
    ]
    won, lost = await race(*calls)
    equal((len(won), len(lost)), (2, 14), "one winner a branch")
    equal([b.length for b in await kit.store.branches.list("t")], [2, 1], "lengths")


@case("commit", "branch-target", covers=("store.commit",))
async def case_branch_target(kit: Kit) -> None:
    """A commit goes to the branch it names, by number or name, else to the current one; others are not found."""
    (one,) = (await commit_texts(kit.store, "t", "a")).message_ids
    fork = await kit.store.branches.fork("t", at=one, name="side")
    await commit_texts(kit.store, "t", "b", branch="side")
    await commit_texts(kit.store, "t", "c", branch=fork.id)
    await commit_texts(kit.store, "t", "d")
    equal(texts(await kit.store.messages.history("t", branch="side")), ["a", "b", "c"], "side")
    equal(texts(await kit.store.messages.history("t")), ["a", "d"], "main")
    gone = await kit.store.branches.fork("t", at=one, name="gone")
    await kit.store.branches.delete("t", "gone")
    for branch in (9, "nowhere", gone.id, "gone"):
        await untouched(kit.store, NotFoundError, commit_texts(kit.store, "t", "x", branch=branch), repr(branch))
        bare = kit.store.commit("t", state={"s": 1}, branch=branch)
        await untouched(kit.store, NotFoundError, bare, f"{branch!r} without messages")


@case("commit", "deleted-branch-of-run", covers=("store.commit", "branches.delete"))
async def case_deleted_branch_of_run(kit: Kit) -> None:
    """A branch is not deleted while a run that is not done lives on it, in whatever status."""
    (one,) = (await commit_texts(kit.store, "t", "a")).message_ids
    fork = await kit.store.branches.fork("t", at=one)
    run = await kit.store.runs.start("t", "agent", branch=fork.id)
    for change in ("step", "wait", "resume"):
        run = await move(kit.store, getattr(run, change)())
        await untouched(kit.store, ConflictError, kit.store.branches.delete("t", fork.id), f"after {change}")
    created = await kit.store.runs.create("t", "agent", branch=fork.id)
    await move(kit.store, run.finish())
    await untouched(kit.store, ConflictError, kit.store.branches.delete("t", fork.id), "a created run")
    await move(kit.store, created.cancel())
    await kit.store.branches.delete("t", fork.id)
    await untouched(kit.store, NotFoundError, commit_texts(kit.store, "t", "x", branch=fork.id))


@case("commit", "stale-guess", covers=("store.commit", "branches.switch"))
async def case_stale_guess(kit: Kit) -> None:
    """When another client switched the branch, commits go to the new one, whatever this client remembers."""
    (one,) = (await commit_texts(kit.store, "t", "a")).message_ids
    other = await kit.second()
    await commit_texts(other, "t", "b")
    for turn in range(3):
        fork = await kit.store.branches.fork("t", at=one, switch=True)
        await commit_texts(other, "t", f"x{turn}")
        equal(texts(await kit.store.messages.history("t", branch=fork.id)), ["a", f"x{turn}"], f"turn {turn}")
        run = await other.runs.start("t", "agent")
        equal(run.branch, fork.id, "a run starts on the new branch")
    await kit.store.branches.switch("t", 0)
    await commit_texts(other, "t", "c")
    equal(texts(await kit.store.messages.history("t")), ["a", "b", "c"], "back on the main branch")


@case("commit", "stale-guess-head", covers=("store.commit",))
async def case_stale_guess_head(kit: Kit) -> None:
    """expect_head is judged on the branch that is current now, not on the one this client remembers."""
    one, two = (await commit_texts(kit.store, "t", "a", "b")).message_ids
    other = await kit.second()
    await commit_texts(other, "t", state={"n": 0}, expect_head=two)
    await kit.store.branches.fork("t", at=one, switch=True)
    error = await untouched(kit.store, VersionConflict, other.commit("t", state={"n": 1}, expect_head=two))
    conflict(error, two, one)
    other = await kit.second()
    error = await untouched(kit.store, VersionConflict, commit_texts(other, "t", "x", expect_head=two))
    conflict(error, two, one)
    await other.commit("t", state={"n": 1}, expect_head=one)


@case("commit", "fence", covers=("store.commit",))
async def case_fence(kit: Kit) -> None:
    """A fence only rises; a commit under an older one is refused, whatever it carries; the same one goes on."""
    await kit.store.threads.create("t")
    await commit_texts(kit.store, "t", "a", fence=5)
    equal((await kit.store.threads.get("t")).fence, 5, "the fence")
    carried: list[dict[str, Any]] = [
        {},
        {"messages": [Message.user("x")]},
        {"state": {"s": 1}},
        {"run": NewRun(agent_id="a")},
    ]
    for options in carried:
        error = await untouched(kit.store, StaleClaim, kit.store.commit("t", fence=4, **options), repr(options)[:60])
        conflict(error, 4, 5)
    await commit_texts(kit.store, "t", "b", fence=5)
    await kit.store.commit("t", fence=9)
    conflict(await untouched(kit.store, StaleClaim, commit_texts(kit.store, "t", "c", fence=5)), 5, 9)


@case("commit", "unfenced", covers=("store.commit",))
async def case_unfenced(kit: Kit) -> None:
    """A commit without a fence is allowed, and neither lowers nor raises it."""
    await kit.store.threads.create("t")
    await commit_texts(kit.store, "t", "a", fence=5)
    await commit_texts(kit.store, "t", "b")
    equal((await kit.store.threads.get("t")).fence, 5, "after an unfenced commit")
    await untouched(kit.store, StaleClaim, commit_texts(kit.store, "t", "c", fence=4))
    equal((await kit.store.threads.create("u")).fence, None, "an unclaimed thread")
    await kit.store.commit("u", fence=0)
    equal((await kit.store.threads.get("u")).fence, 0, "zero is a fence")


@case("commit", "zombie", covers=("store.commit",))
async def case_zombie(kit: Kit) -> None:
    """Once a newer claim started, nothing of the older one lands, from any client, in any number."""
    run = await kit.store.runs.start("t", "agent")
    run = await move(kit.store, run.step(), fence=1)
    zombie = await kit.second()
    await kit.store.commit("t", fence=2)
    calls = [
        commit_texts(zombie, "t", "late", run=run.step(), fence=1),
        commit_texts(zombie, "t", "late", run=run.finish(), fence=1, key="k"),
        zombie.commit("t", state={"s": 1}, fence=1),
        zombie.runs.start("t", "agent", fence=1),
        zombie.pending.freeze("t", messages=[Message.user("late")], fence=1),
    ]
    for call in calls:
        await untouched(kit.store, StaleClaim, call)
    await move(kit.store, run.finish(), fence=2)


@case("commit", "racing-fences", covers=("store.commit",))
async def case_racing_fences(kit: Kit) -> None:
    """Commits under many fences at once: the fence ends at the highest, and in the log it never falls."""
    await kit.store.threads.create("t")
    clients = [kit.store, await kit.second()]
    order = [5, 1, 8, 3, 7, 2, 8, 6, 4, 8]
    won, lost = await race(
        *[commit_texts(clients[i % 2], "t", str(fence), fence=fence) for i, fence in enumerate(order)]
    )
    equal({type(error) for error in lost} - {StaleClaim}, set(), "losers are stale claims")
    landed = [int(text) for text in texts(await kit.store.messages.history("t"))]
    equal(landed, sorted(landed), "in the log, fences never fall")
    equal(((await kit.store.threads.get("t")).fence, len(landed)), (8, len(won)), "the highest; the winners")


async def trouble(kit: Kit) -> dict[str, Any]:
    """A thread on which each of the returned options is refused, each for its own reason."""
    store = kit.store
    receipt = await store.commit("t", messages=[Message.user("a", id="m")], state={"plan": 1})
    run = await store.runs.start("t", "agent", run_id="r")
    await store.commit("t", run=run.finish())
    await store.commit("t", fence=5)
    await store.commit("t", messages=[Message.user("kept")], key="used")
    return {
        "bad shape": ({"messages": [Message(role="tool", content=[])]}, InvalidError),
        "key": ({"key": "used"}, KeyReused),
        "fence": ({"fence": 4}, StaleClaim),
        "expect": ({"expect": 1}, VersionConflict),
        "expect_head": ({"expect_head": receipt.message_ids[0]}, VersionConflict),
        "run": ({"run": run.step()}, IllegalTransition),
        "state": ({"expect_state": {"plan": 7}}, VersionConflict),
        "id": ({"messages": [Message.user("x", id="m")]}, AlreadyExists),
    }


@case("commit", "order-of-refusal", covers=("store.commit",))
async def case_order_of_refusal(kit: Kit) -> None:
    """Of any two violations, the earlier in the order is the one the caller hears."""
    faults = await trouble(kit)
    names = list(faults)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            if {first, second} == {"bad shape", "id"}:
                continue
            (one, kind), (two, _) = faults[first], faults[second]
            options = {"messages": [Message.user("new")], **two, **one}
            error = await untouched(kit.store, kind, kit.store.commit("t", **options), f"{first} before {second}")
            expectation = {"expect": 1, "expect_head": "m", "fence": 4, "state": 7}.get(first)
            if expectation is not None:
                equal(getattr(error, "expected", None), expectation, f"{first} before {second}: whose expectation")


@case("commit", "order-all-at-once", covers=("store.commit",))
async def case_order_all_at_once(kit: Kit) -> None:
    """With everything wrong at once, mending one after the other reveals the refusals in their order."""
    faults = await trouble(kit)
    wrong: dict[str, Any] = {}
    for name, (options, _) in faults.items():
        if name != "bad shape":
            wrong.update(options)
    heard = []
    for name in ("key", "fence", "expect", "expect_head", "run", "expect_state", "messages"):
        try:
            await kit.store.commit("t", **wrong)
        except (KeyReused, StaleClaim, VersionConflict, IllegalTransition, AlreadyExists) as error:
            heard.append(error.code)
        wrong.pop(name)
    codes = ["key_reused", "stale_claim", "version_conflict", "version_conflict", "illegal_transition"]
    equal(heard, [*codes, "version_conflict", "already_exists"], "refusals in order")


@case("commit", "replay-before-all", covers=("store.commit",))
async def case_replay_before_all(kit: Kit) -> None:
    """A key that landed answers with its receipt, whatever else is stale now; only shape is judged before it."""
    run = await kit.store.runs.start("t", "agent", run_id="r")
    head = (await commit_texts(kit.store, "t", "first")).message_ids[0]
    rev = (await kit.store.state.put("t", "plan", 1)).rev
    options: dict[str, Any] = {
        "messages": [Message.assistant("a", id="m")],
        "run": run.finish("bye"),
        "state": {"plan": 2},
        "expect": 1,
        "expect_head": head,
        "expect_state": {"plan": rev},
        "fence": 1,
        "key": "k",
    }
    first = await kit.store.commit("t", **options)
    await commit_texts(kit.store, "t", "later", fence=9, state={"plan": 3})
    before = await dump(kit.store)
    again = await kit.store.commit("t", **options)
    equal((again.replayed, again.version, again.message_ids), (True, first.version, ["m"]), "the stored receipt")
    equal(await dump(kit.store), before, "nothing is written")
    bad = {**options, "messages": [Message(role="tool", content=[])]}
    await untouched(kit.store, InvalidError, kit.store.commit("t", **bad), "shape comes first")
