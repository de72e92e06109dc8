"""`UNSET`: the default of an argument for which None has a meaning."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
"""Leave this as it is (None would clear it)."""
