#!/bin/sh
# Makes the virtual environment that the Makefile works in: scripts/venv.sh FOLDER PYTHON
# Outside that folder it changes one thing, and only as root: python3-venv is installed if need be.
set -eu

venv=$1
python=$2

complain() {
    echo "venv: $*" >&2
    exit 1
}

command -v "$python" >/dev/null || complain "$python not found; name another one: make PYTHON=python3.12"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    complain "$("$python" --version) is too old; Python 3.11 or newer is wanted: make PYTHON=python3.12"

# Debian's python3 comes without the part of the standard library that makes virtual environments.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        complain "$python cannot make virtual environments; on Debian: sudo apt install python3-venv"
    echo "venv: installing python3-venv, without which $python makes no virtual environment" >&2
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv
fi

"$python" -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check \
    --constraint constraints.txt --editable '.[server,dev,demo]'
