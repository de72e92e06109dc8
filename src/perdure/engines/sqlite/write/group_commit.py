"""Group commit: a batch of jobs becomes one transaction, and each job gets its own outcome.

A batch first runs without savepoints: a member that fails before it wrote anything needs no rollback. Only if a member
fails after it wrote is the batch rolled back and run again with a savepoint around each member (which costs every
member copies of the pages it touches). If SQLite itself rolls the transaction back, members run one by one.

    batch a, b, c; b conflicts in its second operation, after it wrote its first:
    1. BEGIN, a, b fails                                          → ROLLBACK
    2. BEGIN, (a), (b fails → ROLLBACK TO), (c), COMMIT           → a and c have results, b its conflict

A commit that fails with an I/O error has an unknown outcome; a failed sync is never retried on the same connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from perdure import failpoints
from perdure.engines.shared.events import EngineLog
from perdure.engines.sql.embedded.filled import FilledSession
from perdure.engines.sqlite.connections.connect import retry_busy
from perdure.engines.sqlite.errors import BUSY, DRIVER_ERRORS, FULL, READONLY, is_busy, primary_code, translate
from perdure.engines.sqlite.target import DatabaseFile
from perdure.engines.sqlite.write.checkpoints import Checkpointer
from perdure.engines.sqlite.write.jobs import Job, unknown_outcome
from perdure.errors import UnavailableError

# These fail while frames are being written, before the one that would make them a commit.
_CERTAINLY_NOT_WRITTEN = (FULL, BUSY, READONLY)


class Committer:
    """Owns the writing connection; used by one thread at a time."""

    def __init__(self, open_session: Callable[[], FilledSession], file: DatabaseFile) -> None:
        self.path = file.path
        self._events = EngineLog("sqlite", file.path)
        self.checkpoints = Checkpointer()
        self._file = file
        self._open_session = open_session
        self._session: FilledSession | None = open_session()
        # The connection has read its file, so it has the log open, and only an intruder removes that.
        self._log = file.log_identity()
        self._changes_counted = self._session.connection.total_changes

    @property
    def session(self) -> FilledSession:
        """The connection, opened again if the last one was abandoned."""
        if self._session is None:
            self._file.refuse_if_gone()
            self._session = self._open_session()
            self._events.connected()
            self._log = None
            self._changes_counted = self._session.connection.total_changes
        return self._session

    def commit(self, batch: Sequence[Job]) -> None:
        """Set the result or the error of every job; raises only an interrupt."""
        try:
            if len(batch) == 1:
                self._commit_one(batch[0])
            elif not self._commit_together(batch, isolated=False) and not self._commit_together(batch, isolated=True):
                for job in batch:
                    self._commit_one(job)
        except BaseException:
            self._abandon_connection()
            raise

    def _commit_one(self, job: Job) -> None:
        try:
            session = self._begin()
            job.error = None
            job.result = job.run(session)
            if failpoints.ARMED:
                failpoints.hit("sqlite.after_member")
        except Exception as error:  # noqa: BLE001 - any failure is the outcome of this job
            self._refuse(job, error)
            self._rollback()
        else:
            self._finish((job,), session)

    def _commit_together(self, batch: Sequence[Job], *, isolated: bool) -> bool:
        """Run the batch in one transaction; False if it was rolled back and must be run differently."""
        try:
            session = self._begin()
        except Exception as error:  # noqa: BLE001 - no transaction began: every job gets the error
            for job in batch:
                self._refuse(job, error)
            return True
        connection, execute = session.connection, session.cursor.execute
        for job in batch:
            changes = connection.total_changes
            if isolated:
                execute("SAVEPOINT member")
            try:
                job.error = None
                job.result = job.run(session)
                if failpoints.ARMED:
                    failpoints.hit("sqlite.after_member")
            except Exception as error:  # noqa: BLE001 - one member's failure is its own
                self._refuse(job, error)
                wrote = connection.total_changes != changes
                if not connection.in_transaction or (wrote and not isolated):
                    self._rollback()
                    return False
                if isolated:
                    execute("ROLLBACK TO member")
            if isolated:
                execute("RELEASE member")
        self._finish(batch, session)
        return True

    def _begin(self) -> FilledSession:
        session = self._session or self.session
        # What is written to a removed file is lost when this process ends, so it must not be acknowledged.
        self._file.refuse_if_gone(self._log)
        if failpoints.ARMED:
            failpoints.hit("sqlite.before_begin")
        try:
            session.cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            retry_busy(lambda: session.cursor.execute("BEGIN IMMEDIATE"), self.path)
        if self._log is None:
            self._log = self._file.log_identity()
        return session

    def _refuse(self, job: Job, error: Exception) -> None:
        job.error = translate(error, self.path) if isinstance(error, DRIVER_ERRORS) else error

    def _finish(self, batch: Sequence[Job], session: FilledSession) -> None:
        try:
            if failpoints.ARMED:
                failpoints.hit("sqlite.before_commit")
            session.cursor.execute("COMMIT")
            if failpoints.ARMED:
                failpoints.hit("sqlite.after_commit")
        except (sqlite3.Error, OSError) as error:
            self._commit_failed(batch, error)
            return
        changes = session.connection.total_changes
        self.checkpoints.note_commit(changes - self._changes_counted)
        self._changes_counted = changes

    def _commit_failed(self, batch: Sequence[Job], error: Exception) -> None:
        certain = primary_code(error) in _CERTAINLY_NOT_WRITTEN
        if certain:
            self._rollback()
        else:
            self._events.lost(error)
            self._abandon_connection()
        for job in batch:
            if job.error is not None:
                # It failed because of what it read, which may have been part of the failed commit.
                job.error = UnavailableError("the transaction could not be decided: the commit it shared failed")
            elif certain:
                job.error = translate(error, self.path)
            else:
                job.error = unknown_outcome(job, f"the commit failed with an I/O error ({error})")

    def _rollback(self) -> None:
        session = self._session
        if session is None or not session.connection.in_transaction:
            return
        try:
            session.cursor.execute("ROLLBACK")
        except sqlite3.Error:
            self._abandon_connection()

    def _abandon_connection(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            # Closing alone keeps the transaction, and its lock, alive while anything refers to one of its statements,
            # as the traceback of an interrupt does.
            session.connection.rollback()
        except sqlite3.Error:
            pass  # closing ends it
        finally:
            session.connection.close()

    def checkpoint(self, *, idle: bool) -> None:
        """Copy the log into the file; `idle` when no commit waits."""
        self.checkpoints.run(self.session.connection, idle=idle)

    def gone(self) -> str | None:
        """Human-readable: the file or its log is no longer where it was opened, so commits are refused."""
        return self._file.gone(None if self._session is None else self._log, at_once=True)

    def data_version(self) -> int:
        """A number that changes when another connection commits, and only then."""
        (version,) = self.session.cursor.execute("PRAGMA data_version").fetchone()
        return int(version)

    def close(self) -> None:
        """Copy the whole log into the file and close the connection."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            session.cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            # Another process may be reading or writing: then the log stays, and nothing is lost.
            self.checkpoints.problem = str(error)
        session.connection.close()
