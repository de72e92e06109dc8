"""More bugs that the suite must find: in the checks of content, and in what content may cost."""

from __future__ import annotations

from tests.planted.bug import Bug

CONTENT_BUGS = (
    Bug(
        "a counter is an increment again, on a record that may lie",
        "stores/commit/run_change.py",
        '        "input_tokens": effect.input_tokens,\n',
        '        "input_tokens": Inc(effect.input_tokens - before.input_tokens),\n',
        ("case:runs/counters-end@memory",),
    ),
    Bug(
        "a message may have any number of blocks",
        "rules/message_shape.py",
        "if count > limits.BLOCKS_PER_MESSAGE:",
        "if count > limits.MESSAGE_BYTES:",
        ("case:messages/blocks-limit@memory",),
    ),
    Bug(
        "blocks inside a tool result do not count",
        "rules/message_shape.py",
        "count += len(block.content)",
        "count += 0",
        ("case:messages/blocks-limit@memory",),
    ),
    Bug(
        "every value that is checked has its path spelled",
        "model/plain.py",
        "        items = holder.values()\n    for item in items:\n",
        "        items = holder.values()\n"
        "    paths: list[str] = []\n"
        "    for item in items:\n"
        "        paths.append('k' * 200 + str(len(paths)))\n",
        ("program:tests.budget.spot_checks memory",),
    ),
    Bug(
        "what is huge as JSON is encoded before it is refused",
        "model/plain.py",
        "self.room -= size",
        "self.room -= 0",
        ("program:tests.budget.spot_checks size",),
    ),
    Bug(
        "a repeated call id is searched for by counting",
        "rules/message_shape.py",
        "        if call.id in ids:",
        "        if [other.id for other in message.content].count(call.id) > 1:",
        ("program:tests.budget.spot_checks repeated-call",),
    ),
    Bug(
        "the fold looks at every summary for every record",
        "rules/views.py",
        "        elif record.seq > reached:",
        "        elif not any(_interval(m)[0] <= record.seq <= _interval(m)[1] for m in winners):",
        ("program:tests.budget.spot_checks summaries",),
    ),
)
