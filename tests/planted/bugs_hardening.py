"""Bugs that let hostile content, prepared stores or rogue servers through; see `bugs` for what a bug is."""

from __future__ import annotations

from tests.planted.bug import Bug

HARDENING = (
    # Secrets.
    Bug(
        "every option of a URL is shown",
        "kernel/redaction.py",
        "return value if name in HARMLESS and",
        "return value if",
        ("test:tests/unit/test_redaction.py",),
    ),
    Bug(
        "a URL that does not parse is shown",
        "kernel/redaction.py",
        'return f"{scheme}://{STARS}" if rest else text',
        "return text",
        ("test:tests/unit/test_redaction.py",),
    ),
    Bug(
        "a parsed URL prints its password",
        "engines/mysql/target.py",
        "def __repr__(self)",
        "def written(self)",
        ("test:tests/unit/test_redaction.py",),
    ),
    # What content costs.
    Bug(
        "a counter is an increment again, on a record that may lie",
        "stores/plan.py",
        "columns[name] = getattr(change.run, name) + getattr(change, name)",
        "columns[name] = Inc(getattr(change, name))",
        ("case:runs/counters-end@memory",),
    ),
    Bug(
        "a message may have any number of blocks",
        "rules/shape.py",
        "if count > limits.BLOCKS_PER_MESSAGE:",
        "if count > limits.MESSAGE_BYTES:",
        ("case:messages/blocks-limit@memory",),
    ),
    Bug(
        "blocks inside a tool result do not count",
        "rules/shape.py",
        "count += len(block.content)",
        "count += 0",
        ("case:messages/blocks-limit@memory",),
    ),
    Bug(
        "every value that is checked has its path spelled",
        "model/plain.py",
        "            for item in items:\n",
        "            paths: list[str] = []\n"
        "            for item in items:\n"
        "                paths.append('k' * 200 + str(len(paths)))\n",
        ("test:tests/unit/test_faithful.py::test_a_check_takes_little_memory",),
    ),
    Bug(
        "what is huge as JSON is encoded before it is refused",
        "model/plain.py",
        "self.room -= size",
        "self.room -= 0",
        ("test:tests/unit/test_faithful.py::test_what_is_huge_as_json_is_refused_by_the_walk",),
    ),
    Bug(
        "a repeated call id is searched for by counting",
        "rules/shape.py",
        "        if call.id in seen:",
        "        if [other.id for other in message.content].count(call.id) > 1:",
        ("test:tests/budget/test_budget.py::test_growth[commit-a-repeated-call-memory]",),
    ),
    Bug(
        "the fold looks at every summary for every record",
        "rules/views.py",
        "        elif record.seq > reached:",
        "        elif not any(_interval(m)[0] <= record.seq <= _interval(m)[1] for m in winners):",
        ("test:tests/budget/test_budget.py::test_growth[messages.history-summaries-memory]",),
    ),
)
