"""Transactions as scripts: straight-line Lua, generated once for all transactions that do the same to other data.

A general script would spend most of its time decoding what to do. So the client generates the script: the operations
are in its text, the data is in its arguments. Everything is checked before the first write, because a script has no
rollback.

Servers cache every script that they run. Only transactions that recur get a script of their own there, and only a
limited number of them; the others send their text as an argument of one script that runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure.engines.redis.connections.scripts import COMPILE, Script, lua
from perdure.engines.redis.write.log_lua import AppendCode, DropCode
from perdure.engines.redis.write.row_lua import Frame, RowCode
from perdure.engines.redis.write.value_lua import quoted

FIRST = 7
"""Where the arguments of the operations begin; `lua/gate.lua` describes those before."""

_USES_BEFORE_OWN = 3
_MOST_OWN = 64
_MOST_PROGRAMS = 1_000
_MOST_SINGLE = 40


Code = RowCode | AppendCode | DropCode
Step = RowCode | tuple[Code]
"""A group of operations with the same code. It is in a tuple if there are several, or if the number of their arguments
varies."""


class Group(NamedTuple):
    """A step other than an append: `first` is where the arguments of its only operation begin; None if it has several,
    whose count and arguments follow those of the groups before."""

    number: int
    code: RowCode | DropCode
    first: int | None


class Program:
    """One script, how often it was used, and whether servers may cache it."""

    def __init__(self, text: str) -> None:
        lines = [line for line in text.splitlines() if line and not line.startswith("--")]
        self.script = Script("\n".join(lines), commits=True)
        self.uses = 0
        self.own = False


class Programs:
    """The programs in use, by their steps."""

    def __init__(self) -> None:
        self._programs: dict[object, Program] = {}
        self._own: set[bytes] = set()

    def transaction(self, steps: tuple[Step, ...]) -> Program:
        """For a transaction."""
        return self._programs.get(steps) or self._add(steps, transaction_text(steps))

    def take(self, code: RowCode) -> Program:
        """For claiming rows."""
        return self._programs.get(code) or self._add(code, take_text(code))

    def _add(self, key: object, text: str) -> Program:
        if len(self._programs) >= _MOST_PROGRAMS:
            self._programs.clear()
        program = self._programs[key] = Program(text)
        program.own = program.script.sha in self._own
        return program

    def call(self, program: Program, arguments: list[bytes]) -> tuple[Script, list[bytes]]:
        """The script to call, and its arguments."""
        if program.own:
            return program.script, arguments
        program.uses += 1
        if program.uses == _USES_BEFORE_OWN and len(self._own) < _MOST_OWN:
            self._own.add(program.script.sha)
            program.own = True
        return COMPILE, [*arguments, program.script.text]


def is_single(groups: int) -> bool:
    """Whether operations that are alone in their group get their own variables: Lua allows few."""
    return groups <= _MOST_SINGLE


def transaction_text(steps: Sequence[Step]) -> str:
    """The whole script: all checks, then all writes; appends first, because columns may hold their seqs."""
    rows: list[Group] = []
    appends: list[tuple[int, AppendCode]] = []
    first = FIRST
    for number, step in enumerate(steps, 1):
        code = step[0] if isinstance(step, tuple) else step
        if isinstance(code, AppendCode):
            appends.append((number, code))
        elif isinstance(step, tuple):
            rows.append(Group(number, code, None))
        else:
            rows.append(Group(number, code, first))
            first += step.size
    lines = [f"local at, lasts, seqs, owners = {first - 1}, '', {{}}, {{}}"]
    lines += [code.check(number) for number, code in appends]
    lines += [line for group in rows for line in _checks(group)]
    lines.append("if not mark then call('SET', base .. 'schema', ARGV[1]) end")
    lines += [code.write(number) for number, code in appends]
    lines += [line for group in rows for line in _writes(group)]
    # A hint is best effort: a user without permission for channels must still be able to commit.
    lines.append("for n = at + 1, #ARGV do redis.pcall('PUBLISH', ARGV[n], ARGV[6]) end")
    lines.append("return {ok = now .. lasts}")
    return with_helpers("\n".join(lines))


def take_text(code: RowCode) -> str:
    """The script that claims rows: the change of one row, within the walk of `lua/take.lua`."""
    frame = Frame(lambda k: f"ARGV[{FIRST + k}]", "key", "name", "row", "1, 1", lambda k: f"keys[{k + 1}]")
    opening, between, closing = lua("take").split("-- $code\n")
    changed = "\n".join((opening, *code.checks(frame), between, *code.writes(frame), closing))
    return "\n".join((lua("gate", "common", "text", "swap", "keys", "reads"), changed))


def with_helpers(text: str) -> str:
    """A script with the functions that it calls and no others: defining one costs every call."""
    helpers = ["gate"]
    if "escaped(" in text or "grouped(" in text:
        helpers.append("text")
    if "swapped(" in text:
        helpers.append("swap")
    return f"{lua(*helpers)}\n{text}"


def _frame(group: Group) -> Frame:
    number, first = group.number, group.first
    if first is None:
        return Frame(lambda k: f"ARGV[first + {k}]", "key", "name", "row", f"{number}, i")
    return Frame(lambda k: f"ARGV[{first + k}]", f"key{number}", f"name{number}", f"row{number}", f"{number}, 1")


def _naming(group: Group) -> str:
    frame, code = _frame(group), group.code
    table = quoted(f"t:{code.table.name}:") if isinstance(code, RowCode) else ""
    return f"local {frame.key} = {frame.argument(0)}\nlocal {frame.name} = base .. {table} .. {frame.key}"


def _checks(group: Group) -> Iterator[str]:
    code, number = group.code, group.number
    checks = code.checks(_frame(group)) if isinstance(code, RowCode) else ()
    if group.first is not None:
        yield f"{_naming(group)}\nlocal row{number}"
        yield from checks
        return
    yield f"held[{number}], at = {{}}, at + 1"
    yield "for i = 1, tonumber(ARGV[at]) do\nlocal first, row = at + 1, {}"
    if isinstance(code, RowCode):
        yield _naming(group)
        yield from checks
    yield f"row.first = first\nheld[{number}][i] = row\nat = at + {code.size}\nend"


def _writes(group: Group) -> Iterator[str]:
    code = group.code
    if isinstance(code, RowCode) and group.first is not None:
        yield "do"
        yield from code.writes(_frame(group))
        yield "end"
        return
    yield f"for i, row in ipairs(held[{group.number}]) do\nlocal first = row.first"
    if isinstance(code, RowCode):
        yield _naming(group)
        yield from code.writes(_frame(group))
    elif isinstance(code, DropCode):
        yield code.write()
    yield "end"
