#!/bin/sh
set -eu
cd "$(dirname "$0")"
[ "$(./main.sh)" = 'hello, world' ]
[ "$(./main.sh you)" = 'hello, you' ]
