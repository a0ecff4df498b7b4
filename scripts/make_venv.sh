#!/bin/sh
# Make a virtual environment in $1 with the newest suitable Python of this machine, or say what is missing.
set -eu

suits() {
    "$1" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null
}

python=${PYTHON:-}
if [ -z "$python" ]; then
    # The system's own first: it is the one whose parts the package manager completes.
    for candidate in python3 python3.13 python3.12 python3.11; do
        if suits "$candidate"; then
            python=$candidate
            break
        fi
    done
fi
if [ -z "$python" ] || ! suits "$python"; then
    echo 'Python 3.11 or newer is needed. On Debian 12 and Ubuntu: apt-get install python3 python3-venv' >&2
    echo 'Another one can be named: make demo PYTHON=/path/to/python3' >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "$python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
fi
if [ ! -x "$1/bin/python" ]; then
    echo "making $1 with $("$python" --version) …"
    "$python" -m venv "$1"
fi
