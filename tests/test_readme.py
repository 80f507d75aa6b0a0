"""The README is executable: its Python blocks print what it says, and its commands run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
# The two set-up commands, recipes on data that a newcomer does not have, and measurements that take minutes to an hour.
SKIPPED = ("make ", "git clone", "$DATA", "pip install", "bench speed", "bench peers", "bench floor", "bench long")

# Trainings that need nothing the others leave: `pytest -m slow` runs them, so that the rest stays inside ten minutes.
LONG = ("runs/words",)


def blocks(text: str, language: str) -> list[tuple[str, str | None]]:
    """Code blocks of a language, each with the `text` block that follows it directly, its printed output."""
    pattern = rf"```{language}\n(.*?)```(?:\n+```text\n(.*?)```)?"
    return re.findall(pattern, text, re.DOTALL)


def commands(text: str) -> list[str]:
    """The commands of a text that a newcomer can run, one a line, in their order."""
    lines = [line for block, _ in blocks(text, "bash") for line in block.replace("\\\n", " ").splitlines()]
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    lines = [line for line in lines if not any(skipped in line for skipped in SKIPPED)]
    assert all(shlex.split(line) for line in lines)
    return lines


def run(command: list[str] | str, folder: Path) -> str:
    scripts = Path(sys.executable).parent
    # One thread: another worker has the other core, and threads that wait for each other would wait for that one too.
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 600}
    result = subprocess.run(command, shell=isinstance(command, str), check=False, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="class")
def text(request) -> str:
    """The part of the README that a class is about."""
    parts = README.read_text(encoding="utf-8").split("\n## Conversion prediction\n")
    assert len(parts) == 2
    return parts[request.cls.number]


@pytest.fixture(scope="class")
def folder(tmp_path_factory) -> Path:
    """All commands run in one folder, one after the other, as a reader would."""
    return tmp_path_factory.mktemp("readme")


class Part:
    """A part of the README, which needs nothing that another part leaves: two workers share the minutes."""

    number: int

    def test_commands_run(self, text, folder):
        """First: Python blocks may read what the commands left."""
        ours = [line for line in commands(text) if not any(part in line for part in LONG)]
        assert len(ours) >= 4
        for line in ours:
            run(line, folder)

    def test_python_blocks_print_what_the_readme_says(self, text, folder):
        found = blocks(text, "python")
        assert found
        for code, printed in found:
            output = run([sys.executable, "-c", code], folder)
            assert not printed or output.split() == printed.split()


class TestClassification(Part):
    number = 0

    @pytest.mark.slow
    def test_long_commands_run(self, text, folder):
        found = [line for line in commands(text) if any(part in line for part in LONG)]
        assert found
        for line in found:
            run(line, folder)


class TestOtherTasks(Part):
    number = 1


def test_the_file_tree_is_true():
    [tree] = re.findall(r"```\n(src/fastformer/.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    root, stack, listed = README.parent, [], set()
    for line in tree.splitlines():
        if not line.strip():
            continue
        depth, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        stack = [*stack[:depth], name]
        path = "".join(stack)
        assert (root / path).exists(), f"{path} is in the README's tree but not in the project"
        listed.add(path.rstrip("/"))
    for file in (root / "src").rglob("*.py"):
        relative = file.relative_to(root).as_posix()
        if file.name in ("__init__.py", "__main__.py", "version.py"):
            continue
        parents = {parent.as_posix() for parent in file.relative_to(root).parents}
        assert relative in listed or parents & listed - {"src/fastformer", "src", "."}, f"{relative} is not in the tree"
