"""The programs of docs/guide/scale.md, with the engines that they are for."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastformer.tasks.verbs import load
from tests.tasks.conftest import make_rows

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guide" / "scale.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory) -> Path:
    """A reader's folder: a run, and two files."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(run, folder / "runs" / "libraries")
    (folder / "texts").mkdir()
    for part in range(2):
        made = enumerate(make_rows(40, part), 40 * part)
        rows = [{"id": number, "text": text, "label": label} for number, (text, label) in made]
        pq.write_table(pa.Table.from_pylist(rows), folder / "texts" / f"part-{part}.parquet")
    return folder


def run_in(folder: Path, *command: str) -> str:
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    environment |= {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def labels(folder: Path, *parts: int) -> dict[int, str]:
    """What `predict` says of the files."""
    rows = [row for part in parts for row in pq.read_table(folder / "texts" / f"part-{part}.parquet").to_pylist()]
    answers = load(folder / "runs" / "libraries").predict([row["text"] for row in rows])
    return {row["id"]: answer["label"] for row, answer in zip(rows, answers, strict=True)}


# How each program's answers are told to the test: id and label of every row.
TOLD = {
    "ray": ("rows = texts.map_batches(label).take_all()", (0,)),
    "pyspark": ("rows = [row.asDict() for row in texts.mapInArrow(label, 'id long, label string').collect()]", (0,)),
    "dask": ("    rows = [row for part in parts for row in part.to_dict('records')]", (0, 1)),
}


@pytest.mark.parametrize("engine", TOLD)
def test_the_program_gives_the_answers_of_predict(engine, folder):
    pytest.importorskip(engine)
    if engine == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    [code] = [code for code in blocks if re.search(rf"^(import|from) {engine}", code, re.MULTILINE)]
    telling, parts = TOLD[engine]
    indent = "    " if telling.startswith(" ") else ""
    tell = f"{indent}import json; print('told', json.dumps({{int(row['id']): row['label'] for row in rows}}))"
    (folder / f"with_{engine}.py").write_text(f"{code}\n{telling}\n{tell}\n", encoding="utf-8")
    printed = run_in(folder, sys.executable, f"with_{engine}.py")
    expected = labels(folder, *parts)
    assert printed.split("\n")[0] == str(len(expected)), printed
    found = json.loads(printed.partition("told ")[2])
    assert {int(key): label for key, label in found.items()} == expected


def test_the_commands_of_the_page(folder):
    ours = re.findall(r"^fastformer (?:predict|embed|evaluate) .*$", PAGE, re.MULTILINE)
    assert len(ours) >= 4
    for command in ours:
        if "--address" not in command:
            run_in(folder, "sh", "-c", command)
    answers = pa.concat_tables([pq.read_table(folder / "answers" / f"part-{part}.parquet") for part in range(2)])
    assert {row["id"]: row["label"] for row in answers.to_pylist()} == labels(folder, 0, 1)
