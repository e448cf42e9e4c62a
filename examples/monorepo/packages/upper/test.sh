#!/bin/sh
set -eu
cd "$(dirname "$0")"
[ "$(echo 'tide gate' | ./main.sh)" = 'TIDE GATE' ]
