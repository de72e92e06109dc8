"""Faithful records: unknown fields survive, at their level, whatever build reads or writes them.

A stored record decodes straight into typed structs when it holds only what this build knows. When it holds more (a
newer build's field, a provider's own block type), a slower path keeps the rest: unknown fields go to `extra`, unknown
tagged types become the union's opaque member, and both are written back where they were. No key of user data is
reserved: a field that is itself called "extra" is an unknown field like any other.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.model.plain import Refusal


class Extra(Mapping[str, Any]):
    """An immutable mapping of fields that this build does not know. `Extra(cache_control={...})` makes one."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        self._fields: dict[str, Any] = {**(fields or {}), **more}

    @classmethod
    def holding(cls, fields: dict[str, Any]) -> Extra:
        """Fields that no other object holds: they are kept without a copy."""
        made = cls.__new__(cls)
        made._fields = fields
        return made

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._fields == dict(other)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._fields)))

    def __repr__(self) -> str:
        return f"Extra({self._fields!r})"


NO_EXTRA = Extra()


class Faithful(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, repr_omit_defaults=True):
    """Base of records that carry what they do not know in `extra` (each declares that field last).

    `ADDED` names the fields that older builds took for unknown ones. They may have stored anything under these names:
    a value that does not fit stays in `extra`, as it was.
    """

    ADDED: ClassVar[frozenset[str]] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, unknown fields at their level; what has its default is left out."""
        return _struct_to_json(self)


class Untyped(dict[str, Any]):
    """A JSON object of unknown type. Being no type that msgspec reads, it always takes the careful way."""

    __slots__ = ()


class Opaque(msgspec.Struct, frozen=True, tag="(opaque)", tag_field="type", gc=False):
    """Something of an unknown `type`, kept exactly as it came."""

    data: Untyped
    """The object as it came, its `type` included."""

    @property
    def kind(self) -> Any:
        """The unknown type's name."""
        return self.data.get("type")

    def to_json(self) -> dict[str, Any]:
        """The data as it came."""
        return dict(self.data)


F = TypeVar("F", bound=Faithful)


class Reader(Generic[F]):
    """Reads one record type from JSON text: the fast way first, the careful way when there is more to carry.

    `decode` is the fast way alone; it raises `ValidationError` where the careful way is needed.
    """

    def __init__(self, cls: type[F]) -> None:
        self._cls = cls
        self.decode: Callable[[bytes | str], F] = msgspec.json.Decoder(cls, dec_hook=_never).decode

    def read(self, data: bytes | str) -> F:
        """The record in this JSON text; raises msgspec errors when it is not one."""
        try:
            return self.decode(data)
        except msgspec.ValidationError:
            return from_json(self._cls, msgspec.json.decode(data), "$")


def _never(kind: type, value: Any) -> Any:
    raise msgspec.ValidationError(f"{kind.__name__} is never read from JSON")


def from_json(cls: type[F], value: Any, path: str) -> F:
    """Build a record from decoded JSON, keeping unknown fields; a wrong shape names its path."""
    try:
        record: F = _record_parser(cls)(value, 1)
    except Refusal as refusal:
        raise refusal.at(path) from None
    return record


# A parser builds what one type hint asks for; it is made once for each hint, and gets its depth.
Parser = Callable[[Any, int], Any]


@cache
def _parser(hint: Any) -> Parser:
    if hint is Any:
        return _as_it_is
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union_parser(get_args(hint))
    if origin is list:
        return _list_parser(hint)
    if isinstance(hint, type) and issubclass(hint, Faithful):
        return _record_parser(hint)
    return _plain_parser(hint)


def _as_it_is(value: Any, depth: int) -> Any:
    return value


def _plain_parser(hint: Any) -> Parser:
    exact = hint if isinstance(hint, type) else None

    def parse(value: Any, depth: int) -> Any:
        if type(value) is exact:
            return value
        try:
            return msgspec.convert(value, hint, strict=True)
        except msgspec.ValidationError as error:
            raise Refusal(str(error)) from None

    return parse


def _list_parser(hint: Any) -> Parser:
    (inner,) = get_args(hint)

    def parse(value: Any, depth: int) -> Any:
        if not isinstance(value, list):
            raise Refusal(f"expected a list, not {short_repr(value)}")
        parse_item = _parser(inner)  # asked for late: a block may hold a list of blocks
        items: list[Any] = []
        try:
            for item in value:
                items.append(parse_item(item, depth))  # noqa: PERF401 - how many there are says where it went wrong
        except Refusal as refusal:
            refusal.steps.append(len(items))
            raise
        return items

    return parse


@cache
def _record_parser(cls: type[Faithful]) -> Parser:
    # Most fields are text: those that hold just what their hint says need no call.
    fields = {name: (attribute, hint, _parser(hint)) for name, (attribute, hint) in _fields(cls).items()}
    tag_field = cls.__struct_config__.tag_field
    added = cls.ADDED
    # What holds no records and brings nothing unknown is msgspec's business, several times faster.
    ordinary = frozenset((*fields, tag_field)) if not _nested(cls) else frozenset()

    def parse(value: Any, depth: int) -> Any:
        if not isinstance(value, dict):
            raise Refusal(f"expected an object, not {short_repr(value)}")
        if ordinary and value.keys() <= ordinary:
            try:
                return msgspec.convert(value, cls, strict=True)
            except msgspec.ValidationError:
                pass  # the code below finds the position
        if depth > limits.JSON_DEPTH:
            raise Refusal(f"nested deeper than {limits.JSON_DEPTH} levels")
        unfit = _unfit(cls, value) if added else added
        known: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        name = ""
        try:
            for name, item in value.items():
                field = None if name in unfit else fields.get(name)
                if field is None:
                    if name != tag_field:
                        extra[name] = item
                else:
                    attribute, exact, parse_item = field
                    known[attribute] = item if type(item) is exact else parse_item(item, depth + 1)
        except Refusal as refusal:
            refusal.steps.append(name)
            raise
        if extra:
            known["extra"] = Extra.holding(extra)
        try:
            return cls(**known)
        except TypeError as error:
            raise Refusal(f"{cls.__name__}: {error}") from None

    return parse


