"""Where media come from: a URL, or the data itself in a `data:` URL."""

from __future__ import annotations

from perdure.model.message import Base64Source, Source, UrlSource


def read_url(url: str) -> Source:
    """The source behind a URL; a `data:` URL holds the data itself."""
    head, mark, data = url.partition(";base64,")
    if mark and head.startswith("data:"):
        return Base64Source(media_type=head.removeprefix("data:"), data=data)
    return UrlSource(url)


def media_type(source: Base64Source) -> str:
    """The bare type: providers refuse the parameters that may follow it."""
    return source.media_type.partition(";")[0].strip()


def write_url(source: Source) -> str | None:
    """The URL of a source; None if it has none."""
    if isinstance(source, Base64Source):
        return f"data:{media_type(source)};base64,{source.data}"
    return source.url if isinstance(source, UrlSource) else None
