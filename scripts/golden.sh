#!/bin/sh
# Make the golden files of tests/golden in an environment with the reference libraries.
# Usage: scripts/golden.sh FOLDER [PYTHON]
set -eu

folder=$1
python=${2:-python3}
golden=$(dirname "$0")/../tests/golden

[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --requirement "$golden/requirements.txt"
"$folder/bin/python" "$golden/safetensors/make.py"
"$folder/bin/python" "$golden/minilm.py"

# The form of tree models differs between releases of their libraries, so several are asked.
while read -r library release others; do
    venv=$folder/$release
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    # shellcheck disable=SC2086  # a list of requirements
    "$venv/bin/python" -m pip install --quiet "$release" $others
    "$venv/bin/python" "$golden/trees/make.py" "$library"
done < "$golden/trees/releases.txt"
