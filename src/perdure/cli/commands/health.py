"""`perdure health`: the actual settings of a store, and what weakens its guarantees."""

from __future__ import annotations

import typer

from perdure.cli.command import CommandContext, UrlArgument, command, insist_there, named
from perdure.cli.commands.doctor import show_health
from perdure.kernel.engine import Health, Migration
from perdure.opening import open_engine, plan_migration


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, access="none", name="health")(health)


async def health(context: CommandContext, url: UrlArgument = None) -> int:
    """Show the engine's actual settings, and what weakens its guarantees; exit code 1 if something does."""
    target = named(url or context.url)
    await insist_there(target)
    plan = await plan_migration(target)
    if plan.current is not None and plan.steps:
        return show_health(context, _behind(plan), None)
    engine = await open_engine(target)
    try:
        return show_health(context, await engine.health(), engine.capabilities)
    finally:
        await engine.close()


def _behind(plan: Migration) -> Health:
    """What can be said of a store that only a migration could open."""
    problem = f"the schema is version {plan.current}, this build wants {plan.wanted}: run perdure migrate"
    return Health(plan.engine, False, "none", {"schema_version": plan.current}, (problem,))
