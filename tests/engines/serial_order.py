"""The serial-order test: whatever ran concurrently must equal some order of the same transactions, one after
another.

Each round starts from a random small state, draws 2 to 5 transactions on a tiny keyspace (deletes, drops, trims, unique
values, swaps, guarded appends, appends that say where they start, bounds on the clock, takes of what is due), and lets
two processes run them on one database at the same time; a process that got several submits them together, so that they
share a batch. Then every permutation is tried on the memory engine until one gives the same outcomes (applied,
conflict, rows taken) and the same final dump; now and then the engine checks itself, too. The engine's own clock is
used, and those of the two processes are eight days off in either direction: `serial_takes` says how times are judged.
Run it long with `python -m tests.engines.serial_order --engine sqlite --rounds 30000 [--seed N]`; each violation prints
a line that replays it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from itertools import islice, permutations
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
from tests.engines.as_kinds import send
from tests.engines.serial_takes import (
    BOUNDS,
    LONGEST_ROUND,
    Take,
    Times,
    in_steps,
    loose_rows,
    replay,
    taken_keys,
)
from tests.engines.toys import SCHEMA, SERVERS, START, drive, empty_place, open_at

from perdure.clock import ManualClock, system_clock
from perdure.engines.memory import open_memory
from perdure.errors import InvalidError
from perdure.kernel.engine import Conflict, Engine
from perdure.kernel.ops import (
    ABSENT,
    ANY,
    NOW,
    PRESENT,
    Append,
    AtMost,
    Check,
    Default,
    Delete,
    Drop,
    Heads,
    Inc,
    Max,
    Min,
    Now,
    Op,
    Patch,
    Put,
    Read,
    Scan,
    Seq,
    Swap,
    Trim,
)
from perdure.kernel.validate import check_ops
from perdure.testkit.cases.clock_skew import wall_clock_off_by

Transaction = list[Op]
Worker = Callable[[Connection, str, str], None]
Move = Transaction | Take
Outcome = tuple[str, Any]
"""`applied` and the seqs, `conflict`, or `taken` and the keys of the rows."""
KEYS = ("a", "b", "c")
NAMES = (None, "x", "y")
TOPICS = ("t", "u")
LOGS = ("notes", "feed")
CHECK_EVERY = 25
"""How many rounds there are to one self-check of the engine."""
SKEWS = (8 * 24 * 3_600_000, -8 * 24 * 3_600_000)
"""How wrong the clocks of the two processes are, in milliseconds."""


class Draw:
    """Random operations on a keyspace so small that transactions meet."""

    def __init__(self, rng: random.Random, revs: list[int]) -> None:
        self.rng = rng
        self.revs = revs
        self.times = Times(rng)
        self.ids = 0

    def move(self) -> Move:
        """A transaction, or a take."""
        return self.times.take() if self.rng.random() < 0.3 else self.transaction()

    def transaction(self) -> Transaction:
        """The next transaction that validation accepts: some would hand a unique value from row to row."""
        while True:
            ops = self.operations()
            try:
                check_ops(SCHEMA, ops)
            except InvalidError:
                continue
            return ops

    def operations(self) -> Transaction:
        """One to four operations, each on a row or partition of its own; a trim is alone, or has checks beside it."""
        if self.rng.random() < 0.2:
            return self.trimming()
        keys = self.rng.sample(KEYS, self.rng.randint(1, 3))
        ops: Transaction = [self.row(key) for key in keys]
        if self.rng.random() < 0.6:
            log, topic = self.rng.choice(LOGS), self.rng.choice(TOPICS)
            keep = self.rng.choice((0, 0, 1, 3, 5))
            ops.append(Drop(log, topic, keep) if self.rng.random() < 0.25 else self.append(log, topic))
        appended = [op.log for op in ops if isinstance(op, Append)]
        if appended and self.rng.random() < 0.3:
            seq = Seq(appended[0])
            ops.append(Patch("pairs", ("p", 1), {"n": seq}, default=Default({"n": seq})))
        self.rng.shuffle(ops)
        return ops

    def trimming(self) -> Transaction:
        """A trim, sometimes with a check."""
        ops: Transaction = [Trim("feed", self.rng.choice(TOPICS), self.rng.choice((0, 1, 2, 4, 5, 6, 9)))]
        if self.rng.random() < 0.3:
            condition = self.rng.choice((PRESENT, self.rev(), self.column_condition()))
            ops.append(Check("items", (self.rng.choice(KEYS),), condition))
        self.rng.shuffle(ops)
        return ops

    def row(self, key: str) -> Op:
        """One operation on a row of `items`."""
        kind = self.rng.choice(("put", "put", "patch", "patch", "patch", "delete", "delete", "check"))
        where = ("items", (key,))
        if kind == "put":
            return Put(*where, self.columns(), b"{}", self.rng.choice((ANY, ANY, ABSENT, PRESENT, self.rev())))
        if kind == "patch":
            default = Default(self.columns()) if self.rng.random() < 0.4 else None
            return Patch(*where, self.changes(), self.condition(), default=default)
        if kind == "delete":
            return Delete(*where, self.rng.choice((ANY, ANY, ABSENT, PRESENT, self.column_condition())))
        return Check(*where, self.rng.choice((PRESENT, self.rev(), self.column_condition())))

    def columns(self) -> dict[str, Any]:
        """A whole row."""
        return {"name": self.rng.choice(NAMES), "n": self.rng.choice((None, 0, 1, 2)), "due": self.times.due()}

    def changes(self) -> dict[str, Any]:
        """Some columns, by value or expression."""
        found: dict[str, Any] = {
            "n": self.rng.choice((Inc(1), Max(2), Min(1), Swap(1, 5), Swap(None, 1), 0, None)),
            "rank": self.rng.choice((Inc(1), NOW, None, Max(NOW), Min(Now(7)))),
        }
        if self.rng.random() < 0.5:
            found["due"] = self.times.change()
        if self.rng.random() < 0.5:
            found["name"] = self.rng.choice((*NAMES, Swap("x", "y"), Swap(None, "x")))
        return found

    def condition(self) -> Any:
        """What a patch asks for."""
        return self.rng.choice((ANY, ANY, PRESENT, ABSENT, self.rev(), self.column_condition()))

    def column_condition(self) -> dict[str, Any]:
        """Columns as they may well be."""
        due = AtMost(self.rng.choice(BOUNDS))
        return self.rng.choice(
            (
                {"n": 1},
                {"n": None},
                {"n": AtMost(1)},
                {"name": "x"},
                {"name": None, "n": AtMost(2)},
                {"due": due},
                {"due": due, "n": AtMost(1)},
            )
        )

    def rev(self) -> int:
        """A rev that some row has, or nobody."""
        return self.rng.choice([*self.revs, 1])

    def append(self, log: str, topic: str) -> Append:
        """One or two entries, sometimes guarded, sometimes with an id that others use too."""
        entries = []
        for _ in range(self.rng.randint(1, 2)):
            self.ids += 1
            name = self.rng.choice((f"id{self.ids}", "shared", f"id{self.ids}", None))
            entries.append((name, "k", 0, NOW, b"{}"))
        if log == "feed" and self.rng.random() < 0.3:
            return Append(log, topic, entries, start=self.rng.choice((1, 2, 5, 6, 7)))
        return Append(log, topic, entries, self.rng.choice((None, None, 0, 1, 2)))


async def dump(engine: Engine, scope: str, base: int) -> Any:
    """Everything in the scope but revs, which are random by design; times as seen from `base`."""
    reads = [Scan("items"), Scan("pairs"), *[Heads(log, TOPICS) for log in LOGS]]
    reads += [Read(log, topic) for log in LOGS for topic in TOPICS]
    items, pairs, *lengths_and_logs = await engine.view(scope, reads)
    lengths, logs = lengths_and_logs[: len(LOGS)], lengths_and_logs[len(LOGS) :]
    rows = [
        (row.key, sorted([(name, in_steps(value, base)) for name, value in row.columns.items()], key=str))
        for row in (*items, *pairs)
    ]
    entries = [[(entry[0], *[in_steps(value, base) for value in entry[2:6]]) for entry in log] for log in logs]
    return rows, lengths, entries


async def attempt(engine: Engine, scope: str, move: Move) -> Outcome:
    """Applied with its seqs, a conflict, or taken rows."""
    if isinstance(move, Take):
        return "taken", await taken_keys(engine, scope, move)
    try:
        applied = await send(engine, scope, move)
    except Conflict:
        return "conflict", None
    return "applied", applied.seqs


class Replica:
    """The memory engine, brought to the state that a round began with. Revs are mapped from the real ones. The engine
    that is judged is of this `kind`."""

    def __init__(self, state: list[Op], revs: dict[str, int], kind: str) -> None:
        self.state = state
        self.revs = revs
        self.kind = kind

    def explains(self, order: tuple[int, ...], moves: list[Move], outcomes: list[Outcome], final: Any) -> bool:
        """Whether this order has these outcomes and this dump."""
        engine = drive(open_memory(SCHEMA, clock=ManualClock(START)))
        if self.state:
            drive(engine.transact("s", self.state))
        mapped = {}
        (rows,) = drive(engine.view("s", [Scan("items")]))
        for row in rows:
            mapped[self.revs[row.key[0]]] = row.rev
        for i in order:
            move, (kind, keys) = moves[i], outcomes[i]
            if isinstance(move, Take):
                loose = loose_rows(self.kind, i, moves, [result for _, result in outcomes], START)
                if kind != "taken" or not replay(engine, move, keys, loose, START):
                    return False
            elif drive(attempt(engine, "s", [_with_revs(op, mapped) for op in move])) != outcomes[i]:
                return False
        return bool(drive(dump(engine, "s", START)) == final)


def _with_revs(op: Op, mapped: dict[int, int]) -> Op:
    condition = getattr(op, "if_", None)
    if type(condition) is not int or condition not in mapped:
        return op
    return msgspec.structs.replace(op, if_=mapped[condition])


def serial_order(replica: Replica, moves: list[Move], outcomes: list[Outcome], final: Any) -> bool:
    """True if some order explains what was observed."""
    return any(replica.explains(order, moves, outcomes, final) for order in permutations(range(len(moves))))


def worker(pipe: Connection, kind: str, place: str) -> None:
    """A process that runs what it is sent: several transactions together, so that they share a batch. The first that it
    is sent says how wrong its clock is."""

    async def main() -> None:
        engine = await open_at(kind, place, system_clock, durability="process")
        loop = asyncio.get_running_loop()
        while True:
            request = await loop.run_in_executor(None, pipe.recv)
            if request is None:
                break
            scope, moves = request
            pipe.send(await asyncio.gather(*[attempt(engine, scope, move) for move in moves]))
        await engine.close()

    with wall_clock_off_by(pipe.recv()):
        asyncio.run(main())


class Arena:
    """Two processes and an observer on one database."""

    def __init__(self, kind: str, directory: Path, run_worker: Worker = worker) -> None:
        self.runner = asyncio.Runner()
        place = self.do(empty_place(kind, directory))
        self.kind = kind
        self.unjudged = 0
        self.engine: Engine = self.do(open_at(kind, place, system_clock, durability="process"))
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes = []
        for skew in SKEWS:
            here, there = context.Pipe()
            process = context.Process(target=run_worker, args=(there, kind, place), daemon=True)
            process.start()
            there.close()
            here.send(skew)
            self.pipes.append(here)
            self.processes.append(process)

    def round(self, seed: int) -> str | None:
        """Play one round; a line describing the violation, or None."""
        rng = random.Random(seed)
        scope = f"r{seed}"
        draw = Draw(rng, [])
        begun = time.monotonic()
        (base,) = self.do(self.engine.view(scope, [NOW]))
        state = _initial(draw)
        if state:
            self.do(self.engine.transact(scope, state))
        (rows,) = self.do(self.engine.view(scope, [Scan("items")]))
        revs = {row.key[0]: row.rev for row in rows}
        draw.revs = list(revs.values())
        moves = [draw.move() for _ in range(rng.randint(2, 5))]
        shares: list[list[int]] = [[], []]
        for i in range(len(moves)):
            shares[rng.randrange(2)].append(i)
        outcomes = self._run(scope, moves, shares)
        final = self.do(dump(self.engine, scope, base))
        problems = [] if seed % CHECK_EVERY else self.do(self.engine.check())
        self._clear(scope)
        if problems:
            return f"damage: seed {seed}\n  state {state}\n  {moves}\n  {problems}"
        if time.monotonic() - begun > LONGEST_ROUND:
            self.unjudged += 1
            return None
        if serial_order(Replica(state, revs, self.kind), moves, outcomes, final):
            return None
        return f"violation: seed {seed}\n  state {state}\n  {moves}\n  {outcomes}\n  {final}"

    def _run(self, scope: str, moves: list[Move], shares: list[list[int]]) -> list[Outcome]:
        outcomes: list[Outcome] = [("lost", None)] * len(moves)
        for pipe, share in zip(self.pipes, shares, strict=True):
            if share:
                pipe.send((scope, [moves[i] for i in share]))
        for pipe, share in zip(self.pipes, shares, strict=True):
            for i, outcome in zip(share, pipe.recv() if share else [], strict=True):
                outcomes[i] = outcome
        return outcomes

    def _clear(self, scope: str) -> None:
        ops: list[Op] = [Delete("items", (key,)) for key in KEYS]
        ops += [Delete("pairs", ("p", 1)), *[Drop(log, topic) for log in LOGS for topic in TOPICS]]
        self.do(self.engine.transact(scope, ops))

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """A blocking call."""
        return self.runner.run(coroutine)

    def close(self) -> None:
        """End the processes and the observer."""
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(30)
        self.do(self.engine.close())
        self.runner.close()


def _initial(draw: Draw) -> list[Op]:
    used: set[Any] = set()
    ops: list[Op] = []
    for key in KEYS:
        if draw.rng.random() < 0.6:
            columns = draw.columns()
            if columns["name"] in used:
                columns["name"] = None
            used.add(columns["name"])
            ops.append(Put("items", (key,), columns, None, ABSENT))
    if draw.rng.random() < 0.5:
        ops.append(Append("notes", "t", [("old", "k", 0, NOW, b"{}")]))
    for topic in TOPICS:
        if draw.rng.random() < 0.6:
            entries = [(f"old{n}", "k", n % 2, NOW, b"{}") for n in range(draw.rng.randint(1, 3))]
            ops.append(Append("feed", topic, entries, start=draw.rng.choice((1, 1, 4))))
    return ops


def play(kind: str, rounds: int, seed: int, run_worker: Worker = worker, *, most: int | None = None) -> list[str]:
    """Play `rounds` rounds beginning at `seed` on an engine; the violations found, of which `most` are enough."""
    with tempfile.TemporaryDirectory() as directory:
        arena = Arena(kind, Path(directory), run_worker)
        try:
            found = (violation for n in range(rounds) if (violation := arena.round(seed + n)) is not None)
            violations = list(islice(found, most))
            if arena.unjudged > rounds // 10:
                violations.append(f"{arena.unjudged} of {rounds} rounds were too slow to be judged")
            return violations
        finally:
            arena.close()


def play_again(kind: str, rounds: int, seed: int) -> str | None:
    """Play one round again and again, as chance decides who is first; the first violation, or None."""
    with tempfile.TemporaryDirectory() as directory:
        arena = Arena(kind, Path(directory))
        try:
            return next((violation for _ in range(rounds) if (violation := arena.round(seed)) is not None), None)
        finally:
            arena.close()


def main() -> int:
    """The long run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("sqlite", *SERVERS), default="sqlite")
    parser.add_argument("--rounds", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()
    told = f"--engine {arguments.engine} --rounds {arguments.rounds} --seed {arguments.seed}"
    print(f"serial order, two processes: {told}", flush=True)
    started = time.monotonic()
    violations = play(arguments.engine, arguments.rounds, arguments.seed)
    for violation in violations:
        print(violation)
    spent = time.monotonic() - started
    print(f"{arguments.rounds} rounds, {len(violations)} violations, {spent:.0f} s")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
