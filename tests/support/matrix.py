"""`python -m tests.support.matrix`: the kit's table of capability × engine for all engines of this repository."""

from __future__ import annotations

import sys

from tests.support import providers

from perdure.testkit.matrix import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(providers.BUILTIN)))
