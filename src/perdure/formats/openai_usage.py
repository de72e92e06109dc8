"""Token counts as OpenAI reports them: in the same way in both of its APIs, under other names."""

from __future__ import annotations

from typing import Any

from perdure.formats.carrying import rest
from perdure.formats.reading import make_usage, part_of
from perdure.model.message import Usage


def read_usage(data: dict[str, Any], form: str, *, received: str, sent: str) -> Usage:
    """The usage of an answer, in which the fields of what the model `received` and `sent` begin with these words."""
    input_details, output_details = f"{received}_tokens_details", f"{sent}_tokens_details"
    read, written = part_of(data, input_details), part_of(data, output_details)
    counts = {
        "input_tokens": data.get(f"{received}_tokens"),
        "output_tokens": data.get(f"{sent}_tokens"),
        "cache_read_tokens": read.get("cached_tokens"),
        "cache_write_tokens": read.get("cache_write_tokens"),
        "reasoning_tokens": written.get("reasoning_tokens"),
    }
    others = rest(data, f"{received}_tokens", f"{sent}_tokens", "total_tokens")
    others[input_details] = _counted(rest(read, "cached_tokens", "cache_write_tokens"))
    others[output_details] = _counted(rest(written, "reasoning_tokens"))
    return make_usage(counts, form, others)


def _counted(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
