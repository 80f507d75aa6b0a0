"""Progress: a bar with named times in a terminal, a line now and then in a log."""

import io
import re

import pytest
from rich.console import Console

from fastformer.data.row_counts import how_many_rows
from fastformer.surroundings import progress
from fastformer.surroundings.progress import progress_bar


@pytest.fixture
def log(monkeypatch):
    """What is written where there is no terminal, on a clock that only the test moves."""
    file, clock = io.StringIO(), [1000.0]
    monkeypatch.setattr(progress, "console", Console(file=file, highlight=False))
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])

    def wait(seconds: float) -> list[str]:
        clock[0] += seconds
        return [line[9:] for line in file.getvalue().splitlines()]  # without the time of day

    return wait


def test_a_log_has_a_line_now_and_then(log):
    with progress_bar("Training", total=1600) as advance:
        advance(100)  # done before an interruption
        for _ in range(60):
            log(1)
            advance(2, note="loss 0.532")
    assert log(0) == [
        "Training: 110 of 1,600, 2.0 per second, 12:25 left, loss 0.532",
        "Training: 170 of 1,600, 2.0 per second, 11:55 left, loss 0.532",
        "Training: 220 of 1,600, 1:00 passed, loss 0.532",
    ]


def test_what_is_done_at_once_leaves_no_line(log):
    with progress_bar("Reading") as advance:
        advance(500)
    assert log(0) == []
    with progress_bar("Reading") as advance:
        advance(5)
        log(3600)
        advance(5)
    assert log(0) == ["Reading: 10, 0.0 per second", "Reading: 10, 1:00:00 passed"]


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_names_both_times_on_one_line(width, monkeypatch):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(progress, "console", console)
    with progress_bar("Training", total=1600) as advance:
        advance(1280, note="loss 1.263, validation accuracy 0.572")
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue()).rstrip().splitlines()[-1]
    assert re.search(r"1280/1600 0:00 passed .* left loss 1.263, validation accuracy 0.572", last)
    assert ("━" in last) == (width == 120)


def test_the_file_tells_how_many_rows_there_are(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree")
    (tmp_path / "a.csv").write_text("text\none\n")
    (tmp_path / "broken.parquet").write_text("no")
    assert how_many_rows(tmp_path / "a.txt") == 3
    assert how_many_rows(["a", "b"]) == 2
    for source in (tmp_path / "a.csv", tmp_path / "broken.parquet", tmp_path / "no.txt", "-", "builtin"):
        assert how_many_rows(source) is None
