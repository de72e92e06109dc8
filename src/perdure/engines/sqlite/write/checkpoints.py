"""Checkpoints keep the log short: when it is copied into the file, and when it must restart from its beginning.

A copied log restarts by itself, as soon as a writer finds no reader that uses it. With readers that never pause there
is no such moment, and the log would grow without end. So beyond `RESTART_FRAMES` the checkpoint waits for one
(`RESTART`): once everything is copied, new readers read the file and leave the log alone, and the checkpoint waits only
for those that had begun before. No commit runs in that time, so the wait is short, and shorter while commits wait.
"""

from __future__ import annotations

import sqlite3

# Checkpoint when about this many frames are in the log: 8 MB (16 MB in a file with pages of 4 KB), some milliseconds of
# work. Most frames are new versions of the same few hot pages, of which only the last is copied, so a longer log is
# less work per commit.
CHECKPOINT_FRAMES = 4_000
# A log of this length did not restart after its last checkpoint: readers keep it in use.
RESTART_FRAMES = 7_000
# If readers did not finish in time, try again after this many more frames.
_RETRY_FRAMES = 1_000
# From here on (24 MB) keeping the log short is worth a longer wait.
_URGENT_FRAMES = 12_000
_WAIT_MS, _IDLE_WAIT_MS, _URGENT_WAIT_MS = 20, 100, 200
# Pages that a transaction writes besides one per changed row: inner pages of trees, index leaves, the first page.
_FRAMES_PER_BATCH = 6


class Checkpointer:
    """Decides when a checkpoint is due, by an estimate: SQLite reports the log's length only during a checkpoint.

    The estimate is changed rows times frames per row, corrected at each checkpoint. If 1,000 changes made 3,000 frames,
    the next checkpoint is due after 1,333 changes, at about 4,000 frames.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self.due = False
        """True when the log has probably grown enough."""
        self._growth = 0.0
        self._frames_per_growth = 1.0
        self._last_frames = 0
        self._restarted = True
        self._allowance = CHECKPOINT_FRAMES

    def note_commit(self, changes: int) -> None:
        """A batch that changed this many rows was committed."""
        self._growth += changes + _FRAMES_PER_BATCH
        self.due = self._growth * self._frames_per_growth >= self._allowance

    def run(self, connection: sqlite3.Connection, *, idle: bool) -> None:
        """Copy the log into the file, as far as readers allow, and restart a long log.

        A failure loses nothing: the log keeps everything and the next checkpoint copies it again; `health` reports it.
        """
        try:
            frames, whole = _checkpoint(connection, "PASSIVE")
            restarted = whole
            if frames >= RESTART_FRAMES:
                restarted = self._restart(connection, frames, idle=idle)
            self.problem = None
        except sqlite3.Error as error:
            frames, restarted = -1, False
            self.problem = str(error)
        if frames >= 0:
            self._learn(frames)
            self._last_frames, self._restarted = frames, restarted
        self._growth = 0.0
        stuck = frames >= RESTART_FRAMES and not restarted
        self._allowance = _RETRY_FRAMES if stuck else CHECKPOINT_FRAMES
        self.due = False

    def _restart(self, connection: sqlite3.Connection, frames: int, *, idle: bool) -> bool:
        patience = _URGENT_WAIT_MS if frames >= _URGENT_FRAMES else _IDLE_WAIT_MS if idle else _WAIT_MS
        connection.execute(f"PRAGMA busy_timeout={patience}")
        try:
            _, whole = _checkpoint(connection, "RESTART")
        finally:
            connection.execute("PRAGMA busy_timeout=0")
        return whole

    def _learn(self, frames: int) -> None:
        """Correct the estimate by the real number of frames."""
        before = 0 if self._restarted and frames < RESTART_FRAMES else self._last_frames
        new_frames = frames - before if frames > before else frames
        self._frames_per_growth = min(max(new_frames / max(self._growth, 1.0), 0.5), 100.0)


def _checkpoint(connection: sqlite3.Connection, mode: str) -> tuple[int, bool]:
    """Frames in the log (-1 during another connection's checkpoint), and whether all of them were copied."""
    busy, frames, copied = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return frames, not busy and copied == frames
