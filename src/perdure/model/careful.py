"""Builds faithful records from decoded JSON, value by value, and names the position of what is wrong.

For values that callers give, and for stored ones that msgspec refuses: unknown fields are kept, and so is what an older
build stored under the name of a later field (`Faithful.ADDED`).
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from perdure import limits
from perdure.errors import short_repr
from perdure.model.faithful import Extra, Faithful, Opaque, Untyped, fields_by_name, nested_fields
from perdure.model.plain import Refusal

F = TypeVar("F", bound=Faithful)


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
    fields = {name: (attribute, hint, _parser(hint)) for name, (attribute, hint) in fields_by_name(cls).items()}
    tag_field = cls.__struct_config__.tag_field
    added = cls.ADDED
    # What holds no records and brings nothing unknown is msgspec's business, several times faster.
    ordinary = frozenset((*fields, tag_field)) if not nested_fields(cls) else frozenset()

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
        _parser(fields_by_name(cls)[name][1])(value, 1)
    except Refusal:
        return False
    return True


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
