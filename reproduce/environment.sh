# Sourced by run_all.sh and test_all.sh: a virtual environment in this repository, made once.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 2
}

# Sets `python` to the first one that is new enough; $PYTHON, where set, is the only candidate.
find_python() {
    local candidate version seen=""
    for candidate in ${PYTHON:-python3 python python3.13 python3.12 python3.11}; do
        python=$(command -v "$candidate") || continue
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' && return
        seen="$seen${seen:+, }$candidate is $version"
    done
    fail "Python 3.11 or newer is needed (${seen:-no Python found}); install one, or set PYTHON to its path"
}

# make_environment FOLDER: calls `install`, which the caller defines, with `pip` for the new environment. Does nothing if
# the folder was made from the same lock and project files in the same place.
make_environment() {
    local folder=$1 mark=$1/.amago-bench state
    find_python
    state="$folder $(cat "$root/requirements.lock" "$root/pyproject.toml" | cksum)"
    [ "$(cat "$mark" 2>/dev/null)" = "$state" ] && return
    if [ -e "$folder" ]; then
        [ -e "$mark" ] || fail "$folder was not made by this script; move it away first"
        mv "$folder" "$folder.old" && rm -rf "$folder.old"
    fi
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python lacks the modules to make an environment; on Debian: apt install python3-venv"
    echo "making the environment $folder with $("$python" --version): a minute or two, and the downloads"
    mkdir -p "$folder" && echo unfinished >"$mark"
    "$python" -m venv "$folder" || fail "$python -m venv failed, see above"
    pip() { "$folder/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
    (cd "$root" && install) || fail "the installation failed, see above; the same command tries again"
    echo "$state" >"$mark"
}
