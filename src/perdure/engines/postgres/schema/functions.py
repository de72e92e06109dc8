"""The two small functions that live beside the tables: one that refuses, one that carries operations out step by step.

`refuse` raises with an SQLSTATE of ours, names the operation, and reads what is there *now*: inside a volatile function
every statement sees what was committed before it, while the statement that calls it still sees its own beginning.

`carry_out` exists for the same reason. Absence cannot be locked, and one statement has one snapshot: deleting whatever
is there, dropping a partition, or passing a unique value on within a transaction is only right if each step sees what
was committed while an earlier one waited. Its steps are statements built from the declarations; values come as
arguments and never enter their text. Both are replaced as they stand by whoever migrates the schema.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.engines.postgres.schema.tables import quote

CONDITION, LENGTH, UNIQUE = "PD001", "PD002", "PD003"
"""The SQLSTATEs of a refusal; the error's column name is the operation's place, its detail what was observed."""

_REFUSE = """CREATE OR REPLACE FUNCTION {place}."refuse"(state text, op integer, observe text, scope text, key text[])
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $perdure$
DECLARE
  seen text;
BEGIN
  IF observe IS NOT NULL THEN
    EXECUTE observe INTO seen USING scope, key;
  END IF;
  RAISE EXCEPTION USING ERRCODE = state, MESSAGE = format('operation %s of a transaction was refused', op),
    COLUMN = op::text, DETAIL = coalesce(seen, '');
END $perdure$"""

_CARRY_OUT = """CREATE OR REPLACE FUNCTION {place}."carry_out"(
  scope text, rev bigint, clock bigint, steps jsonb, given text[])
RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $perdure$
DECLARE
  step jsonb;
  found bigint;
  claims text[];
  present boolean;
  lasts bigint[] := ARRAY[]::bigint[];
  held jsonb := '[]';
  taken jsonb := '[]';
  clash jsonb;
BEGIN
  FOR step IN SELECT value FROM jsonb_array_elements(steps) LOOP
    found := NULL;
    IF step->>'claims' IS NULL THEN
      EXECUTE step->>'run' INTO found USING scope, rev, clock, given, lasts;
      IF found IS NULL AND step ? 'state' THEN
        PERFORM {place}."refuse"(step->>'state', (step->>'op')::integer, step->>'observe', scope,
          ARRAY(SELECT given[n::integer] FROM jsonb_array_elements_text(step->'key') AS k(n)));
      END IF;
      IF step ? 'held' AND NOT present AND found = 2 THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE = 'a row appeared between two steps';
      END IF;
      IF step ? 'appends' THEN
        lasts := lasts || found;
      END IF;
    ELSE
      claims := NULL;
      EXECUTE step->>'run' INTO claims USING scope, rev, clock, given, lasts;
      IF step->>'claims' = 'held' THEN
        present := claims IS NOT NULL;
        held := held || jsonb_build_array(jsonb_build_array(step->'op', coalesce(to_jsonb(claims), '[]')));
      ELSE
        taken := taken || jsonb_build_array(jsonb_build_array(step->'op', coalesce(to_jsonb(claims), '[]')));
      END IF;
    END IF;
  END LOOP;
  SELECT jsonb_build_array(t.value->0, c.value) INTO clash
    FROM jsonb_array_elements(taken) t, jsonb_array_elements_text(t.value->1) c, jsonb_array_elements(held) h
    WHERE c.value IS NOT NULL AND t.value->0 <> h.value->0 AND h.value->1 ? c.value LIMIT 1;
  IF clash IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'PD003', MESSAGE = 'a unique value cannot pass from row to row in one transaction',
      COLUMN = clash->>0, DETAIL = clash->>1;
  END IF;
  RETURN lasts;
END $perdure$"""


def create_functions(place: str) -> Iterator[str]:
    """The statements that make (or renew) the functions in the PostgreSQL schema `place`."""
    for text in (_REFUSE, _CARRY_OUT):
        yield text.format(place=quote(place))
