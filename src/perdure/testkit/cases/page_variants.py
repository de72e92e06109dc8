"""Cases: the variants of a whole page, in one call. What "2 of 3" beside the messages of a chat needs."""

from __future__ import annotations

from typing import Any

from perdure.errors import InvalidError
from perdure.model.message import Message
from perdure.model.message_page import MessagePage
from perdure.model.tickets import Ticket
from perdure.testkit.cases.reruns import answered, asks, first_turn, says
from perdure.testkit.helpers import calling
from perdure.testkit.kit import Kit, case, equal, raises

PAGE = ("messages.page",)


def shown(page: MessagePage) -> dict[str, str]:
    """The variants by message, each by its id, the one on the page in brackets."""
    return {
        message_id: " ".join(f"[{v.message_id}]" if v.asked else v.message_id for v in variants)
        for message_id, variants in page.variants.items()
    }


@case("messages", "page-variants", covers=PAGE)
async def case_page_variants(kit: Kit) -> None:
    """Every place where lines part is shown once, as `branches.variants` shows it, whichever branch is asked for."""
    store = kit.store
    await first_turn(kit, calling("c", id="call"), Message.tool("c", "sun", id="result"), says("a"))
    second = await answered(store, await store.runs.rerun("r1"), says("b"))
    await store.commit("t", messages=asks("q-next"))
    third = await answered(store, await store.runs.rerun(second.id, messages=asks("q2")), says("d"))
    pages = {branch: await store.messages.page("t", branch=branch, variants=True) for branch in (0, second.branch)}
    questions = "[q] q2"
    equal(shown(pages[0]), {"q": questions, "call": "[call] b"}, "the first line")
    equal(shown(pages[1]), {"q": questions, "b": "call [b]"}, "the second")
    page = await store.messages.page("t", variants=True)
    equal((page.branch, shown(page)), (third.branch, {"q2": "q [q2]"}), "the current one")
    for message_id, variants in pages[0].variants.items():
        equal(variants, await store.branches.variants("t", message_id), f"as one by one: {message_id}")
    raw = await store.messages.page("t", branch=0, view="raw", variants=True)
    equal(raw.variants, pages[0].variants, "raw")
    equal((await store.messages.page("t", branch=0)).variants, {}, "not asked for")
    equal((await store.thread("t").page(variants=True)).variants, page.variants, "by a handle")
    plain = page.to_json()["variants"]["q2"]
    equal([variant["message_id"] for variant in plain], ["q", "q2"], "as JSON")


@case("messages", "page-variants-across-pages", covers=PAGE)
async def case_across_pages(kit: Kit) -> None:
    """A page shows the variants of its own messages, and only those; a thread without forks has none."""
    store = kit.store
    first = await store.commit("t", messages=[Message.user(f"m{n}", id=f"m{n}") for n in range(8)])
    equal((await store.messages.page("t", variants=True, limit=3)).variants, {}, "no forks")
    for n in (0, 3, 5):
        await store.branches.fork("t", before=f"m{n}", messages=[Message.user("x", id=f"x{n}")])
    await store.branches.fork("t", at="m7", name="empty")
    for view in ("external", "raw"):
        cursor, pages = None, list[dict[str, str]]()
        for _ in range(3):
            page = await store.messages.page("t", view=view, variants=True, limit=3, cursor=cursor)
            pages.append(shown(page))
            cursor = page.next_cursor
        equal(pages, [{"m5": "[m5] x5"}, {"m3": "[m3] x3"}, {"m0": "[m0] x0"}], f"{view}, newest first")
    equal(first.version, 8, "eight messages on the main branch")


@case("messages", "page-variants-within-a-turn", covers=PAGE)
async def case_within_turn(kit: Kit) -> None:
    """A turn that fills several pages has its variants on the page on which it begins, and only there."""
    store = kit.store
    await first_turn(kit, calling("c", id="call"), Message.tool("c", "sun", id="result"), says("a"))
    await answered(store, await store.runs.rerun("r1"), says("b"))
    cursor, pages = None, list[dict[str, str]]()
    for _ in range(4):
        page = await store.messages.page("t", branch=0, view="raw", variants=True, limit=1, cursor=cursor)
        pages.append(shown(page))
        cursor = page.next_cursor
    equal(pages, [{}, {}, {"call": "[call] b"}, {}], "newest first")


