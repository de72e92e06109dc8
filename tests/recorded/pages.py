"""The part of the workload that reads one branch: as a whole, in pages of every view, and with cursors gone wrong."""

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
