"""Faithful records as JSON text, read and written in C even if they hold something that this build does not know.

A record that holds only what this build knows is msgspec's business alone. In a record that holds more, Python looks at
the levels that can have unknown parts, never at the values in them: texts, arguments and documents are not visited.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from operator import is_
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import convert
from msgspec.structs import force_setattr, replace

from perdure import limits
from perdure.model.careful import from_json
from perdure.model.faithful import (
    NO_EXTRA,
    Extra,
    Faithful,
    Opaque,
    Untyped,
    as_dict,
    carries_unknown,
    fields_by_name,
    holds_records,
    nested_fields,
)

F = TypeVar("F", bound=Faithful)

LONG = 65_536
"""More bytes of JSON than an ordinary record has."""


class Reader(Generic[F]):
    """Reads one record type from JSON text.

    `decode` reads a record without unknown parts; it raises `ValidationError` for others, which `read_more` reads.
    """

    def __init__(self, cls: type[F]) -> None:
        self._cls = cls
        self._build = _record_builder(cls)
        self.decode: Callable[[bytes | str], F] = msgspec.json.Decoder(cls, dec_hook=_never).decode

    def read(self, data: bytes | str) -> F:
        """The record in this JSON text; raises msgspec errors when it is not one."""
        try:
            return self.decode(data)
        except msgspec.ValidationError:
            return self.read_more(data)

    def read_more(self, data: bytes | str) -> F:
        """The same for a record that holds unknown parts.

        What msgspec refuses even without them is left to `from_json`, which names the position, and which knows the
        fields that older builds took for unknown ones. A long text goes there at once: if thousands of unknown blocks
        were built before the one that is wrong, its refusal would cost twice as much.
        """
        if len(data) > LONG:
            return from_json(self._cls, _decode(data), "$")
        try:
            value = self._build(_decode(data), 1)
            record: F = value if type(value) is self._cls else convert(value, self._cls)
        except msgspec.ValidationError:
            return from_json(self._cls, _decode(data), "$")
        return record


_decode = msgspec.json.Decoder().decode


def _never(kind: type, value: Any) -> Any:
    raise msgspec.ValidationError(f"{kind.__name__} is never read from JSON")


# A builder makes records of the parts of a JSON value that hold something unknown, given how deep it is; it returns the
# value, or the record made of it. msgspec then converts the rest: what is a record already stays as it is.
Builder = Callable[[Any, int], Any]


class _Odd(msgspec.ValidationError):
    """A value that `from_json` has to judge."""


@cache
def _builder(hint: Any) -> Builder:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not types.NoneType]
        if Opaque in members:
            return _tagged_builder(tuple(members))
        return _builder(members[0]) if len(members) == 1 else _as_it_is
    if origin is list:
        return _list_builder(get_args(hint)[0])
    return _record_builder(hint) if isinstance(hint, type) and issubclass(hint, Faithful) else _as_it_is


def _as_it_is(value: Any, depth: int) -> Any:
    return value


@cache
def _record_builder(cls: type[Faithful]) -> Builder:
    known = _known(cls)
    hints = [(name, hint) for name, (_, hint) in fields_by_name(cls).items() if holds_records(hint)]
    nested: list[tuple[str, Builder]] = []

    def build(value: Any, depth: int) -> Any:
        if type(value) is not dict or (hints and depth > limits.JSON_DEPTH):
            raise _Odd
        if hints and not nested:  # filled late: a block may hold blocks
            nested.extend([(name, _builder(hint)) for name, hint in hints])
        for name, build_item in nested:
            item = value.get(name)
            if item is not None:
                value[name] = build_item(item, depth + 1)
        return value if value.keys() <= known else _with_extra(cls, known, value, depth)

    return build


def _known(cls: type[Faithful]) -> frozenset[str]:
    tag_field = cls.__struct_config__.tag_field
    return frozenset(fields_by_name(cls)) | ({tag_field} if tag_field else set())


def _with_extra(cls: type[Faithful], known: frozenset[str], value: dict[str, Any], depth: int) -> Faithful:
    """The record of a value whose parts are built, with its own unknown fields."""
    if depth > limits.JSON_DEPTH:
        raise _Odd
    unknown: Any = value.keys() - known
    if len(unknown) > 1:
        unknown = [name for name in value if name in unknown]  # in their order
    fields = {name: value.pop(name) for name in unknown}
    record = convert(value, cls)
    force_setattr(record, "extra", Extra.holding(fields))
    return record


@cache
def _tagged_builder(members: tuple[Any, ...]) -> Builder:
    """Builds by the `type` of an object: one of the records, else something opaque."""
    records = {str(member.__struct_config__.tag): member for member in members if issubclass(member, Faithful)}
    builders: dict[str, Builder] = {}

    def build(value: Any, depth: int) -> Any:
        tag = value.get("type") if type(value) is dict else None
        if type(tag) is not str:
            raise _Odd
        if not builders:  # filled late: a block may hold blocks
            builders.update({tag: _record_builder(record) for tag, record in records.items()})
        return builders[tag](value, depth) if tag in builders else Opaque(Untyped(value))

    return build


@cache
def _list_builder(inner: Any) -> Builder:
    members = [member for member in get_args(inner) if isinstance(member, type) and issubclass(member, Faithful)]
    leaves = {member.__struct_config__.tag: (member, _known(member)) for member in members if not nested_fields(member)}
    late: list[Builder] = []

    def build(value: Any, depth: int) -> Any:
        if type(value) is not list:
            raise _Odd
        if not late:
            late.append(_builder(inner))
        for at, item in enumerate(value):
            tag = item.get("type") if type(item) is dict else None
            if type(tag) is str and tag in leaves:  # most blocks: no call for those that hold nothing unknown
                cls, known = leaves[tag]
                if not item.keys() <= known:
                    value[at] = _with_extra(cls, known, item, depth)
            else:
                value[at] = late[0](item, depth)
        return value

    return build


def write(record: Faithful) -> bytes:
    """JSON text of a record, unknown parts included."""
    for name in nested_fields(type(record)):
        item = getattr(record, name)
        if item is not None and (other := encodable(item)) is not item:
            record = replace(record, **{name: other})
    return encode(record)


def encode(record: Faithful) -> bytes:
    """JSON text of a record whose own fields may be unknown; the records in it hold only what is known."""
    extra = getattr(record, "extra", NO_EXTRA)
    if extra is NO_EXTRA:
        return _encode(record)
    if type(extra) is not Extra:
        extra = Extra.holding(as_dict(extra) or {})
        record = replace(record, extra=extra)
    if not extra._fields:
        return _encode(replace(record, extra=NO_EXTRA))
    known = _encode(record)[:_TAIL]
    return b"".join((known, b"," if len(known) > 1 else b"{", _encode(extra._fields)[1:]))


def _no_fields(extra: Any) -> None:
    """The encoder writes null for the unknown fields. `extra` is the last field, so it is easily cut off."""
    if type(extra) is not Extra:
        raise TypeError(f"Encoding objects of type {type(extra).__name__} is unsupported")


_encode = msgspec.json.Encoder(enc_hook=_no_fields).encode
_TAIL = -len(b',"extra":null}')


def encodable(value: Any) -> Any:
    """The same for msgspec: something opaque as its data, a record with unknown fields as JSON text."""
    if type(value) is list:
        items = [encodable(item) for item in value]
        return value if all(map(is_, items, value)) else items
    if isinstance(value, Opaque):
        return value.data
    return msgspec.Raw(write(value)) if carries_unknown(value) else value
