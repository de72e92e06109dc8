"""The machine for volume: `python -m tests.model.volume --engine sqlite --operations 100000 --seed 7`."""

from __future__ import annotations

import sys

from perdure.testkit.volume import main

if __name__ == "__main__":
    sys.exit(main())
