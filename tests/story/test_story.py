"""The story of `make run`, end to end: it ends well, and it does not when what it claims is not so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PICTURE = EXAMPLES.parent / "docs" / "tree.svg"


def tell(folder: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Run the story; the file that it leaves goes with the test's own folder."""
    command = [sys.executable, folder / "story.py"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_story_is_true(tmp_path: Path) -> None:
    told = tell(EXAMPLES, tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    assert "\x1b" not in told.stdout
    for words in (
        "is dead: SIGKILL, while find_rooms was running",
        "→ find_rooms",
        "one call has no result: find_rooms",
        "agent │ unfinished find_rooms",
        "declares itself safe to repeat",
        "├─ • #7 user",
        "└─ ◦ #4 assistant",
        "[plan A]",
        "all is well",
        "All true",
    ):
        assert words in told.stdout
    assert told.stdout.count("✓") == 13
    begun = re.findall(r"process (\d+) begins", told.stdout)
    assert len(set(begun)) == 3
    (look,) = re.findall(r"^ +(\S+perdure --store .* show kyoto)$", told.stdout, re.MULTILINE)
    assert "temples" in subprocess.run(look.split(), capture_output=True, text=True, check=True).stdout


SABOTAGE = {
    "the call is not committed before the tool runs": (
        'await self.commit(f"the call of {names}", said,',
        'if "rooms" not in names: await self.commit(f"the call of {names}", said,',
    ),
    "the tool does not say that it is safe": ('find_rooms, replay="safe"', 'find_rooms, replay="never"'),
    "the run does not end": ("self.run.finish(said.text)", "self.run.step()"),
    "the agent fails": ("await agent.recover()", "raise OSError"),
}


@pytest.mark.parametrize("how", SABOTAGE)
def test_a_story_that_is_not_true_fails(how: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))
    agent = folder / "story_agent.py"
    right, wrong = SABOTAGE[how]
    source = agent.read_text(encoding="utf-8")
    assert right in source
    agent.write_text(source.replace(right, wrong))
    told = tell(folder, tmp_path)
    assert told.returncode != 0
    assert "All true" not in told.stdout
    assert "✗ not true" in told.stdout


def test_the_picture_shows_what_the_program_draws(tmp_path: Path) -> None:
    fresh = tmp_path / "tree.svg"
    subprocess.run([sys.executable, EXAMPLES / "make_tree_picture.py", fresh], check=True)
    assert _texts(fresh) == _texts(PICTURE), "run examples/make_tree_picture.py"
    assert "font-face" not in PICTURE.read_text(encoding="utf-8")


def _texts(picture: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text(encoding="utf-8"))
