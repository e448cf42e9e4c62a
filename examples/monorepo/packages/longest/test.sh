#!/bin/sh
set -eu
cd "$(dirname "$0")"
[ "$(printf 'a\nccc\nbb\n' | ./main.sh)" = ccc ]
