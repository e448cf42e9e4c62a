#!/bin/sh
# Sums up the second column of a file: work/north.csv gives work/north.total.
set -eu
region=$(basename "$1" .csv)
awk -F, -v region="$region" '{ sum += $2 } END { print region "," sum }' "$1" >"work/$region.part"
mv "work/$region.part" "work/$region.total"
