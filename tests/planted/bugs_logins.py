"""Bugs in logins, and in what becomes of servers that are not what they seem; see `bugs` for what a bug is."""

from __future__ import annotations

from tests.planted.bug import Bug

LOGIN_BUGS = (
    Bug(
        "postgres: whoever asks gets the password in clear",
        "engines/postgres/connections/login.py",
        "cleartext=self.verified or self._loop.allow_cleartext",
        "cleartext=self.verified or self.host is not None",
        ("test:tests/rogue/test_postgres.py::test_a_password_is_not_sent_in_clear",),
        hangs=True,
    ),
    Bug(
        "postgres: encrypted is taken for verified",
        "engines/postgres/connections/login.py",
        "self.verified = tls is not None and tls.context.verify_mode == ssl.CERT_REQUIRED",
        "self.verified = tls is not None",
        ("test:tests/rogue/test_postgres.py::test_a_password_is_not_sent_in_clear",),
        hangs=True,
    ),
    Bug(
        "postgres: a login may go on out of turn",
        "engines/postgres/connections/message_guard.py",
        "or (code in _AFTER and self._asked not in _AFTER[code])",
        "or (code in _AFTER and self._asked == code)",
        ("test:tests/rogue/test_postgres.py::test_a_login_that_goes_wrong",),
    ),
    Bug(
        "mysql: the password can be sent",
        "engines/mysql/connections/login.py",
        "return HiddenPassword(target.password, target.display_url)",
        "return target.password.encode()",
        ("test:tests/rogue/test_mysql.py::test_a_password_is_not_sent_in_clear",),
    ),
    Bug(
        "mysql: a client's certificate turns verification off",
        "engines/mysql/target.py",
        'return self.ssl == "verify" or self.ssl_ca is not None or self.ssl_cert is not None',
        'return self.ssl == "verify" or self.ssl_ca is not None',
        ("test:tests/rogue/test_mysql.py::test_who_shows_a_certificate_wants_to_see_one",),
        hangs=True,
    ),
    Bug(
        "mysql: a request for a file comes through as the driver's own error",
        "engines/mysql/connections/connection.py",
        "        except Exception as error:\n            # The driver's own words",
        "        except LookupError as error:\n            # The driver's own words",
        ("test:tests/rogue/test_mysql.py::test_an_answer_that_makes_no_sense",),
    ),
    Bug(
        "the password that a server repeats is shown",
        "engines/shared/server_answers.py",
        "            self._hide_secret(error)\n",
        "            pass\n",
        ("test:tests/rogue/test_mysql.py::test_an_answer_that_makes_no_sense",),
    ),
    Bug(
        "health says nothing of a connection without TLS",
        "kernel/transport.py",
        'if level == "verified" or host is None or is_local(host):',
        'if level != "encrypted" or host is None or is_local(host):',
        ("test:tests/unit/test_transport.py::test_what_leaves_it",),
    ),
)
