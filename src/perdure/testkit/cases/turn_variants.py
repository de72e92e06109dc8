"""Cases: the variants of a turn. `branches.variants(run_id=…)` needs no search for the first message of an answer."""

from __future__ import annotations

from perdure.errors import InvalidError, NotFoundError
from perdure.model.branch import Variant
from perdure.model.message import Message
from perdure.testkit.cases.reruns import answered, asks, first_turn, says
from perdure.testkit.helpers import REFUSED_IDS, calling
from perdure.testkit.kit import Kit, case, equal, raises

VARIANTS = ("branches.variants",)


def brief(variants: list[Variant]) -> list[tuple[str, str | None, int | None]]:
    """Message, run and branch of each."""
    return [(variant.message_id, variant.run_id, variant.branch) for variant in variants]


def asked(variants: list[Variant]) -> list[tuple[str, bool]]:
    """What was asked about, and whether it is the current one."""
    return [(variant.message_id, variant.current) for variant in variants if variant.asked]


@case("branches", "variants-of-turns", covers=VARIANTS)
async def case_turns(kit: Kit) -> None:
    """Each variant stands for a turn and names its run, whether that begins with a tool call or with text."""
    store = kit.store
    await first_turn(kit, calling("c", id="call"), Message.tool("c", "sun", id="result"), says("a"))
    second = await answered(store, await store.runs.rerun("r1"), says("b"), says("b2"))
    third = await store.runs.rerun(second.id)
    expected = [("call", "r1", 0), ("b", second.id, 1)]
    for run_id, own in (("r1", [("call", False)]), (second.id, [("b", False)]), (third.id, [])):
        variants = await store.branches.variants("t", run_id=run_id)
        equal((brief(variants), asked(variants)), (expected, own), f"while the third is not written: {run_id}")
    await answered(store, third, calling("d", id="call-3"), Message.tool("d", "rain", id="result-3"), says("d"))
    variants = await store.branches.variants("t", run_id=third.id, view="external")
    equal(brief(variants), [*expected, ("call-3", third.id, 2)], "three of three")
    equal(asked(variants), [("call-3", True)], "the current one")
    equal(await store.thread("t").variants(run_id=third.id, view="external"), variants, "by a handle")
    equal(await store.branches.variants("t", "call-3"), variants, "as by the message")
    questions = await store.branches.variants("t", "q")
    equal(brief(questions), [("q", None, 2)], "a question belongs to no run")


@case("branches", "variants-of-internal-turns", covers=VARIANTS)
async def case_internal_turns(kit: Kit) -> None:
    """A turn that begins with internal messages is listed by them, or externally by its first visible one."""
    store = kit.store
    await first_turn(kit, says("plan", visibility="internal"), says("a"))
    second = await answered(store, await store.runs.rerun("r1"), says("b"))
    silent = await answered(store, await store.runs.rerun("r1"), says("hidden", visibility="internal"))
    raw = await store.branches.variants("t", run_id="r1")
    equal(brief(raw), [("plan", "r1", 0), ("b", second.id, 1), ("hidden", silent.id, 2)], "raw")
    visible = [("a", "r1", 0), ("b", second.id, 1)]
    for run_id, own, more in (("r1", "a", []), (second.id, "b", []), (silent.id, "hidden", [("hidden", silent.id, 2)])):
        variants = await store.branches.variants("t", run_id=run_id, view="external")
        equal((brief(variants), [name for name, _ in asked(variants)]), ([*visible, *more], [own]), run_id)


@case("branches", "variants-of-edited-turns", covers=VARIANTS)
async def case_edited_turns(kit: Kit) -> None:
    """The turns of an edited question are not those of the old one; deleted branches lead nowhere."""
    store = kit.store
    await first_turn(kit)
    edited = await answered(store, await store.runs.rerun("r1", messages=asks("q2")), says("b"))
    again = await answered(store, await store.runs.rerun(edited.id), says("b2"))
    equal(brief(await store.branches.variants("t", run_id="r1")), [("a", "r1", 0)], "the old question")
    both = [("b", edited.id, 1), ("b2", again.id, 2)]
    equal(brief(await store.branches.variants("t", run_id=again.id)), both, "the new one")
    equal([v.message_id for v in await store.branches.variants("t", "q2")], ["q", "q2"], "the questions")
    await store.branches.switch("t", 0)
    await store.branches.delete("t", 2)
    equal(brief(await store.branches.variants("t", run_id=edited.id)), both[:1], "one branch was deleted")
    gone = [both[0], ("b2", again.id, None)]
    equal(brief(await store.branches.variants("t", run_id=again.id)), gone, "asked for")


@case("branches", "variants-of-turns-refused", covers=VARIANTS)
async def case_turns_refused(kit: Kit) -> None:
    """A message or a run, one of them, and of this thread."""
    await first_turn(kit)
    other = await kit.store.runs.start("u", "agent")
    variants = kit.store.branches.variants
    await raises(InvalidError, variants("t"), "neither")
    await raises(InvalidError, variants("t", "a", run_id="r1"), "both")
    for thread_id, run_id in (("t", "missing"), ("t", other.id), ("none", "r1")):
        await raises(NotFoundError, variants(thread_id, run_id=run_id), f"{run_id} of {thread_id}")
    for bad in REFUSED_IDS:
        await raises(InvalidError, variants("t", run_id=bad), f"run {bad!r}")


@case("branches", "variants-of-runs-only", covers=VARIANTS)
async def case_runs_only(kit: Kit) -> None:
    """A message between input and output stays on the path of every rerun, and no message of nobody is a turn."""
    store = kit.store
    run = await store.runs.start("t", "agent", run_id="r1", messages=asks("q"))
    await store.commit("t", messages=[Message.user("hurry", id="hurry")])
    await answered(store, run, says("a"))
    empty = await store.runs.rerun("r1")
    third = await store.runs.rerun(empty.id)
    equal([record.message_id for record in await store.messages.path("t")], ["q", "hurry"], "nothing was dropped")
    await answered(store, third, says("c"))
    both = [("a", "r1", 0), ("c", third.id, 2)]
    equal(brief(await store.branches.variants("t", run_id="r1")), both, "turns in one place")
    await store.branches.fork("t", before="a", messages=[Message.user("other", id="other")])
    equal(brief(await store.branches.variants("t", run_id="r1")), both, "a message of nobody is no turn")
