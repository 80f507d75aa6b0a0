"""The encoder that comes along: `TextEncoder()`, `fastformer embed base`, `fastformer search`."""

from importlib.util import find_spec

import numpy as np
import pytest
from typer.testing import CliRunner

from fastformer import TextEncoder
from fastformer.cli.app import app
from fastformer.engine.hub import local_folder
from fastformer.engine.warm_start import kind_of
from fastformer.runs.folder import open_run

if find_spec("fastformer_base_en") is None:
    pytest.skip("needs the encoder base: pip install packages/fastformer-base-en", allow_module_level=True)

TEXTS = [
    "A man is playing a guitar.",
    "The bank closed its doors at five.",
    "Somebody makes music on a string instrument.",
]


@pytest.fixture(scope="module")
def encoder():
    return TextEncoder()


def test_what_means_the_same_is_near(encoder):
    cosines = encoder.similarity(TEXTS)
    assert cosines[0, 2] > cosines[0, 1] + 0.2
    assert encoder.search("the opening hours of the bank", TEXTS, top=1)[0].place == 1


def test_narrow_vectors_say_most_of_it(encoder):
    vectors = encoder.encode(TEXTS, width=64)
    assert vectors.shape == (3, 64)
    assert vectors[0] @ vectors[2] > vectors[0] @ vectors[1] + 0.2


def test_word_order_matters(encoder):
    one, other = encoder.encode(["the dog bites the man", "the man bites the dog"])
    assert one @ other < 0.9999


def test_the_end_of_a_long_text_matters(encoder):
    head = "It was a long day in the country, and nothing much happened. " * 400  # 4,800 words
    ends = [
        head + "A volcano erupted and lava reached the sea. " * 60,
        head + "The court fined the bank for fraud. " * 60,
    ]
    assert encoder.search("a volcanic eruption", ends, top=1)[0].place == 0
    assert encoder.search("a bank before the judge", ends, top=1)[0].place == 1


def test_it_is_small_and_has_a_card():
    folder = open_run("base").folder
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 30e6
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(word in card for word in ("Teacher", "Limits", "license: apache-2.0", "all-MiniLM-L6-v2"))


def test_the_command_line_needs_no_training(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    done = CliRunner().invoke(app, ["search", str(tmp_path / "texts.txt"), "a musician", "--top", "1"])
    assert done.exit_code == 0, done.output
    assert "guitar" in done.output or "music" in done.output
    done = CliRunner().invoke(app, ["embed", "base", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "a.npy")])
    assert done.exit_code == 0, done.output
    assert np.load(tmp_path / "a.npy").shape == (3, 256)


def test_its_name_is_a_start_for_other_tasks():
    assert local_folder("base") == open_run("base").folder
    assert kind_of("base") == "encoder"
