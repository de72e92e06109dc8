"""`perdure doctor`: is the data sound, are the settings what they should be, is anything left to tidy up?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from perdure.cli.command import FINDINGS, Desk, Session, command, without_passwords
from perdure.cli.escaping import to_json_text
from perdure.cli.helptext import Group
from perdure.cli.terminal import error_console, plain
from perdure.kernel.engine import Capabilities, Health
from perdure.stores.cleanup import sweep as sweep_core
from perdure.stores.store import Store

if TYPE_CHECKING:
    from perdure.audit import Finding

SURVIVES = {"none": "nothing", "process": "the end of the process", "power": "a power loss"}

doctor = typer.Typer(cls=Group, help="Check a store and tidy it up.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the sub-commands."""
    command(doctor, name="verify")(verify_command)
    command(doctor, access="write", name="health")(health)
    command(doctor, access="write", name="sweep")(sweep)
    app.add_typer(doctor, name="doctor")


async def verify_command(
    session: Session,
    *,
    all_scopes: Annotated[bool, typer.Option("--all-scopes", help="Every tenant.")] = False,
) -> int:
    """Check every invariant of the stored data; exit code 1 if something is wrong."""
    with error_console().status("auditing") as status:

        def progress(what: str, done: int, total: int) -> None:
            status.update(Text(f"auditing {what}: {done:,} of {total:,}"))

        findings = await _audit(session.store, progress, all_scopes=all_scopes)
    if session.as_json:
        session.emit({"ok": not findings, "findings": [msgspec.structs.asdict(finding) for finding in findings]})
    elif findings:
        session.show(_findings_table(findings))
    else:
        session.say("all is well: no invariant is broken", "green")
    return FINDINGS if findings else 0


async def _audit(store: Store, progress: Callable[[str, int, int], None], *, all_scopes: bool) -> list[Finding]:
    from perdure.audit import engine_findings, verify, verify_engine

    if all_scopes:
        return await verify_engine(store.engine, progress=progress)
    return await engine_findings(store.engine) + await verify(store, progress=progress)


def _findings_table(findings: list[Finding]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("scope", "record", "check", "invariant", "problem"):
        shown.add_column(name, overflow="fold")
    for finding in findings:
        shown.add_row(
            plain(finding.scope),
            plain(finding.record, "bold"),
            finding.check,
            finding.invariant,
            plain(finding.problem, "red"),
        )
    return shown


async def health(session: Session) -> int:
    """Show the engine's real settings, and what weakens its promises; exit code 1 if something does."""
    return show_health(session, await session.store.health(), session.store.capabilities())


def show_health(desk: Desk, found: Health, able: Capabilities | None) -> int:
    """Write what an engine says of itself; the exit code."""
    if desk.as_json:
        capabilities = None if able is None else msgspec.to_builtins(able)
        desk.emit({"health": msgspec.to_builtins(found), "capabilities": capabilities})
        return 0 if found.ok else FINDINGS
    shown = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    shown.add_column(style="dim")
    shown.add_column(overflow="fold")
    shown.add_row("engine", found.engine)
    if able is not None:
        shown.add_row("survives", SURVIVES[found.durability])
        shown.add_row("processes", able.processes)
    for name, value in found.settings.items():
        shown.add_row(name, plain(without_passwords(value if isinstance(value, str) else to_json_text(value))))
    for note in able.notes if able is not None else ():
        shown.add_row("note", plain(note))
    for problem in found.problems:
        shown.add_row(Text("problem", "bold red"), plain(without_passwords(problem), "red"))
    desk.show(shown)
    return 0 if found.ok else FINDINGS


async def sweep(session: Session) -> None:
    """Finish interrupted deletions, remove what interrupted imports left, drop expired keys and tombstones."""
    await sweep_core(session.store._core)  # noqa: SLF001 - what housekeeping does, asked for
    if session.as_json:
        session.emit({"swept": True})
    else:
        session.say("swept")
