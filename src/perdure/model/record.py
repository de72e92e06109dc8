"""`Record`: the base of what the stores return, and its JSON form.

A record is frozen, compares by value, and turns into plain JSON data with `to_json`: field by field under the same
names, nested records included. Unknown fields return to their level (see `faithful`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.model.faithful import Faithful, Opaque


class Record(msgspec.Struct, frozen=True):
    """Base of what the stores return."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, as `json.dumps` takes it."""
        return {name: _plain(getattr(self, name)) for name in self.__struct_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, (Faithful, Opaque)):
        return value.to_json()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value
