"""The bugs that the suite must find. Each is one small change of the product's text: a comparison that is wrong, a
guard, a sync or a scope that is missing.

`watch` names what must turn red, and how narrow: conformance cases (`case:<pattern>@<engine>`), the model machine
(`machine:<engine>:<calls>`), the serial-order test (`serial:<rounds>`, `serial:<rounds>@<engine>`), a crash or fault
program with its arguments (`crash:kill_loop --cycles 8`, `fault:cuts --engine redis --cuts 12`), any other program by
its module (`program:tests.engines.long_views`), or a test by its path (`test:tests/engines/test_x.py::test_y`).
Everything named here is green on the product as it is; `run.py` checks that first.
"""

from __future__ import annotations

from tests.planted.bug import Bug
from tests.planted.bugs_branches import BRANCH_BUGS
from tests.planted.bugs_content import CONTENT_BUGS
from tests.planted.bugs_decisions import DECISION_BUGS
from tests.planted.bugs_due import DUE_BUGS
from tests.planted.bugs_formats import FORMAT_BUGS
from tests.planted.bugs_fuzz import FUZZ_BUGS
from tests.planted.bugs_imports import IMPORT_BUGS
from tests.planted.bugs_kinds import KIND_BUGS
from tests.planted.bugs_limits import LIMIT_BUGS
from tests.planted.bugs_logins import LOGIN_BUGS
from tests.planted.bugs_messages import MESSAGE_BUGS
from tests.planted.bugs_operations import OPERATION_BUGS
from tests.planted.bugs_ownership import OWNERSHIP_BUGS
from tests.planted.bugs_profiles import PROFILE_BUGS
from tests.planted.bugs_redis import REDIS_BUGS
from tests.planted.bugs_reruns import RERUN_BUGS
from tests.planted.bugs_secrets import SECRET_BUGS
from tests.planted.bugs_servers import SERVER_BUGS
from tests.planted.bugs_sqlite import SQLITE_BUGS
from tests.planted.bugs_stored import STORED_BUGS
from tests.planted.bugs_terminal import TERMINAL_BUGS
from tests.planted.bugs_threads import THREAD_BUGS
from tests.planted.bugs_tools import TOOL_BUGS
from tests.planted.bugs_trimming import TRIMMING_BUGS
from tests.planted.bugs_workers import WORKER_BUGS

