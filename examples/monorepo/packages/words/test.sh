#!/bin/sh
set -eu
cd "$(dirname "$0")"
[ "$(echo 'a b  c' | ./main.sh)" = 3 ]
[ "$(: | ./main.sh)" = 0 ]
