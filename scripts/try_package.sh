#!/bin/sh
# Install a wheel, without extras, into an empty environment and use it there: try_package.sh PYTHON WHEEL
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
wheel=$(realpath "$2")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet -c "$root/constraints.txt" torch
"$place/venv/bin/pip" install --quiet -c "$root/constraints.txt" "$wheel"
unset PYTHONPATH
cd "$place"  # away from the sources: what is imported is what was installed
venv/bin/fastformer --version
venv/bin/fastformer --help > help.txt
venv/bin/python "$root/scripts/try_package.py"
