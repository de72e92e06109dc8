"""Paths that every view shows as they are: most of them, so that a long history is looked at once.

A path is plain if no summary folds it, nothing is retracted, and each tool call has exactly one result after it. The
rules for all other paths are in `rules.views`.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.message import ALL, INTERNAL, MessageRecord, ToolResult, ToolUse


def is_plain(path: Sequence[MessageRecord], *, external: bool) -> bool:
    """Does the history show exactly this path (`external`: the external view)?"""
    waiting: set[str] = set()
    for record in path:
        message = record.message
        role = message.role
        if role == "assistant":
            for block in message.content:
                if type(block) is ToolUse:
                    if block.id in waiting:
                        return False
                    waiting.add(block.id)
        elif role == "tool":
            # A tool message answers with its first result; stored ones hold no other block.
            result = message.content[0] if message.content else None
            if type(result) is not ToolResult or result.tool_use_id not in waiting or message.visibility == INTERNAL:
                return False
            waiting.remove(result.tool_use_id)
        if message.compaction is not None or (external and message.visibility != ALL):
            return False
    return not waiting
