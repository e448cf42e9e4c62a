#!/bin/sh
set -eu
cd "$(dirname "$0")"
[ "$(./main.sh 1 2 3)" = 6 ]
[ "$(./main.sh)" = 0 ]
