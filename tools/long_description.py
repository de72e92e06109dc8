"""The long description of the package: README.md without the links and pictures that lead into the repository.

Outside it, such as on the page of a package index, they would lead nowhere. Links with an address stay. Hatchling calls
this when it writes the metadata of a wheel or an sdist; `pyproject.toml` names the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?://)[^)]*\)\n*")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://)[^)\s]*\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def long_description(readme: str) -> str:
    """The text with every relative link replaced by its words, and every relative picture removed; code stays."""
    parts = _FENCED.split(readme)
    parts[::2] = [_LINK.sub(r"\1", _PICTURE.sub("", part)) for part in parts[::2]]
    return "".join(parts)


class LongDescription(MetadataHookInterface):
    """The hook."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(readme)}
