"""The part of the workload that reads one branch (as a whole, in pages of every view, with cursors gone wrong), trees,
and what an abbreviated id names."""

from __future__ import annotations

from tests.recorded.recorder import Recorder

from perdure.kernel.cursor import encode_cursor


async def pages(r: Recorder) -> None:
    """Paths and pages. It writes nothing, so it may come last."""
    for options in ({}, {"limit": 2}, {"upto": 4}, {"upto": "m-2"}, {"branch": 0, "limit": 3}, {"branch": 7}):
        await r.do("messages.path", "kyoto", **options)
    await r.do("messages.path", "nowhere")
    for view in ("external", "history", "raw"):
        page = await r.do("messages.page", "kyoto", branch=0, view=view, limit=3)
        await r.do("messages.page", "kyoto", branch=0, view=view, limit=2, cursor=page.next_cursor)
        await r.do("messages.page", "kyoto", branch=0, view=view, before=5, limit=2)
        await r.do("messages.page", "kyoto", branch="main", view=view, before="m-2")
    await r.do("messages.page", "kyoto", view="raw", cursor=page.next_cursor)
    await r.do("messages.page", "kyoto", branch=1, view="raw", cursor=page.next_cursor)
    forged = encode_cursor(("page", "kyoto", None, "external", None), (77, 9))
    await r.do("messages.page", "kyoto", cursor=forged)
    await r.do("messages.page", "kyoto", before="no-such")
    await r.do("messages.page", "kyoto", view="all")
    await r.do("messages.page", "nowhere")
    await r.do("messages.follow", "kyoto", view="history")
    await r.do("messages.follow", "kyoto", timeout=-1)


async def lookups(r: Recorder) -> None:
    """Trees, variants and ids by their beginning. It writes nothing."""
    await r.do("branches.tree", "kyoto")
    await r.do("branches.tree", "kyoto", deleted=True, most=None)
    await r.do("branches.tree", "kyoto", most=1)
    await r.do("branches.variants", "kyoto", "m-2")
    await r.do("branches.variants", "kyoto", "no-such")
    await r.do("threads.ensure", "kyoto", title="not taken")
    await r.do("threads.with_prefix", "k")
    await r.do("threads.with_prefix", "")
    await r.do("runs.with_prefix", "run", limit=3)
    await r.do("runs.list", order="asc", limit=3)
    await r.do("runs.list", agent_id="planner", resource_id="nobody")
    await r.do("pending.count", "kyoto")
    await r.do("branches.checkout", "kyoto", "no-such")
    await r.do("runs.start", "nowhere", "planner", if_idle=5)
    await r.do("runs.cancel", "nobody")


async def busy(r: Recorder) -> None:
    """A thread whose run is still running starts no other, if that is asked for."""
    await r.do("runs.start", "queue", "planner", if_idle=True)
