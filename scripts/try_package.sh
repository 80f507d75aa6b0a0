#!/bin/sh
# Install wheels, without extras, into an empty environment and use them there: try_package.sh PYTHON WHEEL…
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=$1
shift
wheels=$(realpath "$@")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet -c "$root/constraints.txt" torch
"$place/venv/bin/pip" install --quiet -c "$root/constraints.txt" $wheels
unset PYTHONPATH
cd "$place"  # away from the sources: what is imported is what was installed
venv/bin/fastformer --version
venv/bin/fastformer --help > help.txt
venv/bin/fastformer embed base - --output vectors.npy < "$root/README.md"
venv/bin/python "$root/scripts/try_package.py"
