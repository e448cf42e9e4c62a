#!/bin/sh
set -eu
tr -s ' ' '\n' | grep -c . || true
