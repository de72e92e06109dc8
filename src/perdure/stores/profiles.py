"""`store.profiles`: JSON documents by owner and key, beside the threads: what is remembered about a user or an agent.

A document may have a time to live. The engine stamps when it expires and only the engine's clock decides whether it
has, so every read asks for that time in the same view. An expired document counts as absent everywhere; housekeeping
removes its row later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, NotFoundError, VersionConflict
from perdure.kernel import codec
from perdure.kernel.cursor import decode_cursor, encode_cursor
from perdure.kernel.ops import ABSENT, ANY, NOW, Condition, Delete, Get, Now, Op, Put, Row, Scan
from perdure.model.page import Page
from perdure.model.profile import Profile, ProfileChange
from perdure.model.state import Doc
from perdure.rules import checks
from perdure.rules.expiry import has_expired
from perdure.stores.context import Context
from perdure.stores.follower import Follower, check_timeout
from perdure.stores.paging import every
from perdure.stores.profile_following import ProfileSource
from perdure.stores.records import profile_from
from perdure.stores.results import row_after_put
from perdure.stores.retry import retry
from perdure.stores.waiting import Waiter

TABLE = "profiles"
Rows = list[Row]


class Profiles:
    """`store.profiles`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def find(self, owner: str, key: str) -> Profile | None:
        """The document, or None."""
        row, now = await self._row(_row_key(owner, key))
        return None if row is None or has_expired(row, now) else profile_from(row)

    async def get(self, owner: str, key: str) -> Profile:
        """The document; raises `NotFoundError`."""
        profile = await self.find(owner, key)
        if profile is None:
            raise NotFoundError(f"{owner!r} has no profile {key!r}")
        return profile

    async def list(
        self, owner: str, *, prefix: str | None = None, limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[Profile]:
        """The documents of an owner by key, all or those whose key begins with `prefix`.

        An owner without documents has an empty page. Keys are ordered by their UTF-8 bytes.
        """
        _check_owner(owner, prefix)
        checks.check_limit(limit)
        query = (TABLE, owner, prefix)
        after = None if cursor is None else decode_cursor(cursor, query, (str,))[0]
        rows = await self._live(owner, prefix, after, limit + 1)
        items = [profile_from(row) for row in rows[:limit]]
        return Page(items, encode_cursor(query, (items[-1].key,)) if len(rows) > limit else None)

    async def _live(self, owner: str, prefix: str | None, after: str | None, count: int) -> Rows:
        """The first rows behind a key that have not expired; expired ones never shorten the answer."""
        live: Rows = []
        # A scan begins behind a key, and the prefix itself may be one.
        first = [(owner, prefix)] if after is None and prefix is not None else []
        start, size = prefix if first else after, count
        while True:
            scan = Scan(TABLE, eq=(owner,), after=None if start is None else (owner, start), limit=size)
            now, exact, rows = await self._context.view(NOW, Get(TABLE, first), scan)
            page = [row for row in (*exact, *rows) if row is not None]
            inside = [row for row in page if prefix is None or str(row.key[1]).startswith(prefix)]
            live += [row for row in inside if not has_expired(row, now)]
            if len(live) >= count or len(rows) < size or len(inside) < len(page):
                return live[:count]
            first, start, size = [], str(rows[-1].key[1]), limits.PAGE_MAX

    async def iter(self, owner: str, *, prefix: str | None = None) -> AsyncIterator[Profile]:
        """Every document of the list, page by page."""
        async for profile in every_profile(self, owner, prefix):
            yield profile

    async def put(
        self, owner: str, key: str, value: Any, *, if_rev: int | None = None, ttl_ms: int | None = None
    ) -> Profile:
        """Write a document; the last writer wins, unless `if_rev` guards it.

        - `value`: any JSON value, or `Doc(value, schema)`.
        - `if_rev`: write only over that very revision (0: only if there is no document); otherwise `VersionConflict`.
        - `ttl_ms`: how long the document lives from now on, by the engine's clock. Every put decides this anew: one
          without `ttl_ms` makes the document permanent.
        """
        row_key = _row_key(owner, key)
        _check_guard(if_rev)
        expires = None if ttl_ms is None else Now(_check_ttl(ttl_ms))
        doc = value if isinstance(value, Doc) else Doc(value)
        checks.check_count(doc.schema, "schema", least=1)
        body = codec.encode_checked(doc.value, "value", limits.PROFILE_BYTES)

        async def attempt() -> Profile:
            row, now = await self._row(row_key)
            live = None if row is None or has_expired(row, now) else row
            _check_rev(row_key, live, if_rev)
            columns = {
                "schema": doc.schema,
                "created_at": NOW if live is None else live["created_at"],
                "updated_at": NOW,
                "expires_at": expires,
            }
            change = Put(TABLE, row_key, columns, body, ABSENT if row is None else row.rev)
            applied = await self._context.transact([change], profile_topic(owner))
            return profile_from(row_after_put(change, applied))

        return await retry("profile", f"{owner}/{key}", attempt)

    async def delete(self, owner: str, key: str, *, if_rev: int | None = None) -> None:
        """Remove a document; a missing one is ignored, unless `if_rev` is passed."""
        row_key = _row_key(owner, key)
        _check_guard(if_rev)
        if if_rev == 0:
            raise InvalidError("if_rev=0 means that there is no document, so there is nothing to delete")

        async def attempt() -> None:
            condition: Condition = ANY
            if if_rev is not None:
                row, now = await self._row(row_key)
                _check_rev(row_key, None if row is None or has_expired(row, now) else row, if_rev)
                condition = if_rev
            await self._context.transact([Delete(TABLE, row_key, condition)], profile_topic(owner))

        await retry("profile", f"{owner}/{key}", attempt)

    async def clear(self, owner: str) -> None:
        """Remove every document of an owner, some at a time; an owner that has none is fine.

        A document that another client writes at the same time may stay. If it is interrupted, call it again.
        """
        checks.check_id(owner, "owner")
        while True:
            rows: Rows = (await self._context.view_keys(Scan(TABLE, eq=(owner,), limit=limits.ERASE_ROWS)))[0]
            if rows:
                ops: list[Op] = [Delete(TABLE, row.key) for row in rows]
                await self._context.transact(ops, profile_topic(owner))
            if len(rows) < limits.ERASE_ROWS:
                return

    def follow(self, owner: str, *, prefix: str | None = None, timeout: float | None = None) -> Follower[ProfileChange]:
        """The owner's documents, then every change to them as it happens, deletion and expiry included.

        Of several quick changes to one document only the newest may be seen; its final state always is. Each round
        reads all documents of the owner (or of the prefix), so give owners with thousands of them a prefix. It does not
        end by itself: close it, from any task or thread, or let it end after `timeout` seconds without a change.
        """
        _check_owner(owner, prefix)
        check_timeout(timeout)
        source = ProfileSource(owner, lambda: every_profile(self, owner, prefix))
        return Follower(Waiter(self._context, profile_topic(owner)), source, timeout)

    async def _row(self, row_key: tuple[str, str]) -> tuple[Row | None, int]:
        """The row, expired or not, and the engine's time."""
        now, rows = await self._context.view(NOW, Get(TABLE, [row_key]))
        return rows[0], now


def every_profile(profiles: Profiles, owner: str, prefix: str | None) -> AsyncIterator[Profile]:
    """Every document of an owner, page by page."""
    return every(partial(profiles.list, owner, prefix=prefix, limit=limits.PAGE_MAX))


def profile_topic(owner: str) -> str:
    """The topic on which changes of an owner's documents are hinted."""
    return f"profile:{owner}"


def _row_key(owner: str, key: str) -> tuple[str, str]:
    return checks.check_id(owner, "owner"), checks.check_id(key, "key", most=limits.NAME_BYTES)


def _check_owner(owner: str, prefix: str | None) -> None:
    checks.check_id(owner, "owner")
    if prefix is not None:
        checks.check_id(prefix, "prefix", most=limits.NAME_BYTES)


def _check_guard(if_rev: int | None) -> None:
    if if_rev is not None:
        checks.check_rev(if_rev, "if_rev")


def _check_ttl(ttl_ms: int) -> int:
    if checks.check_count(ttl_ms, "ttl_ms", least=1) > limits.PROFILE_TTL_MS:
        raise InvalidError(
            f"ttl_ms must be at most {limits.PROFILE_TTL_MS}, not {ttl_ms}", hint="leave it out to keep the document"
        )
    return ttl_ms


def _check_rev(row_key: tuple[str, str], live: Row | None, if_rev: int | None) -> None:
    """Compare a guard with the document that is there now."""
    actual = 0 if live is None else live.rev
    if if_rev is not None and if_rev != actual:
        owner, key = row_key
        raise VersionConflict(
            f"profile {key!r} of {owner!r} changed since it was read",
            expected=if_rev,
            actual=actual,
            hint="read it again and repeat the change",
        )
