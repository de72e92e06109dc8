"""Draws `docs/tree.svg`, the picture of the README: a small thread through the very code behind `perdure tree`.

.venv/bin/python examples/make_tree_picture.py [FILE]
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
from pathlib import Path

# Rich's picture asks a web font of a stranger's server; ours makes do with what the reader has.
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

import perdure
from perdure import Message, Store, ToolUse
from perdure.cli.tree_drawing import draw

WIDTH = 92
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "tree.svg"
THEME = TerminalTheme(
    (24, 26, 31),
    (220, 223, 228),
    [(24, 26, 31), (224, 108, 117), (136, 200, 110), (229, 192, 123)]
    + [(97, 175, 239), (198, 120, 221), (86, 182, 194), (220, 223, 228)],
)
FONT = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)


async def conversation(store: Store) -> None:
    call = ToolUse("c1", "weather", {"city": "Kyoto"})
    await store.commit(
        "kyoto",
        messages=[
            Message.user("Two days in Kyoto, please."),
            Message.assistant([call]),
            Message.tool("c1", "Rain on both days."),
        ],
    )
    asked = (await store.messages.list("kyoto")).items[-1]
    answer = await store.commit("kyoto", messages=[Message.assistant("Museums, tea houses and a covered market.")])
    await store.branches.label("kyoto", answer.message_ids[0], "plan A")
    await store.commit("kyoto", messages=[Message.user("Book it.")])

    await store.branches.fork("kyoto", at=asked.message_id, name="temples", switch=True)
    await store.commit("kyoto", messages=[Message.user("I do not mind rain. Temples!")])
    second = await store.commit("kyoto", messages=[Message.assistant("Day one: Tofuku-ji and its gardens. Day two: …")])
    await store.branches.fork("kyoto", at=second.message_ids[0], name="by-bike", switch=True)
    await store.commit("kyoto", messages=[Message.user("Can we cycle?"), Message.assistant("Along the Kamo, yes.")])
    await store.branches.fork("kyoto", at=second.message_ids[0], name="with-children")
    await store.commit("kyoto", messages=[Message.user("We bring two children.")], branch="with-children")


async def paint() -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    async with perdure.open("memory://") as store:
        await conversation(store)
        console.print(Text("$ perdure tree kyoto", "bold"))
        for line in draw(await store.branches.tree("kyoto"), WIDTH):
            console.print(line)
    template = FONT.sub("", CONSOLE_SVG_FORMAT)
    return console.export_svg(title="perdure tree", theme=THEME, code_format=template, unique_id="perdure")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    target.write_text(asyncio.run(paint()), encoding="utf-8")
