"""The examples run from any folder, print something, and leave nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
# Over 20 seconds of one core.
LONG = ("classify", "conversions", "one_text_two_processes", "several_labels", "similar_texts")


@pytest.mark.parametrize(
    "example",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in LONG else []) for path in EXAMPLES],
)
def test_an_example_runs(example, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 300}
    result = subprocess.run([sys.executable, str(example)], check=False, **options)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) >= 3
    assert not list(tmp_path.iterdir())