@case("messages", "page-variants-hidden", covers=PAGE)
async def case_hidden(kit: Kit) -> None:
    """Hidden variants are not shown; a turn that begins with hidden messages is shown by its first visible one."""
    store = kit.store
    await first_turn(kit, says("plan", visibility="internal"), says("a"))
    await answered(store, await store.runs.rerun("r1"), says("b"))
    await answered(store, await store.runs.rerun("r1"), says("plan-3", visibility="internal"), says("c"))
    await answered(store, await store.runs.rerun("r1"), says("silent", visibility="internal"))
    for branch, expected in enumerate(({"a": "[a] b c"}, {"b": "a [b] c"}, {"c": "a b [c]"}, {})):
        page = await store.messages.page("t", branch=branch, variants=True)
        equal(shown(page), expected, f"external, branch {branch}")
    raw = await store.messages.page("t", branch=2, view="raw", variants=True)
    equal(shown(raw), {"plan-3": "plan b [plan-3] silent"}, "raw")


@case("messages", "page-variants-of-a-stopped-turn", covers=PAGE)
async def case_stopped(kit: Kit) -> None:
    """A turn of which nothing is shown has no variants: the next question is not taken for one."""
    store = kit.store
    await store.runs.start("t", "agent", run_id="r1", messages=asks("q"))
    await store.commit("t", messages=[calling("c", id="call")], run=(await store.runs.get("r1")).step())
    await store.runs.cancel("r1")
    await answered(store, await store.runs.rerun("r1"), says("b"))
    await store.branches.switch("t", 0)
    await store.commit("t", messages=asks("q-next"))
    equal((await store.messages.page("t", variants=True)).variants, {}, "no other question")
    again = await store.branches.fork("t", before="q-next", messages=[Message.user("n", id="n", visibility="internal")])
    equal((await store.messages.page("t", variants=True)).variants, {}, "a hidden question")
    await store.commit("t", messages=[Message.tool("c", "late", id="late")], branch=0)
    page = await store.messages.page("t", variants=True)
    equal(shown(page), {"call": "[call] b"}, "the call is answered, so it is shown")
    raw = await store.messages.page("t", branch=again.id, view="raw", variants=True)
    equal(shown(raw), {"call": "[call] b", "n": "q-next [n]"}, "raw")


@case("messages", "page-variants-of-hidden-input", covers=PAGE)
async def case_hidden_input(kit: Kit) -> None:
    """An input that begins or ends with an internal message is one place, for its own versions and for the answers."""
    store = kit.store
    note = {"role": "system", "content": "note", "visibility": "internal"}

    async def following(**options: Any) -> str:
        page = await store.messages.page("t", variants=True, **options)
        return " ".join(f"{v.message_id}@{v.branch}" for v in page.next_variants)

    await store.commit("t", messages=asks("hello"))
    around = [Message.from_json({**note, "id": "n1"}), *asks("q"), Message.from_json({**note, "id": "n2"})]
    run = await answered(store, await store.runs.start("t", "agent", messages=around), says("a"))
    again = await store.runs.rerun(run.id)
    equal(await following(), "a@0", "while the answer is written again: what hangs under the hidden end of the input")
    await answered(store, again, says("b"))
    equal(shown(await store.messages.page("t", variants=True)), {"b": "a [b]"}, "two answers")
    edit = [Message.from_json({**note, "id": "n3"}), *asks("q2")]
    await answered(store, await store.runs.rerun(run.id, messages=edit), says("c"))
    silent = Message.from_json({**note, "id": "n4"})
    await answered(store, await store.runs.rerun(run.id, messages=[silent]), says("d"))
    for branch, expected in ((0, {"q": "[q] q2", "a": "[a] b"}), (2, {"q2": "q [q2]"}), (3, {})):
        page = await store.messages.page("t", branch=branch, variants=True)
        equal(shown(page), expected, f"external, branch {branch}")
    raw = await store.messages.page("t", branch=2, view="raw", variants=True)
    equal(shown(raw), {"n3": "n1 [n3] n4"}, "raw")


