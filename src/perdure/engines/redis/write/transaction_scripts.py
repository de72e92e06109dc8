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
from perdure.engines.redis.write.log_lua import AppendCode, DropCode, TrimCode
from perdure.engines.redis.write.row_lua import Frame, RowCode
from perdure.engines.redis.write.value_lua import quoted

FIRST = 7
"""Where the arguments of the operations begin; `lua/gate.lua` describes those before."""

_USES_BEFORE_OWN = 3
_MOST_OWN = 64
_MOST_PROGRAMS = 1_000
MOST_SINGLE = 40
"""With up to this many groups, an operation that is alone in its group gets their own variables: Lua allows few."""


Code = RowCode | AppendCode | DropCode | TrimCode
Step = RowCode | tuple[Code]
"""A group of operations with the same code. It is in a tuple if there are several, or if the number of their arguments
varies."""


class Group(NamedTuple):
    """A step other than an append: `first` is where the arguments of its only operation begin; None if it has several,
    whose count and arguments follow those of the groups before."""

    number: int
    code: RowCode | DropCode | TrimCode
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

    def get(self, steps: tuple[Step, ...] | RowCode) -> Program:
        """For a transaction of these steps, or for claiming rows that this code changes."""
        program = self._programs.get(steps)
        if program is None:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
            text = take_text(steps) if isinstance(steps, RowCode) else transaction_text(steps)
            program = self._programs[steps] = Program(text)
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


def transaction_text(steps: Sequence[Step]) -> str:
    """The whole script: all checks, then all writes; appends first, because columns may hold their seqs."""
    rows: list[Group] = []
    appends: list[tuple[int, AppendCode]] = []
    first = FIRST
    for number, step in enumerate(steps, 1):
        if isinstance(step, RowCode):
            rows.append(Group(number, step, first))
            first += step.size
        elif isinstance(step[0], AppendCode):
            appends.append((number, step[0]))
        else:
            rows.append(Group(number, step[0], None))
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
    opening, between, closing = lua("take").replace("$hints", str(FIRST + code.size)).split("-- $code\n")
    changed = "\n".join((opening, *code.checks(frame), between, *code.writes(frame), closing))
    return "\n".join((lua("gate", "common", "text", "swap", "keys", "reads"), changed))


def with_helpers(text: str) -> str:
    """A script with the functions that it calls and no others: defining one costs every call."""
    calls = {"escaped(": "text", "grouped(": "text", "swapped(": "swap"}
    helpers = dict.fromkeys(helper for call, helper in calls.items() if call in text)
    return f"{lua('gate', *helpers)}\n{text}"


def _frame(group: Group) -> Frame:
    number, first = group.number, group.first
    if first is None:
        return Frame(lambda k: f"ARGV[first + {k}]", "key", "name", "row", f"{number}, i")
    return Frame(lambda k: f"ARGV[{first + k}]", f"key{number}", f"name{number}", f"row{number}", f"{number}, 1")


def _naming(code: RowCode, frame: Frame) -> str:
    table = quoted(f"t:{code.table.name}:")
    return f"local {frame.key} = {frame.argument(0)}\nlocal {frame.name} = base .. {table} .. {frame.key}"


def _checks(group: Group) -> Iterator[str]:
    number, code, first = group
    if first is None:
        yield f"held[{number}], at = {{}}, at + 1"
        yield "for i = 1, tonumber(ARGV[at]) do\nlocal first, row = at + 1, {}"
    if isinstance(code, RowCode):
        frame = _frame(group)
        yield _naming(code, frame)
        if first is not None:
            yield f"local {frame.row}"
        yield from code.checks(frame)
    if first is None:
        yield f"row.first = first\nheld[{number}][i] = row\nat = at + {code.size}\nend"


def _writes(group: Group) -> Iterator[str]:
    number, code, first = group
    yield "do" if first is not None else f"for i, row in ipairs(held[{number}]) do\nlocal first = row.first"
    if isinstance(code, (DropCode, TrimCode)):
        yield code.text
    else:
        if first is None:
            yield _naming(code, _frame(group))
        yield from code.writes(_frame(group))
    yield "end"
