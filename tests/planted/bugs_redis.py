"""Bugs in what becomes of Redis servers and data sets that are not what they seem; see `bugs` for what a bug is."""

from __future__ import annotations

from tests.planted.bug import Bug

REDIS_BUGS = (
    Bug(
        "redis: a map of the new protocol is read as it is",
        "engines/redis/connections/borrowed_client.py",
        "return [normal(value) for pair in reply.items() for value in pair]",
        "return [normal(value) for value in reply]",
        ("test:tests/engines/test_redis_pool.py::test_replies_of_the_new_protocol_read_as_those_of_the_old",),
    ),
    Bug(
        "redis: a listener takes the only connection of a caller's client",
        "engines/redis/connections/borrowed_client.py",
        "self.listens = most > 1",
        "self.listens = most > 0",
        ("test:tests/engines/test_redis_pool.py::test_a_client_with_one_connection_polls",),
    ),
    Bug(
        "redis: the prefix is a pattern",
        "engines/redis/health/audit.py",
        "pattern = literal(self._layout.prefix.encode())",
        "pattern = self._layout.prefix.encode()",
        ("test:tests/engines/test_redis_prepared.py::test_a_prefix_is_no_pattern",),
    ),
    Bug(
        "redis: anything that int() reads is a number",
        "engines/redis/read/decode.py",
        "if str(number) == value and -MOST <= number <= MOST:",
        "if -MOST <= number <= MOST:",
        ("test:tests/engines/test_redis_prepared.py::test_an_integer_that_is_none_is_named_with_its_key_and_column",),
    ),
    Bug(
        "redis: a sum beyond 2^53 is rounded",
        "engines/redis/write/row_lua.py",
        ">= 9007199254740992 then",
        ">= 1e300 then",
        ("test:tests/engines/test_redis_prepared.py::test_a_sum_that_a_double_cannot_hold_is_refused_whole",),
    ),
    Bug(
        "redis: a single server may redirect",
        "engines/redis/connections/routing.py",
        """            return await self._pool(self.target.addresses[0]).request(packed, room, then)
""",
        """            try:
                return await self._pool(self.target.addresses[0]).request(packed, room, then)
            except Redirection as moved:
                return await self._pool(self._redirected(moved, self.target.addresses[0])).request(packed, room, then)
""",
        ("test:tests/rogue/test_redis_rogue.py::test_a_single_server_cannot_send_its_clients_elsewhere",),
    ),
    Bug(
        "redis: an answer may nest as deep as it likes",
        "engines/redis/connections/resp.py",
        "if len(self._open) >= _DEEPEST:",
        "if len(self._open) < 0:",
        ("test:tests/engines/test_redis_answers.py::test_what_is_not_of_the_protocol_is_refused_at_once",),
    ),
    Bug(
        "redis: what a server repeats is shown",
        "engines/redis/connections/failures.py",
        "return text.replace(secret, HIDDEN)",
        "return text",
        (
            "test:tests/rogue/test_redis_rogue.py::test_sentinels_that_answer_wrongly",
            "test:tests/engines/test_redis_answers.py::test_a_password_is_never_repeated",
        ),
    ),
    Bug(
        "redis: entries of a log that was rewritten are taken",
        "engines/redis/read/view.py",
        "if entries is None or (entries and not decoder.is_same(entries[-1], location.last)):",
        "if entries is None:",
        (
            "test:tests/engines/test_redis_direct.py::test_a_log_that_was_rewritten_between_script_and_fetch_is_read_again",
        ),
    ),
    Bug(
        "redis: a listener is held to the deadline of its login",
        "engines/redis/connections/connection.py",
        "            self._watchdog.cancel()\n            self._watchdog = None\n        while",
        "            pass\n        while",
        ("test:tests/engines/test_redis_connections.py::test_a_listener_to_which_nothing_is_said_stays_connected",),
    ),
)
