"""Transactions of known kinds: which script, and where in the list of values each of its arguments is.

What the list of operations decides each time follows here from the kind, and from which values are NULL: a `Form`. The
first transaction of a form is prepared as operations; the form is used only if it makes the same arguments from the
values. The arguments of rows are picked from one list: the values, then the encoded keys, then the sizes of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from perdure.engines.redis.write.kind_positions import Key, RowPositions
from perdure.engines.redis.write.log_lua import AppendCode, LogCodes
from perdure.engines.redis.write.row_lua import RowCode
from perdure.engines.redis.write.transaction_scripts import MOST_SINGLE, Program
from perdure.engines.redis.write.value_lua import NULL
from perdure.engines.redis.write.writer import Groups, Writer
from perdure.kernel.kinds import Filled, Kind
from perdure.kernel.schema import Schema
from perdure.kernel.shapes import LogShape, RowShape

_MOST_KINDS = 1_000
_MOST_FORMS = 64
Pick = Callable[[Sequence[Any]], tuple[Any, ...]]
Signature = tuple[Any, ...]


class AppendForm(NamedTuple):
    """The append of a form; `partition` and `expect` are positions in the list of values. `length` is what it expects
    otherwise: 0 for an empty partition, None for any."""

    log: str
    codes: LogCodes
    code: AppendCode
    partition: int
    expect: int | None
    length: int | None


class Form(NamedTuple):
    """A kind whose NULLs are known. The arguments are those picked by `before`, those of the append, those picked by
    `after`. `groups` have no arguments: they say which operation a refusal is about."""

    program: Program
    groups: Groups
    keys: list[Key]
    sizes: list[int]
    before: Pick
    append: AppendForm | None
    after: Pick

    def arguments(self, filled: Filled) -> list[bytes] | None:
        """The arguments of a transaction; None if its entries are of several segments."""
        values, entries = filled.values, filled.entries
        items = [*values, *[key(values) for key in self.keys], *self.sizes]
        arguments = _arguments(self.before(items))
        append = self.append
        if append is not None:
            if append.codes.has_several_segments(entries):
                return None
            expect = append.length if append.expect is None else values[append.expect]
            arguments.append(b"1")
            arguments += append.codes.arguments(append.code, values[append.partition], expect, entries)
        return arguments + _arguments(self.after(items)) if self.sizes else arguments

    def seqs(self, filled: Filled, lasts: tuple[int, ...]) -> dict[tuple[str, str], int]:
        """The last seq of the partition that it appended to, if it did."""
        return {} if self.append is None else {(self.append.log, filled.values[self.append.partition]): lasts[0]}


def _arguments(items: Iterable[Any]) -> list[bytes]:
    return [
        item.encode() if type(item) is str else NULL if item is None else b"%d" % item  # one pass, no calls of ours
        for item in items
    ]


class Forms:
    """The forms of all kinds that this engine has met."""

    def __init__(self, writer: Writer, schema: Schema) -> None:
        self._writer = writer
        self._schema = schema
        self._kinds: dict[Kind, _KindForms] = {}

    def call(self, filled: Filled) -> tuple[Form, list[bytes]] | None:
        """The form and the arguments of a transaction; None if it must be sent as operations."""
        forms = self._kinds.get(filled.kind) or self._begin(filled.kind)
        values = filled.values
        # What shapes a script besides the kind: which values are NULL, and which seqs are the last.
        signature = (*map(type, values), *[values[number] == 0 for number in forms.seqs])
        form = forms.known[signature] if signature in forms.known else forms.learn(self._writer, signature, filled)
        try:
            arguments = None if form is None else form.arguments(filled)
        except UnicodeEncodeError:
            return None  # the operations say which text it is
        return None if form is None or arguments is None else (form, arguments)

    def _begin(self, kind: Kind) -> _KindForms:
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        forms = self._kinds[kind] = _KindForms(kind, self._schema)
        return forms


class _KindForms:
    """The forms of one kind, by the types of its values; `seqs` are positions of values that count back from a seq."""

    def __init__(self, kind: Kind, schema: Schema) -> None:
        self._kind = kind
        self._rows = {
            number: RowPositions(kind, number, shape, schema.table[shape.owner])
            for number, shape in enumerate(kind.shapes)
            if isinstance(shape, RowShape)
        }
        self.seqs = [number for row in self._rows.values() for number in row.seqs]
        self.known: dict[Signature, Form | None] = {}

    def learn(self, writer: Writer, signature: Signature, filled: Filled) -> Form | None:
        """The form of a transaction that is the first of its signature."""
        if len(self.known) >= _MOST_FORMS:
            self.known.clear()
        prepared = writer.prepare(filled.operations())
        if any(isinstance(code, AppendCode) and code.several for code in prepared.groups):
            return None  # a later one may be of one segment
        form = self._form(writer, filled.values, prepared.program, prepared.groups)
        # What is not the same both ways goes the slower way: nothing wrong is ever written.
        if form is not None and form.arguments(filled) != prepared.arguments:
            form = None
        self.known[signature] = form
        return form

    def _form(self, writer: Writer, values: Sequence[Any], program: Program, groups: Groups) -> Form | None:
        alone = len(groups) <= MOST_SINGLE
        keys, sizes = {number: len(values) + at for at, number in enumerate(self._rows)}, list[int]()
        before: list[int] = []
        after: list[int] = []
        append: AppendForm | None = None
        for code, (positions, _) in groups.items():
            if isinstance(code, RowCode):
                numbers = [
                    at
                    for number in positions
                    for at in (keys[number], *self._rows[number].arguments(values, by_key=code.by_key))
                ]
                if alone and len(positions) == 1:
                    before += numbers
                else:
                    after += [len(values) + len(keys) + len(sizes), *numbers]
                    sizes.append(len(positions))
            elif append is None and isinstance(code, AppendCode) and len(positions) == 1 and code.is_uniform:
                append = self._append(writer, code, positions[0])
            else:
                return None
        names: Groups = {code: (positions, []) for code, (positions, _) in groups.items()}
        encoders = [row.encode for row in self._rows.values()]
        return Form(program, names, encoders, sizes, _picker(before), append, _picker(after))

    def _append(self, writer: Writer, code: AppendCode, number: int) -> AppendForm:
        shape, first = self._kind.shapes[number], self._kind.starts[number]
        expect = shape.expect if isinstance(shape, LogShape) else None
        length = 0 if expect is False else None
        return AppendForm(shape.owner, writer.logs[shape.owner], code, first, first + 2 if expect else None, length)


def _picker(numbers: list[int]) -> Pick:
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda items: tuple([items[number] for number in numbers])
