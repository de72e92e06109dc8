"""What a worker logs of damaged records: each once, however often it is read."""

from __future__ import annotations

from perdure.errors import CorruptError
from perdure.workers.logs import LOGGER, brief

_REMEMBERED = 10_000
"""Of how many damaged records a worker remembers that it has logged them."""


class DamageLog:
    """Logs each damaged record once, however often it is read."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def note(self, error: CorruptError) -> None:
        """A record was left out because of this error, which names it."""
        if error.where in self._logged:
            return
        if len(self._logged) >= _REMEMBERED:
            self._logged.clear()
        self._logged.add(error.where)
        LOGGER.error("damaged data is left out: %s", brief(error))