BUGS = (
    # The kernel.
    Bug(
        "a cursor works with any query",
        "kernel/cursor.py",
        "if name != query_hash(query):",
        "if not name:",
        ("case:threads/cursor-foreign@memory", "case:messages/cursor-foreign@memory"),
    ),
    Bug(
        "a damaged cursor is believed",
        "kernel/cursor.py",
        'if binascii.crc32(payload).to_bytes(4, "big") != checksum or _spell(framed) != text:',
        "if _spell(framed) != text:",
        ("case:threads/cursor-*@memory", "case:messages/cursor-damaged@memory"),
    ),
    Bug(
        "at most means less than",
        "kernel/semantics.py",
        "bool(actual <= bound_at(expected.limit, now))",
        "bool(actual < bound_at(expected.limit, now))",
        ("test:tests/engines/test_ops.py::test_column_conditions[memory-3-wanted5-True]",),
    ),
    Bug(
        "memory: commits of a known kind allow more than at most",
        "engines/memory/write/filled.py",
        "old[column] > values[number] for",
        "old[column] > values[number] + 1_000 for",
        ("case:commit/*fence*@memory",),
    ),
    Bug(
        "a swap does not look at what is there",
        "kernel/semantics.py",
        "return value.new if old == value.old else old",
        "return value.new",
        ("test:tests/engines/test_ops.py::test_expressions[memory-5-expression12-5]",),
    ),
    Bug(
        "memory: a swap does not look at what is there in commits of a known kind",
        "engines/memory/write/filled.py",
        "values[number + 1] if before == values[number] else before",
        "values[number + 1]",
        ("case:runs/*keeps*@memory",),
    ),
    # The memory engine.
    Bug(
        "memory: the expected length is not compared",
        "engines/memory/write/transaction.py",
        "if op.before is not None and op.before != head:",
        "if op.before is not None and op.before < 0:",
        ("case:commit/expect@memory",),
    ),
    Bug(
        "memory: a message id can be taken twice",
        "engines/memory/write/transaction.py",
        "refuse_repeated(position, log.log, op.entries, partition.owners)",
        "refuse_repeated(position, log.log, op.entries)",
        ("case:commit/existing-id@memory",),
    ),
    Bug(
        "memory: a page begins with the last row of the one before",
        "engines/memory/schema.py",
        "high = min(high, bisect_left(entries, (keyset,)))",
        "high = min(high, bisect_left(entries, (keyset,)) + 1)",
        ("case:threads/list-pages@memory",),
    ),
    Bug(
        "memory: a read brings all indexes up to date but one",
        "engines/memory/schema.py",
        "for order in self._orders.values():",
        "for order in list(self._orders.values())[:-1]:",
        ("case:runs/*@memory",),
    ),
    Bug(
        "memory: a path takes messages of other branches",
        "engines/memory/read.py",
        "if entry[position] == segment.value",
        "if entry[position] <= segment.value",
        ("case:branches/*@memory",),
    ),
    # The SQLite engine.
    Bug(
        "sqlite: commits are not synced",
        "engines/sqlite/connections/connect.py",
        '_SYNCHRONOUS = {"power": "FULL", "process": "NORMAL"}',
        '_SYNCHRONOUS = {"power": "NORMAL", "process": "NORMAL"}',
        ("case:lifecycle/honest@sqlite", "case:lifecycle/*@sqlite-power"),
    ),
    Bug(
        "sqlite: a forked child opens what its parent has open",
        "engines/sqlite/connections/forks.py",
        "if self.inherited and identity_of(path) in self.inherited:",
        "if identity_of(path) is None and self.inherited:",
        ("crash:fork_matrix --only closes",),
    ),
    Bug(
        "sqlite: links are not followed",
        "engines/sqlite/target.py",
        "resolved = Path(path).resolve()\n    except",
        "resolved = Path(path).absolute()\n        return resolved\n    except",
        ("crash:links",),
    ),
    Bug(
        "sqlite: a file with two names is opened",
        "engines/sqlite/target.py",
        "if status.st_nlink > 1:",
        "if status.st_nlink < 1:",
        ("crash:links",),
    ),
    Bug(
        "sqlite: a read that runs is not counted",
        "engines/sqlite/read.py",
        "        while (work := self._work.get()) is not None:\n",
        "        while (work := self._work.get()) is not None:\n            self._busy -= 1\n",
        ("program:tests.engines.long_views",),
        hangs=True,
    ),
    Bug(
        "sqlite: acknowledged early, before the commit",
        "engines/sqlite/write/group_commit.py",
        '            failpoints.hit("sqlite.before_commit")\n',
        "            from perdure.engines.sqlite.write.jobs import deliver\n\n"
        "            deliver(batch)\n"
        '            failpoints.hit("sqlite.before_commit")\n',
        ("crash:kill_loop --cycles 25 --seed 5",),
    ),
    Bug(
        "sqlite: a refused member of a batch is not undone",
        "engines/sqlite/write/group_commit.py",
        'execute("ROLLBACK TO member")',
        'execute("SELECT 1")',
        ("serial:60",),
    ),
    Bug(
        "sqlite: a batch goes on after a member failed half way",
        "engines/sqlite/write/group_commit.py",
        "if not connection.in_transaction or (wrote and not isolated):",
        "if not connection.in_transaction:",
        ("serial:60",),
    ),
    Bug(
        "sqlite: the expected length is not compared",
        "engines/sql/embedded/write.py",
        "if op.before is not None and op.before != length:",
        "if op.before is not None and op.before > length:",
        ("serial:300",),
    ),
    Bug(
        "sqlite: a patch does not look at its condition's rev",
        "engines/sql/expressions.py",
        "return [f\"{column('rev')} = {parameter()}\"]",
        'return [f"{parameter()} IS NOT NULL"]',
        ("case:runs/stale-*@sqlite",),
    ),
    Bug(
        "sqlite: a removal reaches into every scope",
        "engines/sql/embedded/statements.py",
        'self.drop = f\'DELETE FROM {name} WHERE "scope" = ? AND {partition} = ?',
        'self.drop = f\'DELETE FROM {name} WHERE ? <> "" AND {partition} = ?',
        ("case:scope/untouched*@sqlite", "case:scope/same-ids@sqlite"),
    ),
    Bug(
        "sqlite: a scan shows the rows of every scope",
        "engines/sql/reads.py",
        "terms = [f\"t.{quote('scope')} = {marks.scope()}\"]",
        "terms = [f\"t.{quote('scope')} >= {marks.scope()}\"]",
        ("case:scope/*@sqlite",),
    ),
    Bug(
        "sqlite: a read begins one entry late",
        "engines/sql/reads.py",
        'terms.append(f"{seq} > {marks.take()}")',
        'terms.append(f"{seq} - 1 > {marks.take()}")',
        ("case:messages/list-windows@sqlite", "case:messages/ranges@sqlite"),
    ),
    Bug(
        "sqlite: a page repeats the row it continues after",
        "engines/sql/terms.py",
        "}) {way} ({values})",
        "}) {way}= ({values})",
        ("case:threads/list-pages@sqlite", "case:runs/pages@sqlite"),
    ),
    Bug(
        "sqlite: the reads of a view see different moments",
        "engines/sqlite/read.py",
        '        cursor.execute("BEGIN")\n        answers = self._queries.view(cursor, scope, reads)\n'
        '        cursor.execute("COMMIT")\n',
        "        answers = self._queries.view(cursor, scope, reads)\n",
        ("test:tests/engines/test_sqlite_readers.py::test_the_reads_of_a_view_see_one_moment",),
    ),
    Bug(
        "kernel: a unique value may pass between rows",
        "kernel/unique_handover.py",
        "        return all(op.columns.get(name) is not None for name in columns)",
        "        return op.if_ is not ABSENT",
        ("test:tests/unit/test_validate.py::test_a_unique_value_is_not_handed_over_in_a_transaction",),
    ),
    *SERVER_BUGS,
    # The rules.
    Bug(
        "a run that is done may go on",
        "rules/run_machine.py",
        "    DONE: (),\n",
        "    DONE: (DONE,),\n",
        (
            "case:runs/illegal-moves@memory",
            "case:runs/done-is-final@sqlite",
        ),
    ),
    Bug(
        "a summary leaves out the last message it covers",
        "rules/views.py",
        "        elif record.seq > reached:",
        "        elif record.seq >= reached:",
        ("case:messages/fold-*@memory",),
    ),
    Bug(
        "a new run takes the active pointer from another",
        "rules/run_machine.py",
        '_BORN = Pointers(take=("latest_run",), fill=("open_run",))',
        '_BORN = Pointers(take=("latest_run", "active_run"), fill=("open_run",))',
        ("case:runs/created-keeps-active@memory",),
    ),
    Bug(
        "a barrier is passed",
        "rules/pending_selection.py",
        "if mode.barrier or not _skippable(mode, boundary):",
        "if not _skippable(mode, boundary):",
        ("case:pending/selection-*@memory",),
    ),
    Bug(
        "a page may hold one item too many",
        "rules/checks.py",
        "if type(value) is not int or not 1 <= value <= limits.PAGE_MAX:",
        "if type(value) is not int or not 1 <= value <= limits.PAGE_MAX + 1:",
        ("case:threads/list-limit@memory", "case:runs/list-limits@memory", "case:messages/list-limits@memory"),
    ),
    Bug(
        "a limited view counts what it hides",
        "rules/views.py",
        "if len(view) < limit:",
        "if len(end) < limit:",
        ("case:messages/limit-skips-*@memory",),
    ),
    Bug(
        "a limited view believes a result whose call it did not read",
        "rules/views.py",
        "not any(result.seq >= lowest for result in _results_without_call(end))",
        "True",
        ("case:messages/limit-skips-retracted@memory",),
    ),
    Bug(
        "a commit takes the id of a pending message",
        "stores/commit/plan.py",
        "if commit.brought_ids and guess.birth is None:",
        "if commit.brought_ids and guess.queue is not None:",
        ("case:commit/pending-id-*@memory", "case:pending/overtaken-by-its-id@sqlite"),
    ),
    Bug(
        "a freeze stages an id that was committed meanwhile",
        "stores/pending.py",
        'return queue.head["version"] if stays else None',
        "return None",
        ("case:pending/overtaken-by-its-id@memory",),
    ),
    Bug(
        "a freeze that takes nothing starts a run",
        "stores/pending.py",
        "if not selection and isinstance(run, NewRun):",
        "if not waiting and isinstance(run, NewRun) and expect_ids is None:",
        ("case:pending/freeze-nothing*@memory",),
    ),
    Bug(
        "a result without its call reaches the history",
        "rules/views.py",
        "if not external and _answered(record) not in visible_calls:",
        "if external and _answered(record) not in visible_calls:",
        ("case:messages/strip-*@memory",),
    ),
    # The stores.
    Bug(
        "the fence is ignored by the transaction",
        "stores/commit/plan.py",
        'condition["fence"] = AtMost(commit.fence)',
        'condition["fence"] = AtMost(commit.fence + 1)',
        ("crash:zombies --trials 6 --seed 3",),
    ),
    Bug(
        "a key answers for any content",
        "stores/commit/receipt.py",
        'if key is None or key["digest"] != commit.digest:',
        "if key is None:",
        ("case:commit/key-reused@memory",),
    ),
    Bug(
        "a key is forgotten at once",
        "stores/commit/receipt.py",
        '["at"] + limits.KEY_RETENTION_MS >= now)',
        '["at"] > now)',
        ("case:commit/key-replay@memory",),
    ),
    Bug(
        "a commit without messages does not look at expect",
        "stores/commit/plan.py",
        "if commit.expect is not None and not commit.messages:",
        "if commit.expect is not None and commit.messages is None:",
        ("case:commit/expect@memory",),
    ),
    Bug(
        "expect is judged before the fence",
        "stores/commit/refuse.py",
        "    _refuse_fence(commit, observed.head)\n    _refuse_expect(commit, observed)\n",
        "    _refuse_expect(commit, observed)\n    _refuse_fence(commit, observed.head)\n",
        ("case:commit/order-*@memory",),
    ),
    Bug(
        "a deleted thread leaves its keys behind",
        "stores/deletion.py",
        "if table.name not in _OWN]",
        'if table.name not in (*_OWN, "keys")]',
        ("case:commit/key-gone-with-thread@memory", "case:threads/delete-takes-everything@memory"),
    ),
    Bug(
        "an interrupted deletion is never finished",
        "stores/cleanup.py",
        "if not is_unfinished(tombstone):",
        'if tombstone["deleted_at"] is not None:',
        ("case:lifecycle/interrupted-*@sqlite",),
    ),
    Bug(
        "a client's clock decides which keys are remembered",
        "stores/commit/refuse.py",
        "        now=now,\n",
        '        now=__import__("time").time_ns() // 1_000_000,\n',
        ("case:lifecycle/foreign-clock-keys@sqlite",),
    ),
    Bug(
        "a client's clock decides which imports were abandoned",
        "stores/cleanup.py",
        'if tombstone["deleted_at"] > now - limits.IMPORT_LEASE_MS:',
        'if tombstone["deleted_at"] > __import__("time").time_ns() // 1_000_000 - limits.IMPORT_LEASE_MS:',
        ("case:lifecycle/foreign-clock-import@sqlite",),
    ),
    Bug(
        "an expired key that was swept is still to be replaced",
        "stores/commit/refuse.py",
        "key_rev = None if observed.key is None else observed.key.rev",
        "key_rev = guess.key_rev if observed.key is None else observed.key.rev",
        ("case:commit/key-expired-and-swept@memory",),
    ),
    Bug(
        "housekeeping stops after its first piece",
        "stores/cleanup.py",
        "if not doomed or len(rows) < limits.CLEANUP_ROWS:",
        "if not doomed or len(rows) <= limits.CLEANUP_ROWS:",
        ("case:lifecycle/housekeeping@memory",),
    ),
    Bug(
        "a cancelled deletion waits for somebody to call it again",
        "stores/deletion.py",
        "    except BaseException:\n        context.clean_up_soon()\n        raise",
        "    except BaseException:\n        raise",
        ("case:lifecycle/housekeeping-cancelled-delete@memory",),
    ),
    Bug(
        "a child born during a deletion is overlooked",
        "stores/deletion.py",
        'Delete("thread_heads", row.key, {"children": row["children"], "parent": row["parent"]})',
        'Delete("thread_heads", row.key, {"parent": row["parent"]})',
        ("case:threads/delete-race-*@memory",),
    ),
    Bug(
        "two writers may close a cycle",
        "stores/thread_creation.py",
        'guards.append(Check("threads", (current,), {"parent": cold[0]["parent"], "deleted_at": None}))',
        'guards.append(Check("threads", (current,), {"deleted_at": None}))',
        ("case:threads/cycle-race*@memory",),
    ),
    Bug(
        "a path that was remembered is not checked",
        "stores/branch_paths.py",
        'return line.born is not None and line.born != head["born"]',
        "return False",
        ("case:load/another-life@memory", "case:threads/delete-then-branch-again@memory"),
    ),
    Bug(
        "a deleted branch takes commits",
        "stores/commit/plan.py",
        'condition: dict[str, Any] = {"deleted_at": None}\n    if commit.expect_head',
        "condition: dict[str, Any] = {}\n    if commit.expect_head",
        ("case:branches/delete*@memory", "case:commit/deleted-branch-of-run@memory"),
    ),
    Bug(
        "a run counts past what an engine keeps exactly",
        "rules/run_machine.py",
        'if check_count(held, f"run.{name}") + check_count(added, name) > limits.INTEGER_MAX:',
        "if check_count(added, name) > limits.INTEGER_MAX:",
        ("case:runs/counters-end@memory",),
    ),
    Bug(
        "a queue may be changed by two at once",
        "stores/pending.py",
        'return [Patch("queues", (thread_id,), columns, {"revision": queue.revision})]',
        'return [Patch("queues", (thread_id,), columns)]',
        ("case:pending/concurrent-*@sqlite", "case:pending/freeze-races-append@sqlite"),
    ),
    Bug(
        "a change returns the revision that it replaced",
        "stores/results.py",
        "return Row(row.key, tuple(columns.values()), applied.rev, body, row.positions)",
        "return Row(row.key, tuple(columns.values()), row.rev, body, row.positions)",
        ("case:threads/update-returns-what-is-stored@memory",),
    ),
    Bug(
        "a fork returns the branch that was current before it",
        "stores/forking.py",
        "current=fork.switch,",
        "current=False,",
        ("case:branches/fork-returns-what-is-stored@memory",),
    ),
    Bug(
        "internal messages count as a run's output",
        "stores/commit/run_change.py",
        "if m.run_id == run_id and m.role in _PRODUCERS and m.visibility == ALL",
        "if m.run_id == run_id and m.role in _PRODUCERS",
        ("machine:memory:4000",),
    ),
    Bug(
        "a new order keeps the revisions",
        "stores/pending_ops.py",
        '{"position": position, "revision": entry.item.revision + 1, "updated_at": NOW}',
        '{"position": position, "revision": entry.item.revision, "updated_at": NOW}',
        ("machine:memory:4000",),
    ),
    Bug(
        "reads look into the default scope",
        "stores/context.py",
        "answers = await self.kernel.view(self.scope, *reads)\n        self._check(",
        'answers = await self.kernel.view("default", *reads)\n        self._check(',
        ("case:scope/*@memory",),
    ),
    # The auditor, and what an import lets in.
    Bug(
        "the auditor takes NULL for a value",
        "rules/columns.py",
        "            if rule.always:\n",
        "            if rule.always and not table:\n",
        ("case:lifecycle/damage-noticed@memory", "case:lifecycle/import-refuses@memory"),
    ),
    Bug(
        "a range is not looked at",
        "rules/columns.py",
        'rule.check(value, f"{table}.{name}")',
        "_ = rule.check",
        ("case:lifecycle/import-refuses@memory", "case:lifecycle/damage-noticed@memory"),
    ),
    Bug(
        "an import does not compare a run's status with its outcome",
        "stores/transfer/checks.py",
        "_refuse(body_problems(name, row))",
        '_refuse(body_problems(name, row) if name != "runs" else ())',
        ("case:lifecycle/import-refuses@memory",),
    ),
    *SECRET_BUGS,
    *OPERATION_BUGS,
    *BRANCH_BUGS,
    *RERUN_BUGS,
    *CONTENT_BUGS,
    *STORED_BUGS,
    *TERMINAL_BUGS,
    *THREAD_BUGS,
    *WORKER_BUGS,
    *TOOL_BUGS,
    *IMPORT_BUGS,
    *REDIS_BUGS,
    *LOGIN_BUGS,
    *FORMAT_BUGS,
    *FUZZ_BUGS,
    *SQLITE_BUGS,
    *LIMIT_BUGS,
    *OWNERSHIP_BUGS,
    *PROFILE_BUGS,
    *DECISION_BUGS,
    *DUE_BUGS,
    *KIND_BUGS,
    *MESSAGE_BUGS,
    *TRIMMING_BUGS,
)
