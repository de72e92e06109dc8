"""The fuzzer for volume, with server engines: `python -m tests.model.volume --engine redis --operations 9000`."""

from __future__ import annotations

import sys

from tests.support import providers

from perdure.testkit.volume import main

ENGINES = providers.BUILTIN  # imported for its effect: `--engine` now knows the server engines too

if __name__ == "__main__":
    sys.exit(main())
