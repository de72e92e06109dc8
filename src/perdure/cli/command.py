"""What every command shares: the options, opening the store, finding what was named, output, and errors.

A command is an `async def` that takes a `StoreContext` first. `command` adds `--store`, `--scope` and `--json`, opens
the store with the access the command needs, and turns every error into one line and an exit code: 2 for an error that
the user can fix, 1 for damaged data. With `--json` stdout holds nothing but JSON.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer
from rich.console import RenderableType
from rich.text import Text

import perdure
from perdure.cli.encodings import fitted_text, write_json
from perdure.cli.escaping import visible
from perdure.cli.helptext import Command
from perdure.cli.naming import find_branch, find_message, find_run, find_thread
from perdure.cli.tables import Cell, Column, table_lines
from perdure.cli.terminal import Screen, console, error_console
from perdure.errors import CorruptError, InvalidError, NotFoundError, PerdureError
from perdure.kernel.redaction import masked_secrets, masked_urls, redacted
from perdure.model.branch import Branch
from perdure.model.message import MessageRecord
from perdure.model.run import Run
from perdure.opening import Opening, is_server, open_any_scope, plan_migration, sqlite_path
from perdure.stores.store import Store

T = TypeVar("T")
FINDINGS, USER_ERROR, DEFECT = 1, 2, 70
Access = Literal["none", "read", "write", "create"]

STORE_VARIABLE = "PERDURE_STORE"

StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help=f"The store, such as sqlite:///agents.db; default: ${STORE_VARIABLE}."),
]
ScopeOption = Annotated[str | None, typer.Option("--scope", metavar="NAME", help="The tenant; default: 'default'.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, and nothing else, to stdout.")]
HiddenStoreOption = Annotated[str | None, typer.Option("--store", hidden=True)]
UrlArgument = Annotated[str | None, typer.Argument(metavar="[URL]", help="The store; default: the one in --store.")]
ThreadArgument = Annotated[str, typer.Argument(metavar="THREAD", help="A thread's id, or a unique prefix of it.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or a unique prefix of it.")]


class CommandContext:
    """One command at work: the URL and the tenant it was given, and a place to write to."""

    def __init__(
        self, url: str | None = None, scope: str | None = None, *, as_json: bool, width: int | None = None
    ) -> None:
        self.url = url
        self.scope = scope
        self.as_json = as_json
        self.out: Screen = console(width=width)

    def show(self, renderable: RenderableType) -> None:
        """Write something for people, without the spaces that tables put at the end of a line."""
        for line in self.out.render_lines(renderable, pad=False):
            text = Text.assemble(*[(part.text, part.style or "") for part in line])
            text.rstrip()
            self.out.print(text, soft_wrap=True)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """Write a table that fits the terminal."""
        spelled = [[_spelled(self.out, cell) for cell in row] for row in rows]
        for line in table_lines(columns, spelled, self.out.width, fitted_text(self.out.file, "…")):
            self.out.print(line, soft_wrap=True)

    def say(self, text: str, style: str = "") -> None:
        """Write a sentence for people; not a word of it with `--json`."""
        if not self.as_json:
            self.out.print(Text(visible(text), style=style), soft_wrap=True)

    def emit(self, document: Any) -> None:
        """Write one JSON document on one line."""
        write_json(sys.stdout, document)


def _spelled(out: Screen, cell: Cell) -> Cell:
    """The cell as the screen will write it: an escape is wider than what it stands for."""
    text = fitted_text(out.file, visible(str(cell)))
    return Text(text, style=cell.style) if isinstance(cell, Text) else text


class StoreContext(CommandContext):
    """A command with an open store."""

    def __init__(self, store: Store, *, as_json: bool, width: int | None = None) -> None:
        super().__init__(as_json=as_json, width=width)
        self.store = store

    async def thread_id(self, text: str) -> str:
        """The id of the thread that `text` names: its id, or the only id that starts with it."""
        return await find_thread(self.store, text)

    async def run(self, text: str) -> Run:
        """The run that `text` names: by its id, or by the only id that starts with it."""
        return await find_run(self.store, text)

    async def branch(self, thread_id: str, text: str) -> Branch:
        """The branch that `text` names: by name, or by number."""
        return await find_branch(self.store, thread_id, text)

    async def message(self, thread_id: str, text: str) -> MessageRecord:
        """The message that `text` names: by id, or by its number in the log."""
        return await find_message(self.store, thread_id, text)


Body = Callable[..., Coroutine[Any, Any, int | None]]
Options = dict[str, Any]
Preparation = Callable[[Options, bool], AbstractAsyncContextManager[Options]]


@asynccontextmanager
async def _nothing(options: Options, _is_new: bool, /) -> AsyncIterator[Options]:
    yield options


def command(
    app: typer.Typer,
    *,
    access: Access | Callable[[Options], Access] = "read",
    prepare: Preparation = _nothing,
    name: str | None = None,
    takes_store: bool = True,
    scope_option: Any = ScopeOption,
    any_scope: bool = False,
) -> Callable[[Body], Body]:
    """Register an `async def` as a command; what it returns is the exit code, None meaning 0.

    `access` says how the store is opened; it may depend on the command's options. `prepare` runs before that: it learns
    whether the store would be new, may refuse, and may change the options. With access "none" the command gets a
    `CommandContext` and opens what it needs itself. With `takes_store=False` it refuses `--store` and hides it from its
    help. `scope_option` replaces the description of `--scope`. With `any_scope` it may write to a reserved scope: it
    only removes what is there.
    """

    def register(body: Body) -> Body:
        @functools.wraps(body)
        def call(ctx: typer.Context, *, store: str | None, scope: str | None, as_json: bool, **options: Any) -> None:
            shared: dict[str, Any] = ctx.find_root().params
            url = store or shared.get("store") or os.environ.get(STORE_VARIABLE)
            tenant = shared.get("scope") if scope is None else scope
            as_json = as_json or bool(shared.get("as_json"))
            width = options.get("width")
            how = access(options) if callable(access) else access

            async def work() -> int | None:
                if not takes_store and (store or shared.get("store")):
                    raise InvalidError(f"{ctx.command_path} takes no --store", hint="give the URLs as arguments")
                if how == "none":
                    return await body(CommandContext(url, tenant, as_json=as_json, width=width), **options)
                target = named(url)
                async with (
                    prepare(options, await is_new(target)) as prepared,
                    await _open(target, "default" if tenant is None else tenant, how, any_scope) as opened,
                ):
                    return await body(StoreContext(opened, as_json=as_json, width=width), **prepared)

            raise typer.Exit(guarded(work, as_json=as_json))

        _sign(call, body, StoreOption if takes_store else HiddenStoreOption, scope_option)
        app.command(name, cls=Command)(call)
        return body

    return register


def _sign(call: Callable[..., None], body: Body, store_option: Any, scope_option: Any) -> None:
    """Give `call` the parameters of `body` and the shared options, for typer to read."""
    hints = get_type_hints(body, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in list(inspect.signature(body).parameters.values())[1:]]
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *[parameter.replace(kind=keyword) for parameter in own],
        inspect.Parameter("store", keyword, annotation=store_option, default=None),
        inspect.Parameter("scope", keyword, annotation=scope_option, default=None),
        inspect.Parameter("as_json", keyword, annotation=JsonOption, default=False),
    ]
    call.__signature__ = inspect.Signature(shared)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in shared}


def named(url: str | None) -> str:
    """The URL, if one was given."""
    if not url:
        raise InvalidError("no store is named", hint=f"use --store sqlite:///agents.db, or set {STORE_VARIABLE}")
    return url


async def _open(url: str, scope: str, access: Access, any_scope: bool) -> Opening:
    # Only an import may bring a store into the world: a typing error must not.
    if access != "create":
        await insist_there(url)
    if any_scope:
        return open_any_scope(url, scope)
    # A command is over before housekeeping is; interrupted while it connects, a driver complains on stderr.
    return perdure.open(url, scope=scope, read_only=access == "read", housekeeping=False)


async def insist_there(url: str) -> None:
    """Raise unless there is a store at this URL; nothing is made or changed."""
    if url.startswith("memory://") or not await is_new(url):
        return
    if is_server(url):
        raise NotFoundError(f"there is no store at {redacted(url)}", hint="perdure migrate URL makes the tables")
    path = sqlite_path(url)
    raise NotFoundError(
        f"there is no file {redacted(path)!r}",
        hint="check the URL; a store is created when it is first opened for writing",
    )


async def is_new(url: str) -> bool:
    """Whether opening the URL for writing would make a store where there is none."""
    if is_server(url):
        return (await plan_migration(url)).current is None
    return not url.startswith("memory://") and not await asyncio.to_thread(Path(sqlite_path(url)).exists)


async def _heard(work: Coroutine[Any, Any, T]) -> T:
    """Work that hears every Ctrl-C: one that arrives just before the loop falls asleep would not be noticed until
    something else woke it. A loop that has a signal handler of its own is woken by each signal, whichever it is."""
    with suppress(NotImplementedError, RuntimeError, ValueError):  # only in the main thread, only where it exists
        asyncio.get_running_loop().add_signal_handler(signal.SIGURG, int)
    return await work


def guarded(work: Callable[[], Coroutine[Any, Any, int | None]], *, as_json: bool) -> int:
    """Run a command to its end; whatever happens becomes an exit code, and at most one line on stderr."""
    try:
        return asyncio.run(_heard(work())) or 0
    except PerdureError as error:
        report(error.message, error.hint, error.code, as_json=as_json)
        return FINDINGS if isinstance(error, CorruptError) else USER_ERROR
    except perdure.InsecureTransportWarning as warning:  # by PYTHONWARNINGS=error
        report(str(warning), None, "insecure_transport", as_json=as_json)
        return USER_ERROR
    except BrokenPipeError:
        return leave_pipe()
    except OSError as error:
        report(f"{error.filename or 'the system'}: {error.strerror or error}", None, "system", as_json=as_json)
        return USER_ERROR
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - whatever it is, it is our fault
        return report_defect(error, as_json=as_json)


def leave_pipe() -> int:
    """The reader has seen enough (`| head`): Python must not complain about it when it flushes. The exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def report_defect(error: Exception, *, as_json: bool) -> int:
    """Say that an error is our own fault, and with PERDURE_DEBUG where it happened; the exit code."""
    if os.environ.get("PERDURE_DEBUG"):
        trace = "".join(traceback.format_exception(error))
        error_console().print(Text(visible(without_passwords(trace), lines=True)))
        return DEFECT
    hint = "this is a defect of Perdure; PERDURE_DEBUG=1 shows where"
    text = " ".join(str(error).split())  # Some libraries explain themselves over several lines.
    report(f"{type(error).__name__}: {text}", hint, "defect", as_json=as_json)
    return DEFECT


def report(message: str, hint: str | None, code: str, *, as_json: bool = False) -> None:
    """Write an error to stderr: one line, or one JSON document. Passwords are always redacted."""
    message, hint = without_passwords(message), without_passwords(hint) if hint else hint
    if as_json:
        write_json(sys.stderr, {"error": {"code": code, "message": message, "hint": hint}})
        return
    text = Text().append("error: ", "bold red").append(visible(message), "red")
    if hint:
        text.append(f" ({visible(hint)})")
    error_console().print(text)


def without_passwords(text: str) -> str:
    """The text with stars for every secret of the stores that this program was given, and of every URL in it."""
    words = [*sys.argv[1:], os.environ.get(STORE_VARIABLE, "")]
    urls = {word.partition("=")[2] if word.startswith("--") else word for word in words}
    for word in sorted((word for word in urls if "://" in word), key=len, reverse=True):
        text = masked_secrets(text, word)
    return masked_urls(text)
