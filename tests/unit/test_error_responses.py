"""What a web application answers: `http_status` and `to_json` of every error."""

from __future__ import annotations

import json

import pytest

import perdure
from perdure import errors

STATUSES = {
    "IncompleteStream": 422,
    "InvalidError": 422,
    "NotFoundError": 404,
    "CursorExpired": 410,
    "UnavailableError": 503,
    "OutcomeUnknown": 503,
    "CorruptError": 500,
    "UnsupportedError": 500,
    "PerdureError": 500,
}
EXTRA = {"CorruptError": {"where": "thread 't'"}, "OutcomeUnknown": {"rev": 5, "key": "k"}}
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, perdure.PerdureError)]


def test_every_conflict_is_a_409() -> None:
    assert {kind.__name__ for kind in KINDS if kind.http_status == 409} == {
        kind.__name__ for kind in KINDS if issubclass(kind, perdure.ConflictError)
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_a_response(kind: type[perdure.PerdureError]) -> None:
    secret = "at db.internal:5432"
    error = kind(secret, hint="look into /srv/chat.db", **EXTRA.get(kind.__name__, {}))
    body = json.loads(json.dumps(error.to_json()))
    assert error.http_status == STATUSES.get(kind.__name__, 409)
    assert list(body) == ["code", "message", "hint", "retryable"]
    assert (body["code"], body["retryable"]) == (kind.code, error.retryable)
    if error.http_status < 500:
        assert (body["message"], body["hint"]) == (error.message, error.hint)
    else:
        assert body["hint"] is None
        assert set(body["message"].split()).isdisjoint(secret.split())


def test_what_an_instance_says_of_retries_counts() -> None:
    assert perdure.UnavailableError("closed", retryable=False).to_json()["retryable"] is False
