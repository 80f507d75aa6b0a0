"""README and guide are executable: their Python blocks print what they say, and their commands run."""

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fastformer.data import corpus

from .forked import run_jobs

ROOT = Path(__file__).parents[1]
# Pages whose commands run in one folder, one after the other, as a reader would; a group needs nothing of the other, so
# that two workers share the minutes. A command that stands on two pages of a group runs once.
CLASSIFICATION = ("README", "classify", "data", "explain", "export", "labels", "few-labels", "long-documents", "runs")
SERVER = ("serving",)  # needs one that runs: tests/serve/test_server.py asks it what the page asks
SEVERAL = ("scale",)  # needs several processes: tests/mixers/test_sequence_parallel.py, tests/engine/test_ranks.py
OTHER_TASKS = ("vectors", "conversions", "recommend", "summarize", "transformers", "methods", "benchmarks")
# The two set-up commands, recipes on data that a newcomer does not have, and measurements that take minutes to an hour.
SKIPPED = ("make ", "git clone", "$DATA", "pip install", "bench speed", "bench peers", "bench floor", "bench long")

# Trainings that need nothing the others leave: `pytest -m slow` runs them, so that the rest stays inside ten minutes.
LONG = ("runs/words",)


def blocks(text: str, language: str) -> list[tuple[str, str | None]]:
    """Code blocks of a language, each with the `text` block that follows it directly, its printed output."""
    pattern = rf"```{language}\n(.*?)```(?:\n+```text\n(.*?)```)?"
    return re.findall(pattern, text, re.DOTALL)


def commands(text: str) -> list[str]:
    """The commands of a text that a newcomer can run, one per line, in their order."""
    lines = [line for block, _ in blocks(text, "bash") for line in block.replace("\\\n", " ").splitlines()]
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    lines = [line for line in lines if not any(skipped in line for skipped in SKIPPED)]
    assert all(shlex.split(line) for line in lines)
    return list(dict.fromkeys(lines))


# Of each library in the built-in corpus: enough for every command to learn something, in seconds instead of minutes.
FEW_ROWS = {"train": 120, "validation": 30, "test": 30}


def keep_few_docstrings(cache: Path) -> None:
    """Put a part of the built-in corpus where a command looks for all of it."""
    rows = {split: list(corpus.builtin_rows(split)) for split in FEW_ROWS}
    libraries = {row.label for row in rows["train"]}
    few = {
        split: [row for name in sorted(libraries) for row in [one for one in rows[split] if one.label == name][:number]]
        for split, number in FEW_ROWS.items()
    }
    cache.mkdir()
    with gzip.open(cache / corpus._kept().name, "wt", encoding="utf-8") as file:
        json.dump({split: [(row.text, row.label) for row in some] for split, some in few.items()}, file)


# A command of ours, which may read what another one prints.
OURS = re.compile(r"(?:(?P<before>(?:echo|printf) [^|]*)\| *)?fastformer (?P<arguments>[^|<>&;$]*)")


def run(jobs: list[str | dict], folder: Path) -> list[str]:
    """Run commands and code (`{"code": …}`) in their order, as a reader would; return what each printed."""
    scripts = Path(sys.executable).parent
    # One thread: another worker has the other core, and threads that wait for each other would wait for that one too.
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "FASTFORMER_CACHE": str(folder / "cache"),
    }

    def shell(line: str) -> str:
        return subprocess.run(line, shell=True, cwd=folder, env=environment, stdout=-1, text=True, check=True).stdout

    forked = []
    for job in jobs:
        if isinstance(job, dict):
            forked.append(job)
        elif ours := OURS.fullmatch(job.strip()):
            text = shell(ours["before"]) if ours["before"] else ""
            forked.append({"arguments": shlex.split(ours["arguments"]), "input": text})
        else:
            assert "fastformer" not in job
            shell(job)  # which makes a file that later ones read
    printed = []
    for job, found in zip(forked, run_jobs(forked, folder, environment), strict=True):
        assert found["code"] == 0, f"{job}\n{found['out']}\n{found['err']}"
        printed.append(found["out"])
    return printed


def path_of(page: str) -> Path:
    return ROOT / "README.md" if page == "README" else ROOT / "docs" / "guide" / f"{page}.md"


@pytest.fixture(scope="class")
def text(request) -> str:
    """The pages that a class is about."""
    return "\n".join(path_of(page).read_text(encoding="utf-8") for page in request.cls.pages)


@pytest.fixture(scope="class")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    keep_few_docstrings(folder / "cache")
    return folder


class Group:
    """A group of pages."""

    pages: tuple[str, ...]

    def test_commands_run(self, text, folder):
        """First: Python blocks may read what the commands left."""
        ours = [line for line in commands(text) if not any(part in line for part in LONG)]
        assert len(ours) >= 4
        run(ours, folder)

    def test_python_blocks_print_what_the_page_says(self, text, folder):
        found = blocks(text, "python")
        assert found
        outputs = run([{"code": code} for code, _ in found], folder)
        for (_, printed), output in zip(found, outputs, strict=True):
            assert not printed or output.split() == printed.split()


class TestClassification(Group):
    pages = CLASSIFICATION

    @pytest.mark.slow
    def test_long_commands_run(self, text, folder):
        found = [line for line in commands(text) if any(part in line for part in LONG)]
        assert found
        run(found, folder)


class TestOtherTasks(Group):
    pages = OTHER_TASKS


def test_every_page_with_commands_is_in_a_group():
    pages = {path.stem for path in (ROOT / "docs" / "guide").glob("*.md")} - {"index"}
    assert pages == {*CLASSIFICATION, *OTHER_TASKS, *SERVER, *SEVERAL} - {"README"}
