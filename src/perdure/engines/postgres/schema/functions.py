"""The two server-side functions of a store: `refuse`, and `run_steps`, which runs operations one step at a time.

`refuse` raises one of our SQLSTATEs, names the operation, and reads the row as it is *now*: inside a volatile function
every statement sees what was committed before it, while the statement that calls it still sees its own snapshot.

`run_steps` exists for the same reason. An absent row cannot be locked, and one statement has one snapshot: deleting a
row that may be absent or dropping a partition is only right if each step sees what was committed while an earlier one
waited. Its steps are statements built from the declarations; values are arguments and never enter their text.

The names carry a version. Builds of several releases may share a database, and a process that is running calls the
functions it was built with. So a function never changes under its name: a change of arguments or behaviour is a new
version, created next to the old ones, which stay.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.engines.sql.ddl import quote

CONDITION, LENGTH = "PD001", "PD002"
"""The SQLSTATEs of a refusal; the error's column name is the operation's position, its detail what was observed."""

FUNCTIONS_VERSION = "v2"
_REFUSE_NAME, _RUN_STEPS_NAME = f"refuse_{FUNCTIONS_VERSION}", f"run_steps_{FUNCTIONS_VERSION}"

_REFUSE = """CREATE OR REPLACE FUNCTION {refuse}(state text, op integer, observe text, scope text, key text[])
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $perdure$
DECLARE
  observed text;
BEGIN
  IF observe IS NOT NULL THEN
    EXECUTE observe INTO observed USING scope, key;
  END IF;
  RAISE EXCEPTION USING ERRCODE = state, MESSAGE = format('operation %s of a transaction was refused', op),
    COLUMN = op::text, DETAIL = coalesce(observed, '');
END $perdure$"""

_RUN_STEPS = """CREATE OR REPLACE FUNCTION {run_steps}(
  scope text, rev bigint, clock bigint, steps jsonb, arguments text[])
RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $perdure$
DECLARE
  step jsonb;
  result bigint;
  lasts bigint[] := ARRAY[]::bigint[];
BEGIN
  FOR step IN SELECT value FROM jsonb_array_elements(steps) LOOP
    result := NULL;
    EXECUTE step->>'run' INTO result USING scope, rev, clock, arguments, lasts;
    IF result IS NULL AND step ? 'state' THEN
      PERFORM {refuse}(step->>'state', (step->>'op')::integer, step->>'observe', scope,
        ARRAY(SELECT arguments[n::integer] FROM jsonb_array_elements_text(step->'key') AS k(n)));
    END IF;
    IF step ? 'appends' THEN
      lasts := lasts || result;
    END IF;
  END LOOP;
  RETURN lasts;
END $perdure$"""


def refuse(pg_schema: str) -> str:
    """The name of the refusing function, with its schema."""
    return f"{quote(pg_schema)}.{quote(_REFUSE_NAME)}"


def run_steps(pg_schema: str) -> str:
    """The name of the function that runs steps, with its schema."""
    return f"{quote(pg_schema)}.{quote(_RUN_STEPS_NAME)}"


def create_functions(pg_schema: str) -> Iterator[str]:
    """The statements that create this version's functions; those of other versions are left alone."""
    for text in (_REFUSE, _RUN_STEPS):
        yield text.format(refuse=refuse(pg_schema), run_steps=run_steps(pg_schema))
