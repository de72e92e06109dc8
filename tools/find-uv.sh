#!/bin/sh
# Print the path of a working uv, fetching a private copy into .uv/ when the machine has none.
# Only Python 3.11+ is needed: the copy comes with pip, from a venv, or where Debian has split
# the venv module away, with the system's pip into a plain folder.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
private="$here/.uv"

# A shim may exist and still not run, so ask for the version rather than for the name.
if uv --version >/dev/null 2>&1; then
    command -v uv
    exit 0
fi
if "$private/bin/uv" --version >/dev/null 2>&1; then
    echo "$private/bin/uv"
    exit 0
fi

echo "uv is not on the PATH; fetching a private copy into .uv/" >&2
rm -rf "$private"
if ! { python3 -m venv "$private" && "$private/bin/python" -m pip install --quiet uv; } >&2; then
    rm -rf "$private"
    python3 -m pip install --quiet --target "$private" uv >&2
fi
if ! "$private/bin/uv" --version >/dev/null 2>&1; then
    echo "uv could not be fetched. Install it by hand (https://docs.astral.sh/uv/), then run make again." >&2
    exit 1
fi
echo "$private/bin/uv"
