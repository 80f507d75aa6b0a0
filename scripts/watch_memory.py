"""Draw how much memory a command holds while it runs: its own and that of the processes that it starts.

    python scripts/watch_memory.py memory.json "as it is" fastformer train summarization … --output runs/a
    ONEDNN_PRIMITIVE_CACHE_CAPACITY=1024 python scripts/watch_memory.py memory.json "1,024 kernels kept" fastformer …

Each call adds a curve to the JSON file, or replaces that of its name, and then draws all of them beside it as PNG.
The memory is the resident one, every ten seconds. The file is up to date at any time, whatever ends the command.
"""

import json
import shutil
import sys
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from subprocess import Popen, TimeoutExpired

import psutil
from matplotlib.figure import Figure

from fastformer.surroundings.files import writing_aside, writing_text
from fastformer.surroundings.plotting import COLORS, OURS, style

SECONDS = 10.0
Curve = list[tuple[float, float]]  # minutes, GB


def watch(command: list[str], file: Path, name: str, seconds: float = SECONDS) -> int:
    """Run a command and keep what it holds; its exit code."""
    curve: Curve = []
    started = time.monotonic()
    with Popen(command) as process:
        try:
            while process.poll() is None:
                curve.append((round((time.monotonic() - started) / 60, 3), round(resident(process.pid) / 1e9, 3)))
                curves = {**read(file), name: curve}  # read again: another command may have added its own
                with writing_text(file) as out:
                    json.dump(curves, out)
                with suppress(TimeoutExpired):
                    process.wait(seconds)
        except KeyboardInterrupt:
            process.wait()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode  # as a shell tells a signal


def read(file: Path) -> dict[str, Curve]:
    """The curves of a file, by name."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def resident(pid: int) -> int:
    """Bytes that a process and its descendants hold; shared pages count for each of them."""
    found = 0
    with suppress(psutil.NoSuchProcess):
        whole = psutil.Process(pid)
        for one in (whole, *whole.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                found += one.memory_info().rss
    return found


def draw(curves: dict[str, Curve], picture: Path) -> None:
    """All curves, the first in our colour."""
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.add_subplot()
    style(axes)
    for (name, curve), color in zip(curves.items(), cycle((OURS, *COLORS)), strict=False):
        axes.plot(*zip(*curve, strict=True), label=name, color=color, linewidth=1.2)
    axes.set(xlabel="minutes", ylabel="memory, GB")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    with writing_aside(picture) as aside:
        figure.savefig(aside, format="png", dpi=150)


def main(arguments: list[str]) -> int:
    """Watch a command and add its curve."""
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    file, name, *command = arguments
    if shutil.which(command[0]) is None:
        print(f"{command[0]}: no such command", file=sys.stderr)
        return 2
    code = watch(command, Path(file), name)
    draw(read(Path(file)), Path(file).with_suffix(".png"))
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
