"""Binders write values into SQL; they are all that the three forms of a statement differ in.

A transaction runs solo with plain parameters, in a batch as rows of array parameters, or as steps of `run_steps` with
the elements of one array of text. Values never enter the text of a statement. The second key column of a row, for
example, is `$4::bigint`, `v.c2` or `($4)[7]::bigint`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

SENT_AS = {"json": "text"}
"""Types that are sent as another: the driver would have to ask the server what an array of JSON is, and a connection of
a caller's pool may encode JSON differently."""


def sent_as(sql_type: str) -> str:
    """The type of the parameter that carries a value of `sql_type`."""
    return SENT_AS.get(sql_type, sql_type)


def cast(sql_type: str) -> str:
    """The cast from the type sent to `sql_type`; empty when they are the same."""
    return f"::{sql_type}" if sql_type in SENT_AS else ""


class Binder(msgspec.Struct):
    """Writes the values of operations into SQL, one after the other.

    `scope`, `rev` and `clock` are SQL, and so is `value`: a template with the `number` of a value (the first is the one
    after `used`), its `type`, the type it is `sent` as and the `cast` between them. `lasts` holds, by log, the last seq
    that the transaction appends. `source` is the FROM item that holds the values when they are rows; empty when they
    are parameters.
    """

    scope: str
    rev: str
    clock: str
    value: str = ""
    lasts: Mapping[str, str] = {}
    used: int = 0
    source: str = ""
    types: list[str] = []
    """The types that the bound values are sent as."""
    bound: list[str] = []

    def bind(self, sql_type: str) -> str:
        """The next value, as an SQL expression."""
        self.types.append(sent_as(sql_type))
        number = self.used + len(self.types)
        value = self.value.format(number=number, type=sql_type, sent=self.types[-1], cast=cast(sql_type))
        self.bound.append(value)
        return value
