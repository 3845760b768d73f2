#!/usr/bin/env bash
# From nothing to the figures: the environment, the runs that are missing, the tables, the figures.
set -eu
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    cat <<'USAGE'
usage: run_all.sh [--tier smoke|laptop|paper] [--figure NAME] [--seeds SEEDS] [--workers N]

Makes .venv from requirements.lock (Python 3.11 or newer), makes the runs that the figures need and that are not
finished, and draws the figures. Called again it does only what is missing.

  --tier     smoke (default): minutes, proves that it runs; laptop: a night on 2 cores; paper: GPUs
  --figure   only this figure
  --seeds    3: the first three, 0 to 2; or these: 0-4, or 0,1; default: those of each figure
  --workers  runs at once; default: the cores it is given
USAGE
}

install() {
    pip install -r requirements.lock && pip install --no-deps --no-build-isolation --editable .
}

for argument; do
    case $argument in -h | --help) usage && exit ;; esac
done
make_environment "$root/.venv"
exec "$root/.venv/bin/amago-bench" reproduce "$@"
