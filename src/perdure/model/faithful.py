"""Faithful records: unknown fields survive, at their level, whatever build reads or writes them.

A stored record decodes straight into typed structs when it holds only what this build knows. When it holds more (a
newer build's field, a provider's own block type), a slower path keeps the rest: unknown fields go to `extra`, unknown
tagged types become the union's opaque member, and both are written back where they stood. No key of user data is
reserved: a field that is itself called "extra" is an unknown field like any other.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from perdure.errors import InvalidError, shown


class Extra(Mapping[str, Any]):
    """An immutable mapping of fields that this build does not know. `Extra(cache_control={...})` makes one."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        self._fields: dict[str, Any] = {**(fields or {}), **more}

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
    """Base of records that carry what they do not know in `extra` (each declares that field last)."""


class Untyped(dict[str, Any]):
    """A JSON object of unknown type. Being no type that msgspec reads, it always takes the careful way."""


class Opaque(msgspec.Struct, frozen=True, tag="(opaque)", tag_field="type", gc=False):
    """Something of an unknown `type`, kept exactly as it came."""

    data: Untyped

    @property
    def kind(self) -> Any:
        """The unknown type's name."""
        return self.data.get("type")


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
    if not isinstance(value, dict):
        raise InvalidError(f"expected an object, not {shown(value)}", path=path)
    known, extra = {}, {}
    tag_field = cls.__struct_config__.tag_field
    fields = _fields(cls)
    for name, item in value.items():
        if name in fields:
            attribute, hint = fields[name]
            known[attribute] = _parse(hint, item, f"{path}.{name}")
        elif name != tag_field:
            extra[name] = item
    if extra:
        known["extra"] = Extra(extra)
    try:
        return cls(**known)
    except TypeError as error:
        raise InvalidError(f"{cls.__name__}: {error}", path=path) from None


@cache
def _fields(cls: type[Faithful]) -> dict[str, tuple[str, Any]]:
    hints = get_type_hints(cls)
    return {f.encode_name: (f.name, hints[f.name]) for f in msgspec.structs.fields(cls) if f.name != "extra"}


def _parse(hint: Any, value: Any, path: str) -> Any:
    if hint is Any:
        return value
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _parse_union(get_args(hint), value, path)
    if origin is list and isinstance(value, list):
        return [_parse(get_args(hint)[0], item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(hint, type) and issubclass(hint, Faithful):
        return from_json(hint, value, path)
    try:
        return msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidError(str(error), path=path) from None


def _parse_union(members: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and types.NoneType in members:
        return None
    records = [m for m in members if isinstance(m, type) and issubclass(m, Faithful)]
    if Opaque in members and isinstance(value, dict):
        for record in records:
            if record.__struct_config__.tag == value.get("type"):
                return from_json(record, value, path)
        if not isinstance(value.get("type"), str):
            raise InvalidError("a tagged object needs a text field `type`", path=path)
        return Opaque(Untyped(value))
    others = [m for m in members if m is not types.NoneType]
    if len(others) == 1:
        return _parse(others[0], value, path)
    try:
        return msgspec.convert(value, Union[tuple(others)], strict=True)  # noqa: UP007 - built at run time
    except msgspec.ValidationError as error:
        raise InvalidError(str(error), path=path) from None


def to_json(value: Any) -> Any:
    """Plain JSON data of a record or a list of them, `extra` merged back at its level."""
    if isinstance(value, Opaque):
        return dict(value.data)
    if isinstance(value, Faithful):
        return _struct_to_json(value)
    if isinstance(value, list):
        return [to_json(item) for item in value]
    return value


def _struct_to_json(record: Faithful) -> dict[str, Any]:
    config = record.__struct_config__
    out: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
    for field in _struct_fields(type(record)):
        value = getattr(record, field.name)
        if field.name == "extra" or value is field.default or (value == [] and not field.required):
            continue
        if value == field.default and type(value) is type(field.default):
            continue
        out[field.encode_name] = to_json(value)
    out.update(getattr(record, "extra", NO_EXTRA))
    return out


@cache
def _struct_fields(cls: type[Faithful]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Looking at a class costs far more than looking at its record."""
    return msgspec.structs.fields(cls)


def carries_unknown(value: Any) -> bool:
    """True if anything inside needs the careful way when written."""
    if isinstance(value, list):
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
