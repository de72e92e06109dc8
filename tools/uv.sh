#!/bin/sh
# Run uv, found or fetched, with a cache that can be written to: the usual one, or one in the clone
# where there is no home (a service account, a container with a foreign user).
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
uv=$("$here/tools/find-uv.sh")
cache=${UV_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/uv}
if ! { mkdir -p "$cache" && test -w "$cache"; } 2>/dev/null; then
    cache="$here/.uv/cache"
fi
export UV_CACHE_DIR="$cache"
exec "$uv" "$@"
