"""Each house rule is fed the thing that it forbids, and the innocent thing that looks like it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

import pytest
from tests.tidy import rules
from tests.tidy.arrows import own_imports
from tests.tidy.rules import File, Finding

Rule = Callable[[File], Iterator[Finding]]
LATER = "TO" + "DO"
HOME = "/ho" + "me/ada/data"
LONG_FUNCTION = "def f():\n" + "    x = 1\n" * rules.MAX_FUNCTION_LINES
LONGEST_FUNCTION = "def f():\n" + "    x = 1\n" * (rules.MAX_FUNCTION_LINES - 1)

BITES: list[tuple[Rule, str, str]] = [
    (rules.values_are_named_by_nouns, "kernel/ops.py", "found = 1"),
    (rules.values_are_named_by_nouns, "kernel/ops.py", "def f(given): ..."),
    (rules.values_are_named_by_nouns, "kernel/ops.py", "def f(*, wanted=1): ..."),
    (rules.values_are_named_by_nouns, "kernel/ops.py", "for _, seen in x: ..."),
    (rules.values_are_named_by_nouns, "kernel/ops.py", "if (got := f()): ..."),
    (rules.values_are_named_by_nouns, "model/run.py", "class A:\n    place: int"),
    (rules.values_are_named_by_nouns, "model/run.py", "class A:\n    @cached_property\n    def place(self): ..."),
    (rules.values_are_named_by_nouns, "stores/threads.py", "self._taken = 1"),
    (rules.values_are_named_by_nouns, "rules/views.py", "match x:\n    case {'a': told}: ..."),
    (rules.the_command_line_uses_public_calls, "cli/tree.py", "rows = store._context.view()"),
    (rules.the_command_line_uses_public_calls, "cli/commands/log.py", "self.store._context"),
    (rules.the_command_line_uses_public_calls, "cli/tree.py", "from perdure.kernel.ops import Scan"),
    (rules.the_command_line_uses_public_calls, "cli/tree.py", "from perdure.stores.threads import _query"),
    (rules.arrows_point_down, "model/message.py", "from perdure.kernel import ops"),
    (rules.arrows_point_down, "model/message.py", "import perdure.clock"),
    (rules.arrows_point_down, "model/message.py", "from perdure import clock"),
    (rules.arrows_point_down, "model/message.py", "from ..ids import new_id"),
    (rules.arrows_point_down, "model/message.py", "def f():\n    from perdure.stores import threads"),
    (rules.arrows_point_down, "model/message.py", "from perdure import Message"),
    (rules.arrows_point_down, "kernel/ops.py", "from perdure.engines.memory import MemoryEngine"),
    (rules.arrows_point_down, "kernel/ops.py", "from perdure.rules import runs"),
    (rules.arrows_point_down, "rules/runs.py", "from perdure.kernel.ops import Put"),
    (rules.arrows_point_down, "rules/runs.py", "from perdure.clock import Clock"),
    (rules.arrows_point_down, "engines/sqlite/write/writer.py", "from perdure.stores.threads import Threads"),
    (rules.arrows_point_down, "engines/sqlite/write/writer.py", "from perdure.engines.memory import MemoryEngine"),
    (rules.arrows_point_down, "engines/sqlite/write/writer.py", "from perdure.engines import memory"),
    (rules.arrows_point_down, "engines/sqlite/write/writer.py", "from ...memory import MemoryEngine"),
    (rules.arrows_point_down, "engines/sqlite.py", "from perdure.rules import runs"),
    (rules.arrows_point_down, "engines/__init__.py", "from perdure.engines.memory import MemoryEngine"),
    (rules.arrows_point_down, "stores/threads.py", "from perdure.engines.memory import MemoryEngine"),
    (rules.arrows_point_down, "stores/threads.py", "from perdure.cli import main"),
    (rules.arrows_point_down, "stores/threads.py", "from perdure import audit"),
    (rules.arrows_point_down, "audit/store.py", "from perdure.testkit.kit import Kit"),
    (rules.arrows_point_down, "audit/store.py", "import perdure"),
    (rules.arrows_point_down, "cli/doctor.py", "from perdure.testkit.kit import Kit"),
    (rules.arrows_point_down, "testkit/reference/threads.py", "from perdure import audit"),
    (rules.arrows_point_down, "opening.py", "from perdure.engines.sqlite import SqliteEngine"),
    (rules.arrows_point_down, "opening.py", "from perdure.sync import Store"),
    (rules.arrows_point_down, "cli/tree.py", "from perdure.engines.sqlite import SqliteEngine"),
    (rules.arrows_point_down, "testkit/reference/store.py", "from perdure.errors import Conflict"),
    (rules.arrows_point_down, "testkit/reference/store.py", "from perdure.testkit.cases import case"),
    (rules.arrows_point_down, "testkit/reference/log.py", "import perdure"),
    (rules.arrows_point_down, "gadgets/__init__.py", ""),
    (rules.modules_are_short, "kernel/ops.py", "x = 1\n" * (rules.MAX_MODULE_LINES + 1)),
    (rules.functions_are_short, "kernel/ops.py", LONG_FUNCTION),
    (rules.functions_are_short, "kernel/ops.py", "async " + LONG_FUNCTION),
    (rules.modules_introduce_themselves, "kernel/ops.py", "import msgspec\n"),
    (rules.modules_introduce_themselves, "kernel/ops.py", "x = 1\n'''too late'''\n"),
    (rules.nothing_is_revived, "kernel/ops.py", "import pickle"),
    (rules.nothing_is_revived, "kernel/ops.py", "def f():\n    from pickle import loads"),
    (rules.nothing_is_revived, "kernel/ops.py", "eval('1')"),
    (rules.nothing_is_revived, "kernel/ops.py", "exec('x = 1')"),
    (rules.nothing_is_revived, "kernel/ops.py", "__import__('os')"),
    (rules.checks_survive_optimisation, "testkit/cases.py", "assert 1 == 1"),
    (rules.nothing_is_left_for_later, "kernel/ops.py", f"x = 1  # {LATER}: more"),
    (rules.nothing_is_left_for_later, "kernel/ops.py", "x = 1  # FIX" + "ME"),
    (rules.no_machine_is_named, "kernel/ops.py", f"PATH = '{HOME}'"),
    (rules.no_machine_is_named, "kernel/ops.py", "PATH = '/ro" + "ot/x'"),
    (rules.no_index_is_promised, "opening.py", "HINT = 'pip install per" + "dure'"),
    (rules.no_index_is_promised, "opening.py", "HINT = 'the extra per" + "dure[redis] has it'"),
    (rules.rules_are_pure, "rules/runs.py", "async def f(): ..."),
    (rules.rules_are_pure, "rules/runs.py", "async def f():\n    await g()"),
    (rules.rules_are_pure, "rules/runs.py", "import time"),
    (rules.rules_are_pure, "rules/runs.py", "from datetime import datetime"),
    (rules.rules_are_pure, "rules/runs.py", "open('x')"),
    (rules.engines_have_one_shape, "engines/sqlite/ddl.py", "x = 1"),
    (rules.engines_have_one_shape, "engines/redis/lua/common.py", "x = 1"),
    (rules.sql_stays_in_engines, "stores/threads.py", "q = 'SELECT id FROM threads'"),
    (rules.sql_stays_in_engines, "stores/threads.py", "q = f'select {c} from {t} where 1'"),
    (rules.sql_stays_in_engines, "stores/threads.py", "q = f'INSERT OR IGNORE INTO {t} VALUES (?)'"),
    (rules.sql_stays_in_engines, "stores/threads.py", "run('PRAGMA journal_mode')"),
    (rules.sql_stays_in_engines, "cli/commands/doctor.py", "run('BEGIN IMMEDIATE')"),
    (rules.sql_stays_in_engines, "testkit/cases/load.py", "q = 'SELECT id FROM threads'"),
    (rules.server_urls_are_read_by_one_parser, "engines/mysql/target.py", "from urllib.parse import quote, urlsplit"),
    (
        rules.server_urls_are_read_by_one_parser,
        "cli/command.py",
        "def f():\n    from urllib.parse import urlparse",
    ),
    (rules.server_urls_are_read_by_one_parser, "testkit/volume.py", "import urllib.parse\nurllib.parse.urlsplit('x')"),
    (rules.server_urls_are_read_by_one_parser, "engines/redis/target.py", "from urllib.parse import parse_qsl"),
    (rules.one_place_writes_to_the_terminal, "cli/commands/doctor.py", "print('x')"),
    (rules.one_place_writes_to_the_terminal, "cli/commands/doctor.py", "import typer\ntyper.echo(title)"),
    (rules.one_place_writes_to_the_terminal, "cli/commands/doctor.py", "out = Console(stderr=True)"),
    (rules.one_place_writes_to_the_terminal, "cli/commands/doctor.py", "sys.stderr.write(f'error: {error}')"),
    (rules.one_place_writes_to_the_terminal, "cli/commands/doctor.py", "TextColumn('{task.description}')"),
    (rules.one_place_writes_to_the_terminal, "cli/commands/doctor.py", "Text.from_markup(title)"),
    (rules.one_place_writes_to_the_terminal, "cli/commands/doctor.py", "desk.out.print(title, markup=True)"),
]

INNOCENT: list[tuple[Rule, str, str]] = [
    (
        rules.values_are_named_by_nouns,
        "kernel/ops.py",
        "def short_repr(value): ...\nrow = x.found\nplaced = taken_ids = 1",
    ),
    (
        rules.arrows_point_down,
        "model/message.py",
        "from perdure.errors import Conflict\nfrom perdure import limits",
    ),
    (rules.arrows_point_down, "model/message.py", "from perdure.model.block import Block\nfrom .block import Block"),
    (
        rules.arrows_point_down,
        "engines/sqlite/write/writer.py",
        "from perdure.engines.sqlite import ddl\nfrom . import ddl",
    ),
    (rules.arrows_point_down, "engines/sqlite/write/writer.py", "from perdure.engines.sql import ddl"),
    (rules.arrows_point_down, "engines/sqlite/write/writer.py", "from perdure.kernel.ops import Put\nimport sqlite3"),
    (rules.arrows_point_down, "opening.py", "def f():\n    from perdure.engines.sqlite import SqliteEngine"),
    (
        rules.arrows_point_down,
        "testkit/reference/store.py",
        "import dataclasses\nfrom perdure.testkit.reference.log import Log",
    ),
    (rules.arrows_point_down, "cli/commands/doctor.py", "from perdure.audit import verify\nimport perdure"),
    (rules.modules_are_short, "kernel/ops.py", "x = 1\n" * rules.MAX_MODULE_LINES),
    (rules.functions_are_short, "kernel/ops.py", LONGEST_FUNCTION),
    (rules.modules_introduce_themselves, "kernel/__init__.py", "\n"),
    (rules.nothing_is_revived, "kernel/ops.py", "import re\nre.compile('x')\ncursor.execute('x')\nmodel.eval()"),
    (rules.nothing_is_left_for_later, "kernel/ops.py", "todo_list = 1"),
    (rules.no_machine_is_named, "kernel/ops.py", "URL = 'https://example.org/home/ada'\nPATH = '/var/lib/x'"),
    (rules.no_index_is_promised, "opening.py", "HINT = 'pip install typer rich'\nOTHER = \"pip install '.[cli]'\""),
    (rules.rules_are_pure, "stores/runs.py", "import time\nasync def f():\n    await g()"),
    (rules.engines_have_one_shape, "engines/sqlite/write/writer.py", "x = 1"),
    (rules.engines_have_one_shape, "engines/sql/ddl.py", "x = 1"),
    (rules.sql_stays_in_engines, "engines/sqlite/ddl.py", "q = 'SELECT id FROM threads'"),
    (rules.sql_stays_in_engines, "scratch.py", "q = 'SELECT id FROM threads'"),
    (rules.server_urls_are_read_by_one_parser, "kernel/url.py", "from urllib.parse import quote, unquote_to_bytes"),
    (rules.one_place_writes_to_the_terminal, "cli/__init__.py", "sys.stderr.write('error: typer is missing')"),
    (rules.one_place_writes_to_the_terminal, "cli/commands/doctor.py", "session.out.print(line)\nfile.write(line)"),
    (rules.one_place_writes_to_the_terminal, "testkit/matrix.py", "print('x')"),
    (rules.the_command_line_uses_public_calls, "cli/tree.py", "self._x = cls._y\nx.__class__\nstore.threads.list()"),
    (rules.the_command_line_uses_public_calls, "sync/stores.py", "store._context"),
    (rules.sql_stays_in_engines, "stores/threads.py", '"""select one from many"""\nx = "update the title"'),
]


def _named(entry: object) -> str | None:
    return getattr(entry, "__name__", None)


@pytest.mark.parametrize(("rule", "path", "source"), BITES, ids=_named)
def test_rule_bites(rule: Rule, path: str, source: str) -> None:
    assert list(rule(_product_file(path, source))), f"{rule.__name__} let this pass:\n{source}"


@pytest.mark.parametrize(("rule", "path", "source"), INNOCENT, ids=_named)
def test_rule_spares_the_innocent(rule: Rule, path: str, source: str) -> None:
    assert list(rule(_product_file(path, source))) == []


def test_every_rule_is_shown_to_bite() -> None:
    assert {rule for rule, _, _ in BITES} == set(rules.RULES)


def test_findings_name_the_line() -> None:
    file = _product_file("kernel/ops.py", '"""Doc."""\n\nassert True\n')
    assert [line for line, _ in rules.checks_survive_optimisation(file)] == [3]


def test_relative_imports_are_resolved() -> None:
    file = _product_file(
        "engines/sqlite/write/writer.py", "from . import ddl\nfrom ...sql import x\nfrom ....errors import y"
    )
    found = [item.module for item in own_imports(file.tree, file.path.relative_to("src"))]
    assert found == ["perdure.engines.sqlite.write", "perdure.engines.sql", "perdure.errors"]


def _product_file(path: str, source: str) -> File:
    return File(PurePosixPath("src/perdure") / path, source)
