"""Cases: which pending messages a boundary takes: the selection table, one case per row.

A row names a queue (one delivery mode per message), the boundary, and the positions of the messages that it freezes.
Everything else must stay in the queue, in order. `R` is the run at the boundary.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.ops import Patch
from perdure.model.message import Message
from perdure.model.pending import DeliveryMode
from perdure.testkit.helpers import enqueue, queue_texts, texts
from perdure.testkit.kit import Kit, case, equal

INTERRUPT = DeliveryMode(boundary="interrupt")
STEP = DeliveryMode(boundary="next_step")
END = DeliveryMode(boundary="on_natural_end")
RESUME = DeliveryMode(boundary="resume_input")
NEW = DeliveryMode(boundary="new_run")


def row(name: str, boundary: str, queue: Sequence[DeliveryMode], takes: Sequence[int]) -> None:
    """Register one row of the table as a case."""

    @case("pending", f"selection-{name}", covers=("pending.freeze",), line=f"Selection table: {name}.")
    async def case_row(kit: Kit) -> None:
        await check(kit, boundary, queue, takes)


async def check(kit: Kit, boundary: str, queue: Sequence[DeliveryMode], takes: Sequence[int]) -> None:
    """Fill a queue, freeze at a boundary of run R, and look at both sides."""
    run = await kit.store.runs.start("t", "agent", run_id="R")
    for position, mode in enumerate(queue):
        await enqueue(kit.store, "t", str(position), mode=mode)
    receipt = await kit.store.pending.freeze("t", boundary=boundary, run=run)
    equal(len(receipt.message_ids), len(takes), f"how many messages {boundary} takes")
    equal(texts(await kit.store.messages.history("t")), [str(i) for i in takes], f"what {boundary} takes")
    stays = [str(i) for i in range(len(queue)) if i not in takes]
    equal(await queue_texts(kit.store, "t"), stays, "what stays")


def one(mode: DeliveryMode) -> DeliveryMode:
    """The same, travelling alone."""
    return DeliveryMode(boundary=mode.boundary, granularity="one")


def barrier(mode: DeliveryMode) -> DeliveryMode:
    """The same, as a barrier."""
    return DeliveryMode(boundary=mode.boundary, barrier=True)


def aimed(mode: DeliveryMode, run: str, *, fallback: bool = True) -> DeliveryMode:
    """The same, meant for one run."""
    return DeliveryMode(boundary=mode.boundary, target_run_id=run, fallback_to_new_run=fallback)


def strict(mode: DeliveryMode) -> DeliveryMode:
    """The same, never taken by a new run when it missed its own boundary."""
    return DeliveryMode(boundary=mode.boundary, fallback_to_new_run=False)


row("one-first", "new_run", [one(NEW), NEW], [0])
row("batch", "new_run", [NEW, NEW, NEW], [0, 1, 2])
row("batch-stops-before-one", "new_run", [NEW, NEW, one(NEW), NEW], [0, 1])
row("barrier-stops-after-itself", "new_run", [NEW, barrier(NEW), NEW], [0, 1])
row("barrier-after-skip-blocks", "next_step", [NEW, barrier(STEP), STEP], [])
row("barrier-at-front-blocks", "next_step", [barrier(NEW), STEP], [])
row("active-lane-skips-new-run", "next_step", [NEW, STEP, NEW, STEP], [1, 3])
row("interrupt-skips-new-run", "interrupt", [NEW, INTERRUPT, NEW], [1])
row("interrupt-waits-behind-its-lane", "interrupt", [STEP, INTERRUPT], [])
row("fifo-in-lane", "next_step", [STEP, END, STEP], [0])
row("one-after-skip", "next_step", [NEW, one(STEP), STEP], [1])
row("natural-end-takes-earlier-boundaries", "on_natural_end", [INTERRUPT, STEP, END, NEW], [0, 1, 2])
row("new-run-takes-every-boundary", "new_run", [INTERRUPT, STEP, END, NEW], [0, 1, 2, 3])
row("next-step-does-not-take-natural-end", "next_step", [END], [])
row("targeted-takes-its-run", "next_step", [aimed(STEP, "R"), STEP], [0, 1])
row("targeted-blocks-another-run", "next_step", [aimed(STEP, "other"), STEP], [])
row("new-run-takes-targeted-with-fallback", "new_run", [aimed(STEP, "other"), NEW], [0, 1])
row("new-run-skips-targeted-without-fallback", "new_run", [aimed(STEP, "other", fallback=False), NEW], [1])
row("new-run-blocked-by-its-own-targeted", "new_run", [aimed(NEW, "R", fallback=False), NEW], [])
row("resume-input-exact", "resume_input", [RESUME, RESUME, NEW], [0, 1])
row("resume-input-takes-no-step", "resume_input", [STEP, RESUME], [])
row("resume-input-skips-new-run", "resume_input", [NEW, RESUME], [1])
row("new-run-blocked-by-resume-input", "new_run", [RESUME, NEW], [])
row("new-run-skips-strict-resume-input", "new_run", [strict(RESUME), NEW], [1])
row("barrier-that-cannot-be-taken-blocks", "new_run", [barrier(RESUME), NEW], [])
row("nothing-waits", "new_run", [], [])


@case("pending", "selection-default-mode", covers=("pending.freeze",))
async def case_default_mode(kit: Kit) -> None:
    """A plain append means new_run and batch."""
    await kit.store.threads.create("t")
    made = await kit.store.pending.append("t", [Message.user("a"), Message.user("b")])
    equal(made[0].mode, DeliveryMode(boundary="new_run", granularity="batch"), "the mode of a plain append")
    equal((await kit.store.pending.freeze("t", boundary="on_natural_end")).seqs, [], "a running run does not take them")
    equal((await kit.store.pending.freeze("t")).seqs, [1, 2], "a new run takes them as a batch")


@case("pending", "selection-stored-without-mode", covers=("pending.freeze",))
async def case_stored_without_mode(kit: Kit) -> None:
    """A stored message without a mode means new_run and batch."""
    store = kit.store
    await store.threads.create("t")
    await store.pending.append("t", [Message.user("old", id="m")], mode=STEP)
    bare = b'{"message":{"role":"user","content":[{"type":"text","text":"old"}],"id":"m"}}'
    await store.engine.transact(store.scope, [Patch("pending", ("t", "m"), {"revision": 1}, body=bare)])
    equal((await store.pending.list("t")).items[0].mode, NEW, "a stored message without a mode")
    equal((await store.pending.freeze("t", boundary="next_step")).seqs, [], "is not taken by a step")
    equal((await store.pending.freeze("t")).seqs, [1], "but by a new run")
