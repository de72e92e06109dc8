"""Faithful records: unknown fields survive, at their level, whatever build reads or writes them.

Unknown fields (a newer build's, a provider's) go to `extra`; something of an unknown type becomes the union's opaque
member; both are written back where they were. No key of user data is reserved: a field that is itself called "extra" is
an unknown field like any other. `stored_json` reads and writes records as JSON text; `careful` builds them from JSON
values that callers give, and names what is wrong with one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, get_args, get_type_hints

import msgspec

from perdure.errors import InvalidError, short_repr


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
def fields_by_name(cls: type[Faithful]) -> dict[str, tuple[str, Any]]:
    """The fields of a class by their names in JSON: attribute and type."""
    hints = get_type_hints(cls, include_extras=True)
    return {f.encode_name: (f.name, hints[f.name]) for f in msgspec.structs.fields(cls) if f.name != "extra"}


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
        return any(carries_unknown(getattr(value, name)) for name in nested_fields(type(value)))
    return False


@cache
def nested_fields(cls: type[Faithful]) -> tuple[str, ...]:
    """Fields that can hold records, so that plain text fields cost nothing to skip."""
    hints = get_type_hints(cls)
    return tuple(f.name for f in msgspec.structs.fields(cls) if f.name != "extra" and holds_records(hints[f.name]))


def holds_records(hint: Any) -> bool:
    """Can a value of this type be, or hold, a record?"""
    if isinstance(hint, type) and issubclass(hint, (Faithful, Opaque)):
        return True
    return any(holds_records(argument) for argument in get_args(hint))
