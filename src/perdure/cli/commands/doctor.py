"""`perdure doctor`: is the data sound, are the settings what they should be, is anything left to tidy up?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from perdure.cli.command import FINDINGS, CommandContext, StoreContext, command, without_passwords
from perdure.cli.escaping import to_json_text
from perdure.cli.helptext import Group
from perdure.cli.terminal import error_console, plain
from perdure.kernel.engine import Capabilities, Health
from perdure.stores.store import Store

if TYPE_CHECKING:
    from perdure.audit import Finding

SURVIVES = {"none": "nothing", "process": "the end of the process", "power": "a power loss"}

doctor = typer.Typer(cls=Group, help="Check a store and tidy it up.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the sub-commands."""
    command(doctor, name="verify")(verify_command)
    command(doctor, access="write", name="health")(health)
    command(doctor, access="write", any_scope=True, name="sweep")(sweep)
    app.add_typer(doctor, name="doctor")


async def verify_command(
    context: StoreContext,
    *,
    all_scopes: Annotated[bool, typer.Option("--all-scopes", help="Every tenant.")] = False,
) -> int:
    """Check every invariant of the stored data; exit code 1 if something is wrong."""
    with error_console().status("auditing") as status:

        def progress(what: str, done: int, total: int) -> None:
            status.update(Text(f"auditing {what}: {done:,} of {total:,}"))

        findings = await _audit(context.store, progress, all_scopes=all_scopes)
    if context.as_json:
        context.emit({"ok": not findings, "findings": [msgspec.structs.asdict(finding) for finding in findings]})
    elif findings:
        context.show(_findings_table(findings))
    else:
        context.say("all is well: no invariant is broken", "green")
    return FINDINGS if findings else 0


async def _audit(store: Store, progress: Callable[[str, int, int], None], *, all_scopes: bool) -> list[Finding]:
    from perdure.audit import engine_findings, verify, verify_engine

    if all_scopes:
        return await verify_engine(store.engine, progress=progress)
    return await engine_findings(store.engine) + await verify(store, progress=progress)


def _findings_table(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("scope", "record", "check", "invariant", "problem"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        table.add_row(
            plain(finding.scope),
            plain(finding.record, "bold"),
            finding.check,
            finding.invariant,
            plain(finding.problem, "red"),
        )
    return table


async def health(context: StoreContext) -> int:
    """Show the engine's actual settings, and what weakens its guarantees; exit code 1 if something does."""
    return show_health(context, await context.store.health(), context.store.capabilities())


def show_health(context: CommandContext, health: Health, capabilities: Capabilities | None) -> int:
    """Write what an engine says of itself; the exit code."""
    if context.as_json:
        documents = {"health": msgspec.to_builtins(health), "capabilities": msgspec.to_builtins(capabilities)}
        context.emit(documents)
        return 0 if health.ok else FINDINGS
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row("engine", health.engine)
    if capabilities is not None:
        table.add_row("survives", SURVIVES[health.durability])
        table.add_row("processes", capabilities.processes)
    for name, value in health.settings.items():
        table.add_row(name, plain(without_passwords(value if isinstance(value, str) else to_json_text(value))))
    for note in capabilities.notes if capabilities is not None else ():
        table.add_row("note", plain(note))
    for problem in health.problems:
        table.add_row(Text("problem", "bold red"), plain(without_passwords(problem), "red"))
    context.show(table)
    return 0 if health.ok else FINDINGS


async def sweep(context: StoreContext) -> None:
    """Finish interrupted deletions, remove leftovers of imports, drop expired keys, profiles and tombstones."""
    await context.store.sweep()
    if context.as_json:
        context.emit({"swept": True})
    else:
        context.say("swept")