def _unfit(cls: type[Faithful], value: dict[str, Any]) -> frozenset[str]:
    return frozenset(name for name in cls.ADDED.intersection(value) if not fits(cls, name, value[name]))


def fits(cls: type[Faithful], name: str, value: Any) -> bool:
    """Can this be the value of a field that an older build did not know?"""
    try:
        _parser(_fields(cls)[name][1])(value, 1)
    except Refusal:
        return False
    return True


@cache
def _fields(cls: type[Faithful]) -> dict[str, tuple[str, Any]]:
    hints = get_type_hints(cls, include_extras=True)
    return {f.encode_name: (f.name, hints[f.name]) for f in msgspec.structs.fields(cls) if f.name != "extra"}


def _union_parser(members: tuple[Any, ...]) -> Parser:
    others = [m for m in members if m is not types.NoneType]
    if Opaque in members:
        return _tagged_parser(others)
    parse_other = _parser(others[0]) if len(others) == 1 else _plain_parser(Union[tuple(others)])  # noqa: UP007 - built at run time
    optional = types.NoneType in members

    def parse(value: Any, depth: int) -> Any:
        return None if value is None and optional else parse_other(value, depth)

    return parse


def _tagged_parser(members: list[Any]) -> Parser:
    """Reads an object by its `type`: one of the records, else opaque."""
    records = [m for m in members if isinstance(m, type) and issubclass(m, Faithful)]
    parse_other = _plain_parser(Union[tuple(members)])  # noqa: UP007 - built at run time
    by_tag: dict[Any, Parser] = {}

    def parse(value: Any, depth: int) -> Any:
        if not isinstance(value, dict):
            return parse_other(value, depth)
        if not by_tag:  # filled late: a block may hold blocks
            by_tag.update({record.__struct_config__.tag: _record_parser(record) for record in records})
        tag = value.get("type")
        if type(tag) is not str:
            raise Refusal("a tagged object needs a text field `type`")
        parse_record = by_tag.get(tag)
        return Opaque(Untyped(value)) if parse_record is None else parse_record(value, depth)

    return parse


def fields_of(extra: Any, path: str) -> dict[str, Any]:
    """The unknown fields that a caller gave, as a plain dict."""
    fields = as_dict(extra)
    if fields is None:
        raise InvalidError(f"extra is a mapping of unknown fields, not {short_repr(extra)}", path=path)
    return fields


def as_dict(value: Any) -> dict[Any, Any] | None:
    """What a caller gave as a mapping, as a plain dict; None if it is none, or cannot be read."""
    if type(value) is Extra:
        return value._fields
    try:
        return dict(value) if isinstance(value, Mapping) else None
    except Exception:  # noqa: BLE001 - a caller's own mapping may raise anything
        return None


def to_json(value: Any) -> Any:
    """Plain JSON data of a record or a list of them, `extra` merged back at its level."""
    if isinstance(value, Opaque):
        return dict(value.data)
    if isinstance(value, Faithful):
        return _struct_to_json(value)
    if type(value) is list:
        return [to_json(item) for item in value]
    return value


def _struct_to_json(record: Faithful) -> dict[str, Any]:
    tag, fields = _layout(type(record))
    out: dict[str, Any] = dict(tag)
    for name, written, default, required in fields:
        value = getattr(record, name)
        if value is default:
            continue
        kind = type(value)
        if kind is list:
            if value or required or default is None:  # None: a list that may be absent, or any JSON
                out[written] = [to_json(item) for item in value]
        elif kind is not type(default) or value != default:
            out[written] = value if kind is str else to_json(value)
    extra = getattr(record, "extra", NO_EXTRA)
    if extra is not NO_EXTRA:
        out.update(as_dict(extra) or {})
    return out


@cache
def _layout(cls: type[Faithful]) -> tuple[dict[str, Any], tuple[tuple[str, str, Any, bool], ...]]:
    """The tag of a class, and of each field its name, its name in JSON, its default, and whether it must be given.

    Looking at a class costs far more than looking at its record.
    """
    config = cls.__struct_config__
    fields = [field for field in msgspec.structs.fields(cls) if field.name != "extra"]
    listed = tuple((field.name, field.encode_name, field.default, field.required) for field in fields)
    return {config.tag_field: config.tag} if config.tag_field else {}, listed


def carries_unknown(value: Any) -> bool:
    """True if anything inside needs the careful way when written."""
    if type(value) is list:
        return any(carries_unknown(item) for item in value)
    if isinstance(value, Opaque):
        return True
    if isinstance(value, Faithful):
        if getattr(value, "extra", NO_EXTRA) is not NO_EXTRA:
            return True
        return any(carries_unknown(getattr(value, name)) for name in _nested(type(value)))
    return False


@cache
def _nested(cls: type[Faithful]) -> tuple[str, ...]:
    """Fields that can hold records, so that plain text fields cost nothing to skip."""
    hints = get_type_hints(cls)
    return tuple(f.name for f in msgspec.structs.fields(cls) if f.name != "extra" and _holds_records(hints[f.name]))


def _holds_records(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, (Faithful, Opaque)):
        return True
    return any(_holds_records(argument) for argument in get_args(hint))


def write(record: Faithful) -> bytes:
    """JSON text of a record, unknown parts included."""
    return msgspec.json.encode(to_json(record) if carries_unknown(record) else record)