@case("messages", "page-variants-in-the-middle", covers=PAGE)
async def case_middle(kit: Kit) -> None:
    """A fork beside a hidden message in the middle of a turn: the next visible message of the turn stands for it."""
    store = kit.store
    await first_turn(kit, says("o1"), says("o2", visibility="internal"), says("o3"))
    fork = await store.branches.fork("t", at="o1", messages=asks("x"))
    for branch, expected in ((fork.id, {"x": "o3 [x]"}), (0, {"o3": "[o3] x"})):
        page = await store.messages.page("t", branch=branch, variants=True)
        equal(shown(page), expected, f"branch {branch}")


@case("messages", "page-variants-of-nothing", covers=PAGE)
async def case_nothing(kit: Kit) -> None:
    """A version of which people see nothing is not listed: it was stopped before its call had a result."""
    store = kit.store
    await first_turn(kit, calling("c", id="call"))
    await answered(store, await store.runs.rerun("r1"), says("b"))
    equal((await store.messages.page("t", variants=True)).variants, {}, "the call alone")
    await store.commit("t", messages=[Message.tool("c", "sun", id="result", run_id="r1")], branch=0)
    raw = await store.messages.page("t", view="raw", variants=True)
    equal(shown(raw), {"b": "call [b]"}, "raw")


@case("messages", "page-next-variants", covers=PAGE)
async def case_next(kit: Kit) -> None:
    """A replaced answer can be reached from the newest page while the one that replaces it shows nothing."""
    store = kit.store
    await first_turn(kit, says("a"))
    again = await store.runs.rerun("r1")

    async def following(**options: Any) -> str:
        page = await store.messages.page("t", variants=True, **options)
        equal(shown(page), {}, "nothing is shown in two versions")
        return " ".join(f"{v.message_id}@{v.branch}" for v in page.next_variants)

    equal(await following(), "a@0", "while it is being written")
    await store.commit("t", messages=[calling("c", id="call")], run=again.wait([Ticket(ticket_id="k")]))
    equal(await following(), "a@0", "while it asks for approval without a word")
    await store.runs.cancel(again.id)
    equal(await following(), "a@0", "stopped before the first word")
    equal(await following(branch=0), "", "on the branch of the old answer: people see nothing of the new one")
    raw = await store.messages.page("t", branch=0, view="raw", variants=True)
    equal([v.message_id for v in raw.next_variants], [], "raw: nothing comes after the answer")
    third = await answered(store, await store.runs.rerun("r1"), says("b"))
    await store.branches.switch("t", again.branch)
    equal(await following(), "a@0 b@2", "two answers")
    equal(third.branch, 2, "the third branch")
    await store.branches.delete("t", third.branch)
    equal(await following(), "a@0", "not what only a deleted branch leads to")
    older = await store.messages.page("t", variants=True, before="q")
    equal((len(older.items), older.next_variants), (1, []), "an older page has none")
    root = await store.branches.fork("t", at=None, switch=True)
    page = await store.messages.page("t", branch=root.id, variants=True)
    equal([v.message_id for v in page.next_variants], ["hello"], "an empty root: the other beginning")
    equal((await store.messages.page("t")).next_variants, [], "not asked for")


@case("messages", "page-variants-deleted-and-refused", covers=PAGE)
async def case_deleted(kit: Kit) -> None:
    """Deleted branches lead nowhere; the history has no variants."""
    store = kit.store
    await first_turn(kit)
    again = await answered(store, await store.runs.rerun("r1"), says("b"))
    await store.branches.switch("t", 0)
    page = await store.messages.page("t", variants=True)
    equal(shown(page), {"a": "[a] b"}, "two answers")
    await store.branches.delete("t", again.branch)
    equal((await store.messages.page("t", variants=True)).variants, {}, "one is left")
    await raises(InvalidError, store.messages.page("t", view="history", variants=True), "the history")
    wrong: Any = "yes"
    await raises(InvalidError, store.messages.page("t", variants=wrong), "no flag")
