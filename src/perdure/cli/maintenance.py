"""`perdure health`, `perdure migrate` and `perdure copy`: what whoever keeps a store does with it as a whole.

They are told a URL instead of a thread, look before they touch, and never show a password.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from perdure.cli.command import FINDINGS, Desk, command, insist_there, named
from perdure.cli.doctor import show_health
from perdure.cli.escaping import one_line
from perdure.cli.tables import Cell, Column
from perdure.cli.terminal import bar_text, error_console
from perdure.copy import Copied, Told, copy
from perdure.errors import InvalidError
from perdure.kernel.engine import Health, Migration
from perdure.kernel.redaction import redacted
from perdure.opening import is_server, open_engine, plan_migration

_EVERY = 64
"""Rows between two looks at the bar."""

UrlArgument = Annotated[str | None, typer.Argument(metavar="[URL]", help="The store; else that of --store.")]

CopiedScopeOption = Annotated[
    str | None, typer.Option("--scope", metavar="NAME", help="The tenant to copy; else every tenant.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, access="none", name="health")(health)
    command(app, access="none", name="migrate")(migrate)
    command(app, access="none", name="copy", takes_store=False, scope_option=CopiedScopeOption)(copy_)


async def health(desk: Desk, url: UrlArgument = None) -> int:
    """Show the engine's real settings, and what weakens its promises; exit code 1 if something does."""
    target = named(url or desk.url)
    await insist_there(target)
    plan = await plan_migration(target)
    if plan.current is not None and plan.steps:
        return show_health(desk, _behind(plan), None)
    engine = await open_engine(target)
    try:
        return show_health(desk, await engine.health(), engine.capabilities)
    finally:
        await engine.close()


def _behind(plan: Migration) -> Health:
    """What can be said of a store that only a migration could open."""
    told = f"the schema is version {plan.current}, this build wants {plan.wanted}: run perdure migrate"
    return Health(plan.engine, False, "none", {"schema_version": plan.current}, (told,))


async def migrate(
    desk: Desk,
    url: UrlArgument = None,
    *,
    check: Annotated[bool, typer.Option("--check", help="Only show the steps; exit code 1 if there are any.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every statement.")] = False,
) -> int:
    """Bring a store's schema up to date with this build, or only tell what that would take."""
    target = named(url or desk.url)
    if target.startswith("memory://"):
        raise InvalidError("a memory:// store has nothing to migrate", hint="name a store that stays")
    if not is_server(target):
        await insist_there(target)
    plan = await plan_migration(target)
    pending = plan.current is None or bool(plan.steps)
    if pending and not check:
        await (await open_engine(target)).close()
    if desk.as_json:
        desk.emit({**msgspec.to_builtins(plan), "pending": pending and check, "migrated": pending and not check})
    else:
        _show_plan(desk, plan, pending=pending, check=check, verbose=verbose)
    return FINDINGS if pending and check else 0


def _show_plan(desk: Desk, plan: Migration, *, pending: bool, check: bool, verbose: bool) -> None:
    if not pending:
        desk.say(f"up to date: schema version {plan.wanted}", "green")
        return
    origin = "nothing" if plan.current is None else f"version {plan.current}"
    if check:
        desk.say(f"pending: from {origin} to version {plan.wanted}; nothing was changed", "yellow")
    else:
        desk.say(f"migrated from {origin} to version {plan.wanted}", "green")
    if verbose:
        for step in plan.steps:
            desk.say(one_line(step, 2_000))
    elif plan.steps:
        desk.say(f"{_summary(plan.steps)} (--verbose shows every statement)")


_STATEMENT = re.compile(r"(CREATE|ALTER|DROP)\b.*?\b(SCHEMA|TABLE|INDEX|FUNCTION)\b", re.IGNORECASE | re.DOTALL)
_NEWS = {"CREATE": "new ", "ALTER": "changed ", "DROP": "dropped "}
_MANY = {"INDEX": "indexes"}


def _summary(steps: Sequence[str]) -> str:
    """How many statements of which kind; what is none of these is counted as a step."""
    kinds: Counter[tuple[str, str]] = Counter()
    for step in steps:
        found = _STATEMENT.match(step)
        kinds[(found[1].upper(), found[2].upper()) if found else ("", "STEP")] += 1
    return ", ".join(_counted(number, *kind) for kind, number in kinds.items())


def _counted(number: int, verb: str, noun: str) -> str:
    many = _MANY.get(noun, f"{noun.lower()}s")
    return f"{number} {_NEWS.get(verb, '')}{noun.lower() if number == 1 else many}"


async def copy_(
    desk: Desk,
    source: Annotated[str, typer.Argument(metavar="SRC_URL", help="The store to copy; it is only read.")],
    target: Annotated[str, typer.Argument(metavar="DST_URL", help="Where to; made if it is missing.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; tell what would be copied.")] = False,
) -> None:
    """Copy a whole store to another engine, every tenant or that of --scope, and verify it.

    Interrupted, it can be run again.
    """
    if not is_server(source):
        await insist_there(source)
    scopes = None if desk.scope is None else [desk.scope]
    with _told_when_stopped("nothing was changed" if dry_run else "run it again to go on"), _bar() as move:
        done = await copy(source, target, scopes=scopes, dry_run=dry_run, progress=move)
    if desk.as_json:
        desk.emit({**_document(done), "source": redacted(source), "destination": redacted(target)})
        return
    _show_parts(desk, done)
    what = "would be copied" if dry_run else "copied"
    there = done.rows - done.missing
    also = f", {there:,} were there already" if there else ""
    proof = "" if dry_run else "; both sides read back: counts and checksums are the same"
    desk.say(f"{done.missing:,} rows {what} to {one_line(redacted(target))}{also}{proof}", "" if dry_run else "green")


def _document(done: Copied) -> dict[str, Any]:
    parts = [msgspec.structs.asdict(part) for part in done.parts]
    return {"dry_run": done.dry_run, "rows": done.rows, "copied": done.missing, "bytes": done.bytes, "parts": parts}


def _show_parts(desk: Desk, done: Copied) -> None:
    columns = [
        Column("scope", "id", 5),
        Column("part", "id", 6),
        Column("rows", "number", 4),
        Column("to copy" if done.dry_run else "copied", "number", 3),
        Column("checksum", "id", 1),
    ]
    rows: list[list[Cell]] = [
        [one_line(p.scope), p.name, f"{p.rows:,}", f"{p.missing:,}", (p.checksum or "–")[:16]]
        for p in done.parts
        if p.rows
    ]
    if rows:
        desk.table(columns, rows)


@contextmanager
def _told_when_stopped(what_now: str) -> Iterator[None]:
    """Ctrl-C cancels the command: say what that means, and let it end."""
    try:
        yield
    except asyncio.CancelledError:
        error_console().print(f"stopped; {what_now}")
        raise


@contextmanager
def _bar() -> Iterator[Callable[[Told], None]]:
    """A progress bar on stderr; nothing at all when that is no terminal."""
    console = error_console()
    columns = (
        bar_text("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        bar_text("{task.fields[part]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("comparing", total=None, part="")

        def move(told: Told) -> None:
            if told.done % _EVERY == 1:
                part = one_line(f"{told.scope}/{told.name}", 40)
                bar.update(task, description=told.stage, completed=told.done, total=told.total, part=part)

        yield move
