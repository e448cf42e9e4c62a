#!/bin/sh
set -eu
# Keeps a value under a name, in the database of the tests.
set -- "${DATABASE:?}/$1" "${2:-}"
[ -z "$2" ] || echo "$2" >"$1"
cat "$1"
