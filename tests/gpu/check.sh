#!/usr/bin/env bash
# The checks that need a GPU, at most 6 minutes on one card. Writes tests/gpu/check.json; ends with 1 if a check fails.
#   bash tests/gpu/check.sh [PYTHON]
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
PYTHONPATH="$root" exec "${1:-python3}" tests/gpu/check.py tests/gpu/check.json
