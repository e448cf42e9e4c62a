#!/bin/sh
set -eu
awk 'length > longest { longest = length; line = $0 } END { print line }'
