"""Bugs in decisions on tickets, in following a run, in repeated calls and in second results. See `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

_RETRY = "test:tests/unit/test_retry_ms.py"

DECISION_BUGS = (
    Bug(
        "a second decision replaces the first",
        "model/tickets.py",
        "    if _is_same(ticket.decision, value):\n        return True\n",
        "    if _is_same(ticket.decision, value):\n        return True\n    return False\n",
        ("case:runs/decide-again@memory", "machine:memory:3000"),
    ),
    Bug(
        "true is taken for 1",
        "model/tickets.py",
        "        return _sorted.encode(one) == _sorted.encode(other)\n",
        "        return bool(one == other)\n",
        ("case:runs/decide-again@memory",),
    ),
    Bug(
        "a decision on one ticket makes a run ready",
        "model/run.py",
        "bool(self.tickets) and all(t.decision",
        "bool(self.tickets) and any(t.decision",
        ("case:runs/decide@memory",),
    ),
    Bug(
        "a resume forgets the decisions",
        "stores/commit/resumption.py",
        "return msgspec.structs.replace(body, resumed_from=wait,",
        "return msgspec.structs.replace(body, resumed_from=None,",
        ("case:runs/resume-claims@memory", "machine:memory:3000"),
    ),
    Bug(
        "a large wait cannot be left",
        "stores/commit/resumption.py",
        "    if wait is None or _fits(body):\n",
        "    if wait is None or body:\n",
        ("case:runs/resumed-from-large@memory",),
    ),
    Bug(
        "a decision that was overtaken is lost",
        "stores/runs.py",
        "                return with_run(await perform(self._context, request)).run\n"
        "            except (IllegalTransition, VersionConflict):\n",
        "                return with_run(await perform(self._context, request)).run\n"
        "            except VersionConflict:\n                return run\n"
        "            except IllegalTransition:\n",
        ("case:runs/decide-overtaken@memory",),
    ),
    Bug(
        "an import takes any wait that ended",
        "rules/run_machine.py",
        "    for waiting in (run.waiting, run.body.resumed_from):\n",
        "    for waiting in (run.waiting,):\n",
        ("test:tests/unit/test_tickets.py",),
    ),
    Bug(
        "following a run ends when it waits",
        "stores/run_following.py",
        "        self.ended = run.status == DONE\n",
        "        self.ended = run.started_at is not None and run.waiting is not None or run.status == DONE\n",
        ("case:runs/follow@memory",),
    ),
    Bug(
        "a run that has the id of a deleted one is followed on",
        "stores/run_following.py",
        "        if born != self._born:\n",
        "        if born == 0:\n",
        ("case:runs/follow-gone@memory",),
    ),
    Bug(
        "a run that starts and ends between two looks is missed if its id sorts first",
        "stores/run_following.py",
        "        self._remember(look, max(since, look.now - _OVERLAP_MS))\n",
        "        self._remember(look, max([since, *[row['created_at'] + 1 for row in look.rows.values()]]))\n",
        ("case:runs/follow-thread-between@memory",),
    ),
    Bug(
        "a lost answer is asked for again without a key",
        "stores/patience.py",
        "    return error.retryable and (keyed or isinstance(error, UnavailableError))\n",
        "    return error.retryable\n",
        (_RETRY,),
    ),
    Bug(
        "a last error hides that an earlier attempt may have been made",
        "stores/patience.py",
        "                raise _last(error, unknown) from None\n",
        "                raise\n",
        (_RETRY,),
    ),
    Bug(
        "another scope of a store does not repeat its calls",
        "stores/store.py",
        "            retry_ms=self._context.patience.ms,\n",
        "",
        (_RETRY,),
    ),
    Bug(
        "the model gets the second result of a call",
        "rules/views.py",
        "            visible_calls.discard(_answered(record))\n",
        "",
        ("case:messages/strip-second-result@memory", "machine:memory:3000"),
    ),
    Bug(
        "an internal variant is listed for outsiders",
        "stores/variants.py",
        "siblings = [sibling for sibling in siblings if sibling.visibility == ALL]",
        "siblings = list(siblings)",
        ("case:branches/variants-external@memory",),
    ),
)
