"""Input that is odd or means harm: bounds of settings, ids that are paths, names that are taken, damaged caches."""

import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from fastformer.data.corpus import _is_corpus
from fastformer.data.published import _read_body
from fastformer.data.standard_input import _open
from fastformer.data.tables import read_rows
from fastformer.errors import UserError
from fastformer.surroundings.files import has_sums, write_sums
from fastformer.tasks.base import get_declaration
from fastformer.tasks.classification.estimator import _checked_labels
from fastformer.tasks.conversion.store import BehaviorStore
from fastformer.tasks.recommendation.predictor import Ranker


@pytest.mark.parametrize(
    ("task", "setting", "says"),
    [
        ("classification", {"epochs": 0}, "epochs is 0; give at least 1"),
        ("encoder", {"epochs": 10**30}, "; give at most 1,000,000"),
        ("classification", {"batch_size": 0}, "batch_size is 0; give at least 1"),
        ("classification", {"max_length": 2**40}, "max_length is 1099511627776; give at most 1,000,000"),
        ("summarization", {"beams": 1_000_000}, "beams is 1000000; give at most 100"),
        ("recommendation", {"negatives": 10**9}, "negatives is 1000000000; give at most 10,000"),
        ("conversion", {"max_behaviors": 10**9}, "max_behaviors is 1000000000; give at most 100,000"),
        ("classification", {"learning_rate": float("nan")}, "learning_rate is nan; give at least"),
    ],
)
def test_settings_have_bounds_whoever_gives_them(task, setting, says):
    with pytest.raises(UserError, match=says):
        get_declaration(task).presets.get_settings("default", **setting)


def test_a_store_keeps_somebody():
    with pytest.raises(UserError, match="max_users is 0: nobody would be kept"):
        BehaviorStore(None, max_users=0)


@pytest.mark.parametrize("labels", [[1, True], [True, 2.0, False], [np.bool_(True), np.int64(0)]])
def test_true_is_not_one(labels):
    with pytest.raises(ValueError, match="make them strings"):
        _checked_labels(labels)
    assert _checked_labels([True, False]) == [True, False]


def test_an_id_is_never_a_path(tmp_path):
    (tmp_path / "bodies").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "bodies" / "N1.txt").write_text("body")
    assert _read_body(tmp_path / "bodies", "N1") == "body"
    for key in ("../secret", str(tmp_path / "secret"), "", ".", "..", "a\0b"):
        assert _read_body(tmp_path / "bodies", key) is None


def test_a_zip_of_somebody_else_is_not_replaced(tmp_path, capsys):
    answers, place = tmp_path / "x.txt", tmp_path / "x.zip"
    answers.write_text("1 [1,2]\n")
    Ranker.wrote(None, answers)
    Ranker.wrote(None, answers)  # its own it replaces
    assert zipfile.ZipFile(place).namelist() == ["prediction.txt"]
    place.write_bytes(b"holidays")
    Ranker.wrote(None, answers)
    assert place.read_bytes() == b"holidays"
    assert "holds something else" in " ".join(capsys.readouterr().err.split())
    Ranker.wrote(None, type(answers)("/dev/null"))  # nothing is written beside a device


def test_a_damaged_cache_is_known(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "news.tsv").write_text("N1\ta\n")
    assert not has_sums(tmp_path)
    write_sums(tmp_path)
    assert has_sums(tmp_path)
    (tmp_path / "train" / "news.tsv").write_text("N1\tb\n")
    assert not has_sums(tmp_path)
    assert not _is_corpus({"train": []})
    assert not _is_corpus([1])
    rows = [["text", "library"]]
    assert _is_corpus({"train": rows, "validation": rows, "test": rows})
    assert not _is_corpus({"train": rows, "validation": rows, "test": [["text", 3]]})


def test_a_first_row_without_a_text_does_not_make_the_label_one(tmp_path):
    rows = [{"label": "a"}, {"text": "words", "label": "b"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="line 2: has 'text' and the first row does not"):
        list(read_rows(str(path), label_kind="none"))


def test_a_name_that_is_not_utf8_is_shown_as_it_can_be(tmp_path):
    name = b"caf\xe9.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "fastformer", "search", name, "word"], capture_output=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"fastformer: caf\\udce9.jsonl: no such file")


def test_standard_input_that_never_ends_is_refused():
    with (
        open("/dev/zero", "rb") as device,
        pytest.raises(UserError, match="standard input: .* never ends"),
    ):
        _open(device)
    assert _open(io.BufferedReader(io.BytesIO(b"a\n"))).readline() == b"a\n"
