#!/bin/sh
set -eu
tr '[:lower:]' '[:upper:]'
