"""The recorded workload gives what it gave when the golden dumps were written, on every engine and from an old file."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from tests.recorded import golden
from tests.recorded.__main__ import FIXTURE
from tests.recorded.contents import all_contents
from tests.recorded.plain import START, Normaliser
from tests.recorded.play import play
from tests.recorded.recorder import Recorder
from tests.recorded.support import ENGINES, Clock, audit, copy_store, engine_url, opened
from tests.recorded.workload import DAY, keyed_later

import perdure
from perdure import Message

NOUNS = ("threads", "messages", "branches", "pending", "runs", "state", "profiles")
OWN_LINES = {"capabilities", "health", "close", "engine", "scope", "messages.follow", "profiles.follow"}
"""What the workload uses without a step of that name."""
NO_STORE_RAISES = {"IncompleteStream"}
"""Errors of `perdure.formats`, which talks to no store."""
NEWER = {
    *("buffered", "sweep", "thread"),
    *("runs.decide", "runs.follow", "runs.follow_drafts", "runs.of_message", "runs.rerun"),
}
"""What was added after the recording, and needs no line of its own: cases compare it on every engine."""


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_changed(engine: str, tmp_path: Path) -> None:
    async def run() -> None:
        played = await play(await engine_url(engine, tmp_path), tmp_path)
        expected, unused = golden.with_changed_texts(golden.read("outcomes"), golden.changed_texts())
        assert not unused, f"changed_texts.toml lists texts that no recorded error has: {unused}"
        assert not (problem := golden.differences(expected, played.outcomes)), problem
        assert not (problem := golden.differences(golden.read("contents"), played.contents)), problem
        assert played.findings == []
        facts = json.loads((golden.FOLDER / "engines.json").read_text(encoding="utf-8"))[engine]
        assert not (problem := golden.differences([facts], [played.facts])), problem

    asyncio.run(run())


def old_contents() -> list[golden.Line]:
    return golden.before_decisions(golden.read("contents"))


def test_an_old_file_opens(tmp_path: Path) -> None:
    """A file that the workload left at an earlier commit: read, audited, its keys known, and written to."""

    async def run() -> None:
        path = shutil.copyfile(FIXTURE, tmp_path / "recorded.db")
        clock, old = Clock(START + 10 * DAY), old_contents()
        async with opened(str(path), clock) as store:
            assert not (problem := golden.differences(old, await all_contents(store))), problem
            assert await audit(store) == []
            replays = Recorder(store, clock, tmp_path)
            await keyed_later(replays)
            assert [line["returns"]["replayed"] for line in replays.lines] == [True] * 3
            assert not golden.differences(old, await all_contents(store))
            receipt = await store.commit("kyoto", messages=[Message.user("more")], state={"more": 1}, key="more")
            assert receipt.version == (await store.threads.get("kyoto")).version
            assert await audit(store) == []

    asyncio.run(run())


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "memory"])
def test_an_old_file_is_copied(engine: str, tmp_path: Path) -> None:
    """A copy to any engine shows the same contents. The source is only read, so it is brought up to date first."""

    async def run() -> None:
        path = shutil.copyfile(FIXTURE, tmp_path / "old.db")
        async with opened(str(path), Clock(START + 10 * DAY)):
            pass
        url = await engine_url(engine, tmp_path)
        await copy_store(str(path), url)
        async with opened(url, Clock(START + 10 * DAY)) as store:
            expected, actual = (golden.without_revs(x) for x in (old_contents(), await all_contents(store)))
            assert not (problem := golden.differences(expected, actual)), problem
            assert await audit(store) == []

    asyncio.run(run())


def test_every_public_call_has_a_step() -> None:
    calls = {line["step"].split()[0] for line in golden.read("outcomes")} | OWN_LINES | NEWER

    async def public() -> set[str]:
        async with perdure.open("memory://") as store:
            listed = {f"{noun}.{name}" for noun in NOUNS for name in dir(getattr(store, noun)) if name[0] != "_"}
            return listed | {name for name in dir(store) if name[0] != "_" and name not in NOUNS}

    assert asyncio.run(public()) - calls == set()


def test_every_error_class_is_refused_with() -> None:
    kinds = {name for name in perdure.__all__ if isinstance(getattr(perdure, name), type)}
    errors = {name for name in kinds if issubclass(getattr(perdure, name), perdure.PerdureError)} - {"PerdureError"}
    recorded = [line["error"] for line in golden.read("outcomes") if "error" in line]
    assert errors - {error["class"] for error in recorded} == NO_STORE_RAISES
    assert len({error["message"] for error in recorded}) > 250


def test_a_difference_is_shown_where_it_is() -> None:
    lines = golden.read("outcomes")
    changed = json.loads(json.dumps(lines))
    refusal = next(line for line in changed if "error" in line)
    refusal["error"]["retryable"] = True
    problem = golden.differences(lines, changed)
    assert refusal["step"] in problem
    assert ".error.retryable" in problem
    assert "--write" in problem
    assert golden.differences(lines, lines[:-1])


def test_exactly_the_listed_texts_may_differ() -> None:
    lines = golden.read("outcomes")
    text = next(line["error"]["message"] for line in lines if "error" in line)
    listed, unused = golden.with_changed_texts(golden.read("outcomes"), [{"old": text, "new": "other words"}])
    assert unused == []
    assert golden.differences(lines, listed)
    listed, unused = golden.with_changed_texts(golden.read("outcomes"), [{"old": "never said", "new": "x"}])
    assert unused == ["never said"]
    assert not golden.differences(lines, listed)


def test_only_what_differs_by_chance_is_replaced() -> None:
    one, two = (Normaliser({"/tmp/a": "<folder>"}) for _ in range(2))
    minted = "01JCXQ4S0Q3T8V5W6X7Y8Z9ABC"
    first = {"id": minted, "rev": 77, "at": START + 5, "seq": 3, "why": f"{minted} in /tmp/a", "actual": 77}
    expected = {"id": "id-1", "rev": "rev-1", "at": "<time+5>", "seq": 3, "why": "id-1 in <folder>", "actual": 77}
    # `actual` comes before `rev`: a small number that was never a rev is left as it is.
    assert one(first) == expected
    assert one({"actual": 77}) == {"actual": "rev-1"}
    assert two({"rev": 5}) == {"rev": "rev-1"}
    assert two({"at": START + 6}) != one({"at": START + 5})
