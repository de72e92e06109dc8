"""The SDKs' types of requests, made strict.

As they are, they validate iterables only while these are walked, ignore unknown fields, and also take the SDK's objects
of answers, whose fields a request may refuse.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterable, Sequence
from typing import IO, Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict, is_typeddict

_made: dict[Any, Any] = {}
_NOTHING = Literal["(nothing)"]


def strict(hint: Any) -> TypeAdapter[Any]:
    """Validates a list of this type."""
    return TypeAdapter(list[_strict(hint)])  # type: ignore[misc]


def _strict(hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        members = [item for item in arguments if not (isinstance(item, type) and issubclass(item, BaseModel))]
        return Union[tuple(_strict(item) for item in members) or _NOTHING]  # noqa: UP007 - built at run time
    if origin in (IO, os.PathLike):
        return _NOTHING  # a file, which only the SDK can send
    if origin is Annotated:
        return _strict(arguments[0])
    if origin in (Required, NotRequired):
        return origin[_strict(arguments[0])]
    if origin in (Iterable, Sequence, list):
        return list[_strict(arguments[0])]  # type: ignore[misc]
    return _strict_fields(hint) if is_typeddict(hint) else hint


def _strict_fields(hint: Any) -> Any:
    if hint not in _made:
        _made[hint] = Any  # a type that holds itself
        fields = {name: _strict(field) for name, field in get_type_hints(hint, include_extras=True).items()}
        made: Any = TypedDict(hint.__name__, fields, total=hint.__total__)  # type: ignore[operator]
        made.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
        _made[hint] = made
    return _made[hint]
