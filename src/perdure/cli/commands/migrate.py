"""`perdure migrate`: bring the schema of a store up to date, or show what that would take."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from perdure.cli.command import FINDINGS, CommandContext, UrlArgument, command, insist_there, named
from perdure.cli.escaping import one_line
from perdure.errors import InvalidError
from perdure.kernel.engine import Migration
from perdure.opening import is_server, open_engine, plan_migration


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, access="none", name="migrate")(migrate)


async def migrate(
    context: CommandContext,
    url: UrlArgument = None,
    *,
    check: Annotated[bool, typer.Option("--check", help="Only show the steps; exit code 1 if there are any.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every statement.")] = False,
) -> int:
    """Bring a store's schema up to date with this build, or only show what that would take."""
    target = named(url or context.url)
    if target.startswith("memory://"):
        raise InvalidError("a memory:// store has nothing to migrate", hint="use sqlite:/// or a server")
    if not is_server(target):
        await insist_there(target)
    plan = await plan_migration(target)
    pending = plan.current is None or bool(plan.steps)
    if pending and not check:
        await (await open_engine(target)).close()
    if context.as_json:
        context.emit({**msgspec.to_builtins(plan), "pending": pending and check, "migrated": pending and not check})
    else:
        _show_plan(context, plan, pending=pending, check=check, verbose=verbose)
    return FINDINGS if pending and check else 0


def _show_plan(context: CommandContext, plan: Migration, *, pending: bool, check: bool, verbose: bool) -> None:
    if not pending:
        context.say(f"up to date: schema version {plan.wanted}", "green")
        return
    origin = "nothing" if plan.current is None else f"version {plan.current}"
    if check:
        context.say(f"pending: from {origin} to version {plan.wanted}; nothing was changed", "yellow")
    else:
        context.say(f"migrated from {origin} to version {plan.wanted}", "green")
    if verbose:
        for step in plan.steps:
            context.say(one_line(step, 2_000))
    elif plan.steps:
        context.say(f"{_summary(plan.steps)} (--verbose shows every statement)")


_STATEMENT = re.compile(r"(CREATE|ALTER|DROP)\b.*?\b(SCHEMA|TABLE|INDEX|FUNCTION)\b", re.IGNORECASE | re.DOTALL)
_NEWS = {"CREATE": "new ", "ALTER": "changed ", "DROP": "dropped "}
_MANY = {"INDEX": "indexes"}


def _summary(steps: Sequence[str]) -> str:
    """How many statements of which kind; what is none of these is counted as a step."""
    kinds: Counter[tuple[str, str]] = Counter()
    for step in steps:
        match = _STATEMENT.match(step)
        kinds[(match[1].upper(), match[2].upper()) if match else ("", "STEP")] += 1
    return ", ".join(_counted(number, *kind) for kind, number in kinds.items())


def _counted(number: int, verb: str, noun: str) -> str:
    many = _MANY.get(noun, f"{noun.lower()}s")
    return f"{number} {_NEWS.get(verb, '')}{noun.lower() if number == 1 else many}"
