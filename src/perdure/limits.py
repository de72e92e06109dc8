"""Every limit of the product, on one screen: sizes, counts, timeouts, batch sizes.

Limits are checked above the engines, before any I/O, so that all engines refuse the same requests with the same error.
"""

from __future__ import annotations

from typing import Final

ID_BYTES: Final = 256
SCOPE_BYTES: Final = 64
NAME_BYTES: Final = 256
TITLE_BYTES: Final = 4_096

PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 200

MESSAGE_BYTES: Final = 4 * 1024 * 1024
COMMIT_BYTES: Final = 8 * 1024 * 1024
COMMIT_MESSAGES: Final = 1_000
BLOCKS_PER_MESSAGE: Final = 10_000
"""Blocks of one message, those inside its tool results included: ten times what long real ones hold. Each costs a
reader some microseconds, whatever it weighs, and 4 MiB have room for 300,000 of them."""
BUFFER_MS: Final = 24 * 3600 * 1000
"""How long a buffered writer may hold messages back."""
STATE_BYTES: Final = 256 * 1024
PROFILE_BYTES: Final = 256 * 1024
PROFILE_TTL_MS: Final = 100 * 365 * 24 * 3600 * 1000
"""The longest life of a profile document, about a hundred years. An owner may have any number of documents: no call
reads or writes all of them at once."""
CUSTOM_BYTES: Final = 64 * 1024
RUN_BYTES: Final = 1024 * 1024
RUN_END_BYTES: Final = 64 * 1024
"""A reserve beyond `RUN_BYTES` that only the end of a run may use, so that every run can end."""
CALL_ANSWER_BYTES: Final = 4_096
"""The text of `answer_calls`, so that the results of a thousand calls fit into one commit."""
JSON_DEPTH: Final = 64
JSON_INTEGER_BITS: Final = 4_096

BRANCHES_PER_THREAD: Final = 10_000
TREE_MESSAGES: Final = 100_000
"""Messages of a thread that `branches.tree` reads at once: about 50 MB in memory."""
PENDING_PER_THREAD: Final = 1_000
ANCESTORS: Final = 256
CASCADE_THREADS: Final = 1_000
"""How many threads one transaction of a deletion changes; a larger set is reached in chunks."""
DISPERSED_THREADS: Final = 100
"""How many children one such chunk holds."""
CHILDREN_NAMED: Final = 10
"""How many children the error of a deletion that they prevent names."""

INTEGER_MAX: Final = 2**52
"""Integers in declared columns stay within ±2^52, which every engine keeps exactly (Redis scripts use doubles)."""
CLOCK_OFFSET_MS: Final = 2**51
"""How far `Now` may be from the engine's time, so that their sum stays within `INTEGER_MAX`."""

CONTENTION_ATTEMPTS: Final = 256
"""How often a store repeats a read or a transaction whose guess was stale: each try that loses has lost to another's
success, so only a thread that changes this often during one call raises `ConflictError`."""

RETRY_MS: Final = 600_000
"""The longest time for which calls may be repeated while the store is unavailable: the largest `retry_ms`."""
WORKER_JOBS: Final = 1_000
"""How many runs one `workers.serve` may work on at the same time."""
WORKER_RETRIES: Final = 100
"""How often in a row a worker may call a handler again after an error that may pass."""
WORKER_TAKEOVERS: Final = 100
"""How many workers in a row may be lost with a run at most: the largest `max_takeovers`."""
WORKER_MS: Final = 24 * 3600 * 1000
"""The longest `poll_ms`, `lease_ms` and `drain_ms` of a worker."""
LEASE_LEAST_MS: Final = 500
"""The shortest lease of a worker: it is renewed three times within it."""
KEY_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
BUSY_TIMEOUT_MS: Final = 10_000
WATCH_POLL_MS: Final = 20
FOLLOW_POLL_MS: Final = 1_000
FOLLOW_REST_MS: Final = 100
"""How often the threads that are followed are all looked at: once a second, and at most this often while the engine
says that anything may have changed."""
FOLLOW_TAIL: Final = 256
FOLLOW_TAIL_BYTES: Final = 1024 * 1024
"""How many of a thread's newest messages its followers share, and how many bytes."""
FOLLOW_TAILS_BYTES: Final = 64 * 1024 * 1024
"""How many bytes the followers of all threads share."""
FOLLOW_READS: Final = 16
"""How many followers may read for themselves at once, because they are behind what is shared."""
HINTS_HELD: Final = 4_096
"""How many topics a subscription remembers between two waits; more become "everything"."""
BATCH_ROWS: Final = 500
"""How many rows an import writes, a copy reads, or a long list of branches asks for at once."""
TRIM_ENTRIES: Final = 1_000
TRIM_PIECE: Final = 100
"""How many entries of a log one `Trim` may remove, and how many a log is trimmed by at once: SQLite's other writers
wait for some milliseconds of it."""
ERASE_ROWS: Final = 20
ERASE_ENTRIES: Final = 100
"""How much of a deleted thread one transaction erases: SQLite's other writers wait for some milliseconds of it."""
CLEANUP_ROWS: Final = 20
"""How many expired keys or tombstones one transaction of housekeeping deletes, and how many it looks at."""
CLEANUP_INTERVAL_MS: Final = 600_000
CLEANUP_RETRY_MS: Final = 10_000
"""How long a scope in use is left alone after it was cleaned, and after an attempt that failed."""
IMPORT_LEASE_MS: Final = 60_000
"""How long an import may be silent before a sweep takes what it has written so far for left behind."""
IMPORT_AHEAD_MS: Final = 24 * 3600 * 1000
"""How far in the future, by the store's own clock, a time in an import may lie: clocks differ, but not by more."""
IMPORT_NUMBER_MAX: Final = 2**51
"""The largest fence, revision or first seq that an import accepts: half of the range stays free above it. It has room
for fences that are times in microseconds."""
SLOW_COMMIT_MS: Final = 1_000
"""A commit that takes this long is logged as a warning."""
LOG_AGAIN_MS: Final = 60_000
"""How long a warning that every write would repeat is not logged again."""
DURABILITY_AGE_MS: Final = 1_000
"""How old a reading of a server's settings may be for a receipt to rest on it."""
DURABILITY_PATIENCE_MS: Final = 5_000
"""How long such a reading may take."""
IDLE_CHECK_MS: Final = 15_000
"""A connection to a server that was idle for longer must answer a PING before it is used: a firewall may have dropped
it without a word."""
SIGN_OF_LIFE_MS: Final = 1_000
"""How long that answer may take."""
LOGIN_BYTES: Final = 1024 * 1024
"""How much a PostgreSQL or MySQL server may send before a client is logged in."""
SERVER_TEXT_BYTES: Final = 64 * 1024
"""How long an error, a notice or a setting of a PostgreSQL server may be."""
ANSWER_BYTES: Final = 1024 * 1024 * 1024
"""How much it may send in answer to one packet; the largest page of the largest messages is 800 MiB."""
