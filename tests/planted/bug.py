"""One planted bug: a small change of the product's text, and what must turn red because of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """A bug: its name, the file under `src/perdure`, the text to find (once) and what to put there."""

    name: str
    file: str
    old: str
    new: str
    watch: tuple[str, ...]
    hangs: bool = False
    """True when the bug shows as a wait for a deadline: that takes no processor, so such bugs run beside the others."""

    @property
    def on_servers(self) -> bool:
        """True when a server is needed to see it."""
        return any(engine in what for engine in ("postgres", "mysql", "redis") for what in self.watch)

    @property
    def plain_only(self) -> bool:
        """True when it is not judged under `python -O`: a server or a pytest takes long to start, and what `-O` leaves
        out is the same whatever is watched."""
        return self.on_servers or any(what.startswith("test:") for what in self.watch)
