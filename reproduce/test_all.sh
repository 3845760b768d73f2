#!/usr/bin/env bash
# All checks: style, types, tests, each in an environment from requirements.lock. `test_all.sh -e slow` and other
# arguments go to tox.
set -eu
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

install() {
    pip install -c requirements.lock tox
}

make_environment "$root/.venv-tox"
cd "$root"
exec .venv-tox/bin/tox "$@"
