"""One statement for one transaction.

Every operation is a writable CTE; the final `SELECT` is a `CASE` that reads them one after another and refuses at the
first that did not happen. A `CASE` is evaluated in order and a CTE runs when it is first read, so that is also the
order in which rows are locked: heads of logs first, then tables as declared, each by key. Two statements that need the
same rows therefore queue up and never wait for each other in a circle. (PostgreSQL does not promise the second half of
this; a test verifies it.) An append with a patch becomes, in short,

    WITH w0 AS (INSERT INTO messages__heads … RETURNING last), e0 AS (INSERT INTO messages … FROM w0 AS h, …),
         w1 AS (UPDATE thread_heads … WHERE … RETURNING 1)
    SELECT CASE WHEN NOT EXISTS (SELECT FROM w0) THEN refuse('PD002', 0, …)
                WHEN NOT EXISTS (SELECT FROM w1) THEN refuse('PD001', 1, …) ELSE clock END, (SELECT last FROM w0)

Entries are plain parameters while they are few, and arrays beyond that: a driver takes far longer over an array than
over a value, and a separate statement for every number of entries would be too many.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.engines.postgres.schema.clock import SERVER_CLOCK
from perdure.engines.postgres.write.binders import Binder, cast, sent_as
from perdure.engines.postgres.write.operation_sql import EntrySource, OperationSql
from perdure.engines.postgres.write.transaction import Transaction
from perdure.kernel.shapes import LogShape, Values, entry_columns

FEW_ENTRIES = 4
"""Up to this many entries of an append are plain parameters."""
AS_ARRAYS = 0
"""Stands for any larger number of entries."""
_FEW_APPENDS = 2
"""With more appends than this, statements do not depend on their numbers of entries: there would be too many."""


def solo_statement(sql: OperationSql, transaction: Transaction, clock: int | None) -> tuple[str, Values]:
    """The statement of a transaction, and its arguments. Without `clock` the time is the server's."""
    form = transaction.form
    arguments: Values = [transaction.scope, transaction.rev]
    counts: list[int] = []
    if clock is not None:
        arguments.append(clock)
    for member in transaction.members:
        arguments += member.values
        if isinstance(member.shape, LogShape):
            columns = entry_columns(member.op.entries, member.shape.kinds)
            count = len(member.op.entries)
            if count > FEW_ENTRIES or len(form.appends) > _FEW_APPENDS:
                arguments += columns
                count = AS_ARRAYS
            else:
                for entry in zip(*columns, strict=True):
                    arguments += entry
            counts.append(count)
    cache_key = (clock is None, *counts)
    statement = form.statements.get(cache_key)
    if statement is None:
        statement = form.statements[cache_key] = build_solo(sql, transaction, counts, bound_clock=clock is not None)
    return statement, arguments


def build_solo(sql: OperationSql, transaction: Transaction, counts: Sequence[int], *, bound_clock: bool) -> str:
    """The statement of transactions like this one; `counts` are the numbers of entries of its appends."""
    form = transaction.form
    clock, used = ("$3::bigint", 3) if bound_clock else (SERVER_CLOCK, 2)
    lasts = {log: f'(SELECT "last" FROM w{position})' for log, position in form.lasts.items()}
    binder = Binder("$1::text", "$2::bigint", clock, "${number}::{sent}{cast}", lasts, used)
    ctes, cases = [], []
    entry_counts = iter(counts)
    for position, member in enumerate(transaction.members):
        shape = member.shape
        write, key = sql.write(shape, binder)
        ctes.append(f"w{position} AS ({write})")
        if isinstance(shape, LogShape):
            partition, total = key
            key = [partition]
            rows, values = _entry_rows(sql.entry_types(shape), binder, next(entry_counts))
            source = EntrySource(partition, f'h."last" - {total} + e.o', values, f"w{position} AS h, {rows}")
            ctes.append(f"e{position} AS ({sql.entries(shape, binder, source)})")
        texts = ", ".join(f"({value})::text" for value in key)
        refusal = sql.refusal(shape, position, f"$1::text, ARRAY[{texts}]", _literal(sql.observe(shape)))
        cases.append(f"WHEN NOT EXISTS (SELECT FROM w{position}) THEN {refusal}")
    seqs = "".join(f', (SELECT "last" FROM w{position})' for position in form.appends)
    final = f"SELECT CASE {' '.join(cases)} ELSE {clock} END{seqs}"
    # A CTE that nothing reads does not run; it only gives a type to a parameter that no operation uses.
    text = " ".join([*ctes, final])
    unused = [parameter for parameter in (binder.scope, binder.rev, *binder.bound) if parameter not in text]
    if unused:
        ctes.append(f"unused AS (SELECT {', '.join(unused)})")
    return f"WITH {', '.join(ctes)} {final}"


def _entry_rows(types: Sequence[str], binder: Binder, count: int) -> tuple[str, list[str]]:
    """Entries as rows of VALUES, or unnested from arrays when they are many; and the expressions of their columns."""
    columns = ", ".join([f"c{n}" for n in range(len(types))] + ["o"])
    if count == AS_ARRAYS:
        arrays = ", ".join([binder.bind(f"{sent_as(sql_type)}[]") for sql_type in types])
        source = f"unnest({arrays}) WITH ORDINALITY AS e({columns})"
    else:
        rows = [[*[binder.bind(sent_as(sql_type)) for sql_type in types], f"{n}"] for n in range(1, count + 1)]
        source = f"(VALUES ({'), ('.join(map(', '.join, rows))})) AS e({columns})"
    return source, [f"e.c{n}{cast(sql_type)}" for n, sql_type in enumerate(types)]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
