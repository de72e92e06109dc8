"""The escaping of everything that reaches a terminal; `perdure.model.visible_text` says what is escaped, and why."""

from __future__ import annotations

from perdure.model.visible_text import escaped, escaped_in_json, harmless_json, one_line, to_json_text, visible

__all__ = ["escaped", "escaped_in_json", "harmless_json", "one_line", "to_json_text", "visible"]
