"""Bugs in due times: bounds on the engine's clock, takes, and the hints of takes. See `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

_CLOCKS = "test:tests/engines/test_clocks.py::test_a_wrong_clock_moves_no_due_time_and_no_lease"
_BOUNDS = "test:tests/engines/test_due_times.py"

DUE_BUGS = (
    Bug(
        "a bound on the clock forgets its offset",
        "kernel/semantics.py",
        "return now + bound.plus if type(bound) is Now",
        "return now if type(bound) is Now",
        ("case:kernel/due-*@memory",),
    ),
    Bug(
        "the door takes any offset of the clock",
        "kernel/validate.py",
        "if type(now.plus) is not int or abs(now.plus) > limits.CLOCK_OFFSET_MS:",
        "if type(now.plus) is not int:",
        (f"{_BOUNDS}::test_nonsense_is_refused_at_the_door",),
    ),
    Bug(
        "a row without a due time is due",
        "engines/memory/read.py",
        "values[name] is not None and values[name] <= most",
        "(values[name] or 0) <= most",
        ("case:kernel/due-take@memory",),
    ),
    Bug(
        "memory: a filled kind takes the offset of a change for the time",
        "engines/memory/write/filled.py",
        "            self._times.append(number)\n",
        "",
        (f"{_BOUNDS}::test_a_change_bounded_by_the_clock",),
    ),
    Bug(
        "sqlite: a filled kind takes the offset of a condition for the time",
        "engines/sql/embedded/kinds.py",
        "                self.times += [number] if isinstance(kind, Clocked) else []\n",
        "",
        ("serial:150", f"{_BOUNDS}::test_a_condition_on_the_clock"),
    ),
    Bug(
        "sqlite: a filled kind writes the offset instead of the time",
        "engines/sql/embedded/kinds.py",
        "            elif kind is Now or isinstance(kind, Clocked):\n",
        "            elif isinstance(kind, Clocked):\n",
        ("serial:150", f"{_BOUNDS}::test_a_change_bounded_by_the_clock"),
    ),
    Bug(
        "sqlite: an empty take wakes the watchers",
        "engines/sqlite/write/jobs.py",
        "self._hints_if_taken if claim.rows else ()",
        "self._hints_if_taken",
        ("case:kernel/take-hints@sqlite",),
    ),
    Bug(
        "sqlite: a client's clock decides what is due",
        "engines/sql/embedded/read.py",
        "        if self.clock is not system_clock:\n            return self.clock()\n",
        "        return self.clock()\n",
        (f"{_CLOCKS}[sqlite-ahead]", "serial:150"),
    ),
    Bug(
        "postgres: a take waits for rows that others hold",
        "engines/postgres/write/take.py",
        'tail=" FOR UPDATE OF t SKIP LOCKED"',
        'tail=" FOR UPDATE OF t"',
        ("test:tests/engines/test_take.py::test_a_locked_row_is_skipped_and_taken_later[postgres]",),
        hangs=True,
    ),
    Bug(
        "postgres: takes with a bound on the clock and others share a statement",
        "engines/sql/reads.py",
        "            *[type(bound) is Now for bound in scan.upto.values()],\n",
        "",
        (f"{_BOUNDS}::test_take_of_what_is_due[postgres]",),
    ),
    Bug(
        "postgres: the clock of a condition is the client's",
        "engines/postgres/write/operation_sql.py",
        "{column} <= {binder.clock} + {binder.bind('bigint')}",
        "{column} <= {__import__('time').time_ns() // 1_000_000} + {binder.bind('bigint')}",
        (f"{_CLOCKS}[postgres-ahead]",),
    ),
    Bug(
        "postgres: a refusal by the clock is final although it was overtaken",
        "engines/postgres/write/executor.py",
        "observed_time(error) if now is None else now",
        "0 if now is None else now",
        ("test:tests/engines/test_postgres_writes.py::test_a_lease_that_ended_while_the_statement_waited_is_free",),
    ),
    Bug(
        "mysql: a take gets rows that others hold",
        "engines/mysql/read/queries.py",
        'tail=" FOR UPDATE SKIP LOCKED"',
        'tail=""',
        ("test:tests/engines/test_take.py::test_a_locked_row_is_skipped_and_taken_later[mysql]", "serial:300@mysql"),
        hangs=True,
    ),
    Bug(
        "redis: a take ends before what is due now",
        "engines/redis/write/lua/take.lua",
        "ordered_integer(clock + high + 1)",
        "ordered_integer(clock + high)",
        ("case:kernel/due-take@redis",),
    ),
    Bug(
        "redis: a second bound on the clock is an offset",
        "engines/redis/write/lua/take.lua",
        "filters[i], filters[i + 1] = AT_MOST, clock + filters[i + 1]",
        "filters[i] = AT_MOST",
        (f"{_BOUNDS}::test_a_second_bound_may_be_the_clock_too",),
    ),
    Bug(
        "redis: other clients do not hear of a take",
        "engines/redis/write/lua/take.lua",
        "for n = $hints, #matched > 0 and #ARGV or 0 do",
        "for n = $hints, 0 do",
        ("test:tests/engines/test_take.py::test_takes_of_another_engine_are_heard[redis]",),
        hangs=True,
    ),
)
