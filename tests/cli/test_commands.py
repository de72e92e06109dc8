"""Every command on a real file: what people see, what programs get with --json, and what each of them changes."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import Program

import perdure
from perdure import Message, Store


def opened(program: Program, work: Any) -> Any:
    async def scenario() -> Any:
        async with perdure.open(program.url) as store:
            return await work(store)

    return asyncio.run(scenario())


def test_threads_are_listed(program: Program) -> None:
    lines = program("threads").splitlines()
    assert lines[0].split() == ["id", "title", "messages", "resource", "run", "active"]
    assert {line.split()[0] for line in lines[1:]} == {
        "kyoto", "child", "grandchild", "born-of-a-run", "late-parent", "hostile", "empty",
    }  # fmt: skip
    (kyoto,) = (line for line in lines if line.startswith("kyoto"))
    assert kyoto.split()[1:7] == ["Plan", "a", "trip", "10", "u-7", "open"]


def test_threads_are_filtered(program: Program) -> None:
    def ids(*options: str) -> list[str]:
        return [item["id"] for item in program.json("threads", *options)["items"]]

    assert sorted(ids("--resource", "u-7")) == ["born-of-a-run", "kyoto"]
    assert sorted(ids("--parent", "ky")) == ["born-of-a-run", "child"]
    assert sorted(ids("--root")) == ["empty", "hostile [bold]", "kyoto", "late-parent"]
    assert ids("--order", "created")[-1] == "kyoto"


def test_threads_are_paged(program: Program) -> None:
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = program.json("threads", "--limit", "3", *cursor)
        seen += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = ["--cursor", page["next_cursor"]]
    assert len(seen) == len(set(seen)) == 7
    assert "--cursor" in program("threads", "--limit", "3")


def test_an_empty_scope_says_so(program: Program) -> None:
    assert program("threads", "--scope", "nobody").strip() == "no threads"
    assert program("runs", "--scope", "nobody").strip() == "no runs"
    assert program.json("threads", "--scope", "nobody") == {"items": [], "next_cursor": None}


def test_options_may_stand_before_the_command(program: Program) -> None:
    assert json.loads(program("--json", "--scope", "nobody", "threads"))["items"] == []
    assert program("--store", "sqlite:///nowhere.db", "threads", "--store", program.url).startswith("id")


def test_show_tells_everything(program: Program) -> None:
    text = program("show", "kyoto")
    for words in (
        "Plan a trip",
        "u-7",
        "sunny",
        "tool_permission",
        "plan",
        '{"days":2}',
        "unfinished call book call-2",
    ):
        assert words in text
    document = program.json("show", "kyoto")
    assert document["thread"]["version"] == 10
    assert [branch["name"] for branch in document["branches"]] == ["main", "sunny", "fresh"]
    assert [run["status"] for run in document["runs"]] == ["waiting", "done"]
    assert document["labels"][0]["label"] == "good"
    assert document["state"][0]["name"] == "plan"
    assert (document["pending"], document["more_runs"]) == (1, False)
    assert document["unfinished_calls"] == [{"id": "call-2", "name": "book"}]


def test_show_of_an_empty_thread(program: Program) -> None:
    assert "messages  0" in program("show", "empty")


def test_a_thread_is_named_by_a_unique_beginning(program: Program) -> None:
    assert program.json("show", "late")["thread"]["id"] == "late-parent"
    opened(program, lambda store: store.threads.create("kyoto-2"))
    assert program.json("show", "kyoto")["thread"]["id"] == "kyoto"
    assert "'kyo' is the beginning of several threads: kyoto, kyoto-2" in program.error("show", "kyo")
    assert "no thread id is or starts with 'zzz'" in program.error("show", "zzz")


def test_log_shows_the_current_branch(program: Program) -> None:
    text = program("log", "kyoto")
    assert [line.split()[0] for line in text.splitlines() if line.startswith("#")] == [
        "#1",
        "#5",
        "#6",
        "#7",
        "#8",
        "#9",
    ]
    assert '→ book(hotel="Ryokan")  call-2' in text
    assert "[document Terms https://example.org/terms.pdf]" in text
    assert '[hologram {"type":"hologram","depth":3}]' in text
    assert "summary of #1–#1  (internal)" in text


def test_log_of_another_branch_by_name_and_number(program: Program) -> None:
    by_name = program("log", "kyoto", "--branch", "main")
    assert by_name == program("log", "kyoto", "-b", "0")
    assert '→ weather(city="Kyoto", days=2)  call-1' in by_name
    assert "← call-1\n    Rain on both days." in by_name
    assert "Assume sun" not in by_name


@pytest.mark.parametrize(
    ("view", "seqs"), [("raw", [1, 5, 6, 7, 8, 9]), ("external", [1, 5, 6, 7, 8]), ("history", [9, 5, 6, 7, 8])]
)
def test_log_has_three_views(program: Program, view: str, seqs: list[int]) -> None:
    lines = program("log", "kyoto", "--view", view, "--json").splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["seq"] for record in records] == seqs
    calls = [block for record in records for block in record["message"]["content"] if block["type"] == "tool_use"]
    assert len(calls) == (1 if view == "raw" else 0)


def test_log_may_be_cut(program: Program) -> None:
    records = [json.loads(line) for line in program("log", "kyoto", "-n", "2", "--json").splitlines()]
    assert [record["seq"] for record in records] == [8, 9]
    assert records[0]["parent_id"] is not None


def test_log_of_an_empty_thread(program: Program) -> None:
    assert program("log", "empty") == program("log", "empty", "--json") == ""


TREE = """\
├─ • #1  user      Two days in Kyoto?
│  ├─ • #5  user      Assume sun.
│  │  • #6  user      [image https://example.org/garden.jpg] [docu…
│  │  • #7  user      [hologram {"type":"hologram","depth":3}]
│  │  • #8  assistant Gardens, and a ryokan. → book(hotel="Ryokan")
│  │  • #9  user      [summary of #1–#1] The user likes ga… ◂ sunny
│  └─ ◦ #2  assistant Let me look. → weather(city="Kyoto", days=2)
│     ◦ #3  tool      ← weather: Rain on both days.
│     ◦ #4  assistant [good] Museums, then. ‹ main
└─ ◦ #10 user      Something else entirely. ‹ fresh
"""


def test_tree_is_drawn(program: Program) -> None:
    assert program("tree", "kyoto", "--width", "67") == TREE


def test_tree_follows_the_current_branch(program: Program) -> None:
    program("switch", "kyoto", "fresh")
    first, *rest = program("tree", "kyoto").splitlines()
    assert first == "├─ • #10 user      Something else entirely. ◂ fresh"
    assert not any("•" in line for line in rest)


def test_tree_as_json(program: Program) -> None:
    document = program.json("tree", "kyoto")
    assert document["current_branch"] == "sunny"
    assert {node["seq"]: node["parent"] for node in document["nodes"]} == {
        1: None, 2: 1, 3: 2, 4: 3, 5: 1, 6: 5, 7: 6, 8: 7, 9: 8, 10: None,
    }  # fmt: skip
    assert [node["seq"] for node in document["nodes"] if node["current"]] == [1, 5, 6, 7, 8, 9]
    assert [node["label"] for node in document["nodes"] if node["label"]] == ["good"]


def test_tree_leaves_out_what_only_deleted_branches_led_to(program: Program) -> None:
    program("branch", "kyoto", "--delete", "main")
    kept = [node["seq"] for node in program.json("tree", "kyoto")["nodes"]]
    assert kept == [1, 5, 6, 7, 8, 9, 10]
    assert len(program.json("tree", "kyoto", "--all")["nodes"]) == 10


def test_tree_of_an_empty_thread_and_of_an_empty_root(program: Program) -> None:
    assert program("tree", "empty") == "• no messages yet ◂ main\n"
    program("branch", "kyoto", "--root", "--name", "blank")
    assert program("tree", "kyoto").splitlines()[-1] == "◦ no messages yet ◂ blank"
    assert program.json("tree", "kyoto")["empty_branches"] == ["blank"]


def test_branches_are_listed(program: Program) -> None:
    lines = program("branch", "kyoto").splitlines()
    assert [line.split() for line in lines[1:]][1] == ["•", "1", "sunny", "5", "#1", "The", "user", "likes", "gardens."]
    assert [item["name"] for item in program.json("branch", "kyoto")["items"]] == ["main", "sunny", "fresh"]


def test_looking_at_branches_changes_nothing(program: Program) -> None:
    before = program.path.read_bytes()
    program("branch", "kyoto")
    program("tree", "kyoto")
    assert program.path.read_bytes() == before


def test_branches_are_forked_at_a_message_before_one_or_nowhere(program: Program) -> None:
    assert program("branch", "kyoto", "--at", "3", "--name", "again").strip() == "made branch again"
    assert program.json("branch", "kyoto", "--at", "kyoto-answer", "--switch")["current"] is True
    before = program.json("branch", "kyoto", "--before", "#4", "--name", "instead")
    assert (before["parent"], before["fork_seq"], before["current"]) == (0, 3, False)
    root = program.json("branch", "kyoto", "--root", "--name", "anew")
    assert (root["parent"], root["head"]) == (None, None)


def test_branches_are_renamed_and_deleted(program: Program) -> None:
    assert program("branch", "kyoto", "--rename", "main", "trunk").strip() == "renamed: branch trunk"
    assert program("branch", "kyoto", "--delete", "trunk").startswith("deleted branch trunk")
    assert program.json("branch", "kyoto", "--delete", "2")["deleted"]["name"] == "fresh"
    assert [item["name"] for item in program.json("branch", "kyoto")["items"]] == ["sunny"]


def test_switch_makes_a_branch_current(program: Program) -> None:
    assert program("switch", "kyoto", "main").strip() == "switched to branch main (current)"
    assert program.json("switch", "kyoto", "1")["name"] == "sunny"

    async def current(store: Store) -> str:
        return (await store.branches.current("kyoto")).name

    assert opened(program, current) == "sunny"


def test_a_branch_is_found_by_its_number(program: Program) -> None:
    assert program.json("switch", "kyoto", "2")["name"] == "fresh"
    assert "lists them" in program.error("switch", "kyoto", "77")


def test_runs_are_listed(program: Program) -> None:
    assert [item["status"] for item in program.json("runs")["items"]] == ["running", "created", "waiting", "done"]
    assert [item["status"] for item in program.json("runs", "kyoto")["items"]] == ["waiting", "done"]
    oldest = program.json("runs", "kyoto", "--order", "asc")["items"]
    assert [item["status"] for item in oldest] == ["done", "waiting"]
    assert program.json("runs", "--agent", oldest[0]["agent_id"], "--limit", "1")["items"]
    assert program.json("runs", "--resource", "nobody")["items"] == []
    assert "use desc or asc" in program.error("runs", "--order", "newest")
    (waiting,) = program.json("runs", "--status", "waiting")["items"]
    assert waiting["waiting"]["tickets"][0]["ticket_id"] == "t-1"
    assert waiting["output"] == {"count": 1, "first": 8, "last": 8}
    text = program("runs", "kyoto")
    assert "natural_end" in text
    assert "for tool_permission: t-1" in text


def test_runs_are_paged(program: Program) -> None:
    page = program.json("runs", "--limit", "3")
    assert len(program.json("runs", "--limit", "3", "--cursor", page["next_cursor"])["items"]) == 1


def test_export_and_import_carry_a_store(program: Program, tmp_path: Path) -> None:
    file, copy = tmp_path / "all.jsonl", Program(tmp_path / "copy.db")
    assert program("export", "--out", str(file)).startswith("exported 7 threads")
    assert copy("import", str(file)).startswith("imported 7 threads")
    assert copy("export").encode() == file.read_bytes()
    assert copy.json("doctor", "verify") == {"ok": True, "findings": []}
    assert copy("tree", "kyoto") == program("tree", "kyoto")
    assert not list(tmp_path.glob(".all*"))


def test_export_and_import_through_pipes(program: Program, tmp_path: Path) -> None:
    copy = Program(tmp_path / "copy.db")
    exported = program.real("export", "kyoto", "chi").stdout
    imported = copy.real("import", "-", "--json", given=exported)
    assert json.loads(imported.stdout) == {"threads": 2, "skipped": 0, "records": len(exported.splitlines()) - 2}
    assert copy.real("export").stdout == exported


def test_import_respects_what_is_there(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    assert program.json("export", "--out", str(file))["threads"] == 7
    assert "thread 'kyoto' already exists" in program.error("import", str(file))
    assert program.json("import", str(file), "--skip-existing") == {"threads": 0, "skipped": 7, "records": 0}


def test_import_of_a_child_alone(program: Program, tmp_path: Path) -> None:
    file, copy = tmp_path / "child.jsonl", Program(tmp_path / "copy.db")
    program("export", "child", "--out", str(file))
    assert "--detach" in copy.error("import", str(file))
    assert copy("import", str(file), "--detach").startswith("imported 1 thread in ")
    assert copy.json("show", "child")["thread"]["parent_thread_id"] is None


@pytest.mark.parametrize(("given", "words"), [("missing.jsonl", "there is no file"), (".", "is a directory")])
def test_import_of_no_file_makes_no_store(tmp_path: Path, given: str, words: str) -> None:
    copy = Program(tmp_path / "copy.db")
    assert words in copy.error("import", given)
    assert not copy.path.exists()


def test_a_damaged_stream_makes_no_store_and_a_whole_one_does(program: Program, tmp_path: Path) -> None:
    copy, whole = Program(tmp_path / "copy.db"), program.real("export").stdout
    assert copy.real("import", "-", given=whole[:-200]).returncode == 2
    assert not copy.path.exists()
    assert copy.real("import", "-", given=whole).returncode == 0
    assert copy.real("export").stdout == whole


def test_import_of_a_damaged_file_names_the_line(program: Program, tmp_path: Path) -> None:
    file, copy = tmp_path / "all.jsonl", Program(tmp_path / "copy.db")
    program("export", "--out", str(file))
    file.write_bytes(file.read_bytes()[:-200])
    assert "line " in copy.error("import", str(file))
    assert not copy.path.exists()


def test_a_failed_export_leaves_the_older_file_alone(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    file.write_text("precious")

    async def damage(store: Store) -> None:
        await store.engine.transact("default", [perdure.kernel.ops.Patch("branches", ("kyoto", 0), {}, body=b"{")])

    opened(program, damage)
    assert program.error("export", "--out", str(file), "--force", code=1).startswith("error: ")
    assert file.read_text() == "precious"
    assert [path.name for path in tmp_path.glob("*.jsonl*")] == ["all.jsonl"]


def test_doctor_finds_damage(program: Program) -> None:
    assert program("doctor", "verify").startswith("all is well")
    assert program.json("doctor", "verify", "--all-scopes")["ok"] is True

    async def damage(store: Store) -> None:
        await store.engine.transact("default", [perdure.kernel.ops.Patch("thread_heads", ("kyoto",), {"version": 99})])

    opened(program, damage)
    document = program.json("doctor", "verify", code=1)
    assert document["ok"] is False
    assert document["findings"][0]["check"] == "log.version"
    assert "log.version" in program("doctor", "verify", code=1)


def test_doctor_reads_the_real_settings(program: Program) -> None:
    document = json.loads(program.run("doctor", "health", "--json").out)
    assert document["health"]["settings"]["journal_mode"] == "wal"
    assert document["health"]["durability"] == "power"
    assert document["capabilities"]["engine"] == "sqlite"
    assert "a power loss" in program.run("doctor", "health").out


def test_doctor_sweeps(program: Program) -> None:
    assert program("doctor", "sweep").strip() == "swept"
    assert program.json("doctor", "sweep") == {"swept": True}


def test_the_real_program_says_the_same(program: Program) -> None:
    for arguments in (["threads"], ["show", "kyoto", "--json"], ["tree", "kyoto"]):
        done = program.real(*arguments)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode() == program(*arguments)


def test_other_tenants_are_out_of_sight(program: Program) -> None:
    async def another(store: Store) -> None:
        await store.scoped("acme").commit("secret", messages=[Message.user("hush")])

    opened(program, another)
    assert "secret" not in program("threads")
    assert "no thread id is or starts with 'secret'" in program.error("log", "secret")
    assert program("log", "secret", "--scope", "acme").splitlines()[1] == "  hush"


def test_show_counts_what_is_pending_without_reading_it(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue may hold four gigabytes."""

    async def fill() -> None:
        async with perdure.open(program.url) as store:
            await store.pending.append("kyoto", [Message.user("two"), Message.user("three")])

    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the queue was read")

    asyncio.run(fill())
    monkeypatch.setattr("perdure.stores.pending.Pending._queue", refuse)
    assert program.json("show", "kyoto")["pending"] == 3
    assert re.search(r"^pending +3$", program("show", "kyoto"), re.MULTILINE)
    assert program.json("show", "empty")["pending"] == 0


def test_profiles_are_listed_and_shown(program: Program) -> None:
    lines = program("profiles", "user:ann").splitlines()
    assert lines[0].split() == ["key", "schema", "written", "expires", "value"]
    assert [line.split()[0] for line in lines[1:]] == ["note", "prefs"]
    page = program.json("profiles", "user:ann", "--limit", "1")
    assert [item["key"] for item in page["items"]] == ["note"]
    rest = program.json("profiles", "user:ann", "--cursor", page["next_cursor"])
    assert [item["value"] for item in rest["items"]] == [{"tone": "short"}]
    assert program.json("profiles", "user:ann", "--prefix", "pre")["items"] == rest["items"]
    assert program.json("profiles", "user:ann", "prefs") == rest["items"][0]
    text = program("profiles", "user:ann", "prefs")
    assert '{"tone":"short"}' in text
    assert "user:ann" in text
    assert program("profiles", "nobody").strip() == "no profiles"


def test_a_missing_profile_is_an_error(program: Program) -> None:
    done = program.run("profiles", "user:ann", "nothing")
    assert done.code == 2
    assert "'user:ann' has no profile 'nothing'" in done.err
