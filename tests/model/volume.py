"""The machine for volume: `python -m tests.model.volume --engine sqlite --operations 100000 --seed 7`."""

from __future__ import annotations

import sys

from tests.support import providers

from perdure.testkit.volume import main

ENGINES = providers.BUILTIN  # imported for its effect: `--engine` now knows the server engines too

if __name__ == "__main__":
    sys.exit(main())
