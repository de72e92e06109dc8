"""What every stored column may hold: whether it is always present, its type and its range.

The schema declares names, types and orders, and its digest is stored with the data; this list is separate,
so that a stricter rule needs no migration. `doctor verify` and `import` both read it. Unknown roles, visibilities and
delivery modes are carried (a newer build may know them); an unknown run status is damage, because the run machine could
not move such a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.model.run import STATUSES
from perdure.rules.checks import check_choice, check_count, check_id, check_title, check_word, lineage

Check = Callable[[Any, str], object]


class ColumnRule(msgspec.Struct, frozen=True):
    """How one column is checked, and whether every row has it."""

    check: Check
    always: bool


Columns = dict[str, ColumnRule]

_DIGEST_LETTERS = frozenset("0123456789abcdef")
_DIGEST_LENGTH = 32


def _check_status(value: Any, what: str) -> object:
    return check_choice(value, what, *STATUSES)


def _check_title(value: Any, what: str) -> object:
    return check_title(value)


def _check_lineage(value: Any, what: str) -> object:
    if lineage(value, what) != value:
        raise InvalidError(f"{what} must not begin or end with a space: {short_repr(value)}")
    return value


def _check_within(value: Any, what: str, *, most: int) -> object:
    if check_count(value, what) > most:
        raise InvalidError(f"{what} must be at most {most:,}, not {value:,}")
    return value


def _check_time(value: Any, what: str) -> object:
    return check_count(value, what)


def _check_owner(value: Any, what: str) -> object:
    return value if value == "" else check_id(value, what)


def _check_branch_name(value: Any, what: str) -> object:
    if check_id(value, what, most=limits.NAME_BYTES).isdigit():
        raise InvalidError(f"{what} must not be a number: {value!r:.80}")
    return value


def _check_digest(value: Any, what: str) -> object:
    if type(value) is not str or len(value) != _DIGEST_LENGTH or not _DIGEST_LETTERS.issuperset(value):
        raise InvalidError(f"{what} must be {_DIGEST_LENGTH} hexadecimal digits, not {value!r:.80}")
    return value


_IDENTIFIER: Check = check_id
_NAME: Check = partial(check_id, most=limits.NAME_BYTES)
_COUNT: Check = check_count
_POSITIVE: Check = partial(check_count, least=1)
_BRANCH: Check = partial(_check_within, most=limits.BRANCHES_PER_THREAD - 1)
_TIME: Check = _check_time
_TIME_TO_COME: Check = check_count


def _always(check: Check, *names: str) -> Columns:
    return {name: ColumnRule(check, always=True) for name in names}


def _maybe(check: Check, *names: str) -> Columns:
    return {name: ColumnRule(check, always=False) for name in names}


COLUMNS: dict[str, Columns] = {
    "threads": {
        **_always(_IDENTIFIER, "thread"),
        **_maybe(_check_lineage, "parent", "resource"),
        **_maybe(_check_title, "title"),
        **_always(_TIME, "created_at"),
        **_maybe(_TIME, "deleted_at", "erased_at"),
    },
    "thread_heads": {
        **_always(_IDENTIFIER, "thread"),
        **_always(_COUNT, "version", "children", "born"),
        **_always(_BRANCH, "branch"),
        **_always(_POSITIVE, "branches"),
        **_maybe(_COUNT, "fence"),
        **_always(_TIME, "created_at", "updated_at"),
        **_maybe(_IDENTIFIER, "active_run", "open_run", "latest_run"),
        **_maybe(_check_lineage, "parent", "resource"),
        **_maybe(partial(_check_within, most=1), "child"),
    },
    "branches": {
        **_always(_IDENTIFIER, "thread"),
        **_always(_BRANCH, "branch"),
        **_always(_COUNT, "fork_seq", "head_seq", "length"),
        **_maybe(_BRANCH, "parent"),
        **_always(_TIME, "created_at"),
        **_maybe(_TIME, "deleted_at"),
        **_maybe(_IDENTIFIER, "fork", "head"),
        **_maybe(_check_branch_name, "name"),
    },
    "labels": {
        **_always(_IDENTIFIER, "thread", "message"),
        **_always(_POSITIVE, "seq"),
        **_always(_TIME, "at"),
        **_always(_NAME, "label"),
    },
    "runs": {
        **_always(_IDENTIFIER, "run", "thread", "agent_id"),
        **_always(_check_status, "status"),
        **_maybe(_IDENTIFIER, "parent_run_id"),
        **_always(_BRANCH, "branch"),
        **_always(_COUNT, "steps", "input_tokens", "output_tokens", "output_count"),
        **_always(_TIME, "created_at", "updated_at"),
        **_maybe(_TIME, "started_at", "finished_at"),
        **_maybe(_POSITIVE, "input_first", "input_last", "output_first", "output_last"),
    },
    "state": {
        **_always(_IDENTIFIER, "thread"),
        **_always(_check_owner, "run"),
        **_always(_NAME, "name"),
        **_always(_POSITIVE, "schema"),
        **_always(_TIME, "at"),
    },
    "keys": {
        **_always(_IDENTIFIER, "thread", "key"),
        **_maybe(_POSITIVE, "version"),
        **_always(partial(_check_within, most=limits.COMMIT_MESSAGES), "count"),
        **_always(_TIME, "at"),
        **_always(_check_digest, "digest"),
        **_maybe(_IDENTIFIER, "run"),
    },
    "pending": {
        **_always(_IDENTIFIER, "thread", "id"),
        **_always(_POSITIVE, "position", "revision"),
        **_always(_TIME, "created_at", "updated_at"),
    },
    "queues": {
        **_always(_IDENTIFIER, "thread"),
        **_always(partial(_check_within, most=limits.PENDING_PER_THREAD), "count"),
        **_always(_COUNT, "revision"),
        **_maybe(_IDENTIFIER, "waiting"),
    },
    "profiles": {
        **_always(_IDENTIFIER, "owner"),
        **_always(_NAME, "key"),
        **_always(_POSITIVE, "schema"),
        **_always(_TIME, "created_at", "updated_at"),
        **_maybe(_TIME_TO_COME, "expires_at"),
    },
    "messages": {
        **_always(_IDENTIFIER, "thread", "id"),
        **_always(_POSITIVE, "seq"),
        **_always(check_word, "role", "visibility"),
        **_always(_BRANCH, "branch"),
        **_maybe(_IDENTIFIER, "run"),
        **_maybe(_COUNT, "step"),
        **_always(_TIME, "at"),
    },
}
"""By table or log, for every declared column, keys and seqs included."""

HAVE_BODIES = frozenset(("threads", "runs", "state", "keys", "pending", "profiles", "messages"))
"""The tables and logs whose every row has a body; rows of the others have none."""


TIMES = {table: tuple(n for n, rule in rules.items() if rule.check is _TIME) for table, rules in COLUMNS.items()}
"""The columns that hold a time, by table or log."""

_GROWING = {"thread_heads": ("fence",), "queues": ("revision",), "pending": ("revision",)}
"""Numbers that only ever rise: one at the end of its range leaves no room for the next."""

_LATE_HINT = "check the clock of the machine that wrote the file, and of this store"


def check_plausible(table: str, values: Mapping[str, Any], latest: int) -> None:
    """Refuse what is valid but would block later writes: a time in the future, a number that cannot be exceeded.

    Only an import asks this, of columns that are sound. `latest` is a little later than the store's own time. An audit
    cannot ask it: a store whose clock was set back holds times to come, and nothing is wrong with its data.
    """
    for name in TIMES.get(table, ()):
        if (values.get(name) or 0) > latest:
            raise InvalidError(f"{table}.{name} is {values[name]}, a time to come", hint=_LATE_HINT)
    for name in _GROWING.get(table, ()):
        if (values.get(name) or 0) > limits.IMPORT_NUMBER_MAX:
            raise InvalidError(
                f"{table}.{name} is {values[name]}, the limit of an import is {limits.IMPORT_NUMBER_MAX}",
                hint="nothing could rise above it: put the number there that your workers have reached",
            )


MOST_BODY = {
    "threads": limits.CUSTOM_BYTES + 1_024,
    "runs": limits.RUN_BYTES + limits.RUN_END_BYTES,
    "state": limits.STATE_BYTES,
    "profiles": limits.PROFILE_BYTES,
    "messages": limits.MESSAGE_BYTES,
    "pending": limits.COMMIT_BYTES,
}
"""How many bytes a body may have. Those of `threads` and `pending` wrap something with its own limit. A run has the end
of its limit only once it is done."""


def body_size(body: bytes | str | None) -> int:
    """How many bytes a body has."""
    return len(body.encode() if isinstance(body, str) else body or b"")


def size_problem(table: str, body: bytes | str | None) -> str | None:
    """Is a body longer than a store writes?"""
    most = MOST_BODY.get(table)
    size = body_size(body)
    return None if most is None or size <= most else f"a body of {size:,} bytes, the limit of {table} is {most:,}"


def column_problems(table: str, values: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """What is wrong with the columns of one row, a sentence each. A column that is not given is not checked."""
    rules = COLUMNS.get(table, {})
    for name, value in values:
        rule = rules.get(name)
        if rule is None:
            continue
        if value is None:
            if rule.always:
                yield f"{table}.{name} is missing"
            continue
        try:
            rule.check(value, f"{table}.{name}")
        except InvalidError as error:
            yield error.message


def presence_problem(table: str, body: object) -> str | None:
    """Is a body there although it should not be, or the other way round?"""
    if table not in COLUMNS or (body is not None) == (table in HAVE_BODIES):
        return None
    return f"{table}.body is missing" if body is None else f"rows of {table} have no body, this one has"
