#!/bin/sh
set -eu
cd "$(dirname "$0")"
DATABASE=$(mktemp -d)
export DATABASE
trap 'rm -rf "$DATABASE"' EXIT
[ "$(./main.sh a 1)" = 1 ]
[ "$(./main.sh a)" = 1 ]
