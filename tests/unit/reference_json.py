"""How JSON was checked, read and written before it was done in C: the reference for `test_same_json`.

Slow and plain: every value of every record is visited, in Python. The product must refuse what this refuses, with the
same error, and return what this returns.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from perdure import limits
from perdure.errors import named_type, short_repr
from perdure.model.faithful import NO_EXTRA, Extra, Faithful, Opaque, Untyped, as_dict
from perdure.model.plain import Refusal, Step

F = TypeVar("F", bound=Faithful)

_HINTS: dict[Any, str] = {
    bytes: "encode it yourself, for example as base64 text",
    set: "use a list",
    tuple: "use a list",
}


def check_json(value: Any, path: str, most: int = limits.MESSAGE_BYTES, *, wrapped: int = 0) -> int:
    """Refuse anything that JSON cannot carry exactly, naming its path below `path`.

    Returns a lower bound of the value's size as JSON. A value that must take more than `most` bytes is refused without
    being encoded: a list that holds one list ten times, and so on for 20 levels, is small in memory and huge as JSON.
    `wrapped` is how many levels of our own may surround the value that the depth limit is meant for.
    """
    walk = _Walk(most)
    try:
        walk.check([value], -wrapped)
    except Refusal as refusal:
        refusal.steps.pop()  # the index in the list made here
        if walk.room < 0:
            refusal.steps.clear()  # it is the whole that is too large
        raise refusal.at(path) from None
    return most - walk.room


class _Walk:
    """One walk over a value, and how many bytes of JSON it may still come to."""

    __slots__ = ("_most", "room")

    def __init__(self, most: int) -> None:
        self._most = most
        self.room = most + 2

    def check(self, holder: Any, depth: int) -> None:
        """Check what a list or an object holds."""
        if depth > limits.JSON_DEPTH:
            raise Refusal(f"nested deeper than {limits.JSON_DEPTH} levels")
        size = 2 * len(holder)
        items: Any = holder
        if type(holder) is dict:
            size += _check_keys(holder)
            items = holder.values()
        item: Any = None
        try:
            for item in items:
                kind = type(item)
                if kind is str:
                    size += len(item)
                    if not item.isascii():
                        _check_text(item)
                elif kind is bool or item is None:
                    continue
                elif kind is dict or kind is list:
                    self._spend(size)
                    size = 0
                    self.check(item, depth + 1)
                else:
                    size += _check_number(item, kind)
            self._spend(size)
        except Refusal as refusal:
            refusal.steps.append(_step_to(item, holder))
            raise

    def _spend(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise Refusal(f"more than {self._most:,} bytes of JSON, which is the limit")


def _step_to(item: Any, holder: Any) -> Step:
    """Where an item was met: the first place that holds this very object, as it would have been refused there."""
    steps = holder.items() if type(holder) is dict else enumerate(holder)
    return next((step for step, other in steps if other is item), 0)


def _check_keys(holder: dict[Any, Any]) -> int:
    """How long the keys are together, all of them being text."""
    size = 0
    for key in holder:
        if type(key) is not str:
            raise Refusal(f"the key {short_repr(key)} is not a string", "JSON objects have string keys")
        size += len(key)
        if not key.isascii():
            _check_text(key)
    return size


def _check_number(item: Any, kind: type) -> int:
    """A number, or no JSON at all; digits beyond the first count, as an integer may have a thousand of them."""
    if kind is int:
        bits = item.bit_length()
        if bits > limits.JSON_INTEGER_BITS:
            raise Refusal(f"an integer of more than {limits.JSON_INTEGER_BITS} bits")
        return int(bits) >> 2  # a digit holds less than four bits
    if kind is not float:
        raise Refusal(f"{named_type(kind)} is not JSON", _HINTS.get(kind, "convert it first"))
    if not math.isfinite(item):
        raise Refusal(f"{item} is not JSON", "use null or a string")
    return 0


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refusal("the text holds a lone surrogate, which UTF-8 cannot carry") from None


def read(cls: type[F], data: bytes | str) -> F:
    """The record in this JSON text."""
    try:
        return msgspec.json.decode(data, type=cls, dec_hook=_never)
    except msgspec.ValidationError:
        return from_json(cls, msgspec.json.decode(data), "$")


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
            if value or required or default is None:  # an empty list of arguments is not None
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
