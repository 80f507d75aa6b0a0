"""From `NAME=PATH` to rows: what is drawn depends on the seed alone, and splits never overlap."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastformer.data.tables import read_rows
from fastformer.errors import UserError
from fastformer.paper.classification import Rows
from fastformer.paper.datasets import SPLITS, Dataset, choose_rows, locate, parse_data
from fastformer.paper.datasets import prepare as prepare_any
from fastformer.paper.recipes import load_recipe

from ..tasks.conftest import write_jsonl
from .conftest import write_rows

RECIPE = load_recipe("table-classification")
FULL, PAPERS = RECIPE.scale("full"), tuple(RECIPE.papers)


def prepare(dataset, scale, folder, seed=0):
    return prepare_any(dataset, Rows(), scale, folder, seed=seed, show=False)


def texts(prepared, split) -> list[str]:
    return [row.text for row in read_rows(prepared.files[split], text_column="text", label_column="label")]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("imdb=data/imdb", ("imdb", None, "data/imdb")),
        ("rent-the-runway:amazon=data/a=b.csv", ("rent-the-runway", "amazon", "data/a=b.csv")),
    ],
)
def test_a_name_and_perhaps_what_it_stands_for(given, parts):
    dataset = Dataset.parse(given, PAPERS)
    assert (dataset.name, dataset.paper, dataset.source) == parts
    assert str(dataset) == given


@pytest.mark.parametrize("given", ["data/imdb", "=path", "imdb=", "imdb:yelp=path", "imdb:=path", "../x=path", ""])
def test_anything_else_is_a_mistake_in_one_line(given):
    with pytest.raises(UserError, match="NAME=PATH, or NAME:PAPER=PATH") as caught:
        parse_data([given], PAPERS)
    assert "\n" not in str(caught.value)


def test_two_datasets_of_one_name():
    with pytest.raises(UserError, match="two datasets are called 'a'"):
        parse_data(["a=x", "a=y"], PAPERS)


@given(count=st.integers(10, 500), seed=st.integers(0, 5), sample=st.none() | st.integers(10, 600))
def test_random_splits_are_disjoint_and_80_10_10(count, seed, sample):
    chosen = choose_rows({"all": count}, {}, sample, seed, "file")
    parts = [chosen[split][1] for split in SPLITS]
    used = min(count, sample or count)
    assert len(np.unique(np.concatenate(parts))) == used
    assert [len(part) for part in parts] == pytest.approx([0.8 * used, 0.1 * used, 0.1 * used], abs=1)
    again = choose_rows({"all": count}, {}, sample, seed, "file")
    assert all((chosen[split][1] == again[split][1]).all() for split in SPLITS)


def test_a_file_is_split_by_seed_and_read_as_it_was(tmp_path):
    source = f"things={write_rows(tmp_path / 'things.jsonl', 200, 0)}"
    whole = sorted(json.loads(line)["text"] for line in (tmp_path / "things.jsonl").read_text().splitlines())
    one, same, other = (
        prepare(Dataset.parse(source, PAPERS), FULL, tmp_path / out, seed=seed)
        for out, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert sorted(text for split in SPLITS for text in texts(one, split)) == whole
    assert one.about["rows"] == {"train": 160, "validation": 20, "test": 20}
    assert one.about["fingerprint"] == same.about["fingerprint"] != other.about["fingerprint"]
    assert one.about["split"] == "80/10/10 at random"


def test_given_splits_stay_and_a_tenth_of_train_validates(tmp_path):
    folder = tmp_path / "things"
    folder.mkdir()
    write_rows(folder / "train.jsonl", 100, 0)
    (folder / "test.jsonl.gz").write_bytes(gzip.compress(Path(write_rows(tmp_path / "t.jsonl", 30, 1)).read_bytes()))
    assert list(locate(str(folder))) == ["train", "test"]
    found = prepare(Dataset("things", None, str(folder)), FULL, tmp_path / "out")
    assert found.about["rows"] == {"train": 90, "validation": 10, "test": 30}
    write_rows(folder / "dev.jsonl", 20, 2)
    found = prepare(Dataset("things", None, str(folder)), FULL, tmp_path / "out")
    assert found.about["rows"] == {"train": 100, "validation": 20, "test": 30}


def test_a_scale_draws_fewer_rows_and_amazon_a_sample(tmp_path):
    source = write_rows(tmp_path / "reviews.jsonl", 300, 0)
    scale = replace(FULL, rows={"train": 50, "test": 7}, sample={"amazon": 100})
    drawn = prepare(Dataset("reviews", "amazon", source), scale, tmp_path / "out")
    assert drawn.about["rows"] == {"train": 50, "validation": 10, "test": 7}
    everything = prepare(Dataset("reviews", None, source), FULL, tmp_path / "out")
    assert everything.about["rows"] == {"train": 240, "validation": 30, "test": 30}
    assert FULL.sample == {"amazon": 50_000}


def test_a_label_that_training_lacks_is_left_out_and_counted(tmp_path):
    folder = tmp_path / "things"
    folder.mkdir()
    write_rows(folder / "train.jsonl", 100, 0)
    path = Path(write_rows(folder / "test.jsonl", 30, 1))
    with path.open("a") as file:
        file.write(json.dumps({"text": "a rare thing", "label": "rare"}) + "\n")
    found = prepare(Dataset("things", None, str(folder)), FULL, tmp_path / "out")
    assert found.about["rows"]["test"] == 30
    assert found.about["unseen_labels"] == 1
    assert "1 row was left out whose label no training row has." in found.about["says"]


def test_what_is_prepared_is_kept_until_the_file_changes(tmp_path):
    path = Path(write_rows(tmp_path / "things.jsonl", 60, 0))
    dataset = Dataset("things", None, str(path))
    one = prepare(dataset, FULL, tmp_path)
    stamp = Path(one.files["train"]).stat().st_mtime_ns
    assert Path(prepare(dataset, FULL, tmp_path).files["train"]).stat().st_mtime_ns == stamp
    write_rows(path, 70, 0)
    assert sum(prepare(dataset, FULL, tmp_path).about["rows"].values()) == 70


def test_bodies_that_come_later_are_read_and_named(tmp_path):
    lines = "".join(f"N{i}\ttopic{i % 2}\tsub\tTitle {i}\t\turl\t[]\t[]\n" for i in range(20))
    (tmp_path / "mind" / "train").mkdir(parents=True)
    path = tmp_path / "mind" / "train" / "news.tsv"
    path.write_text(lines)
    dataset = Dataset("mind", "mind", str(path))
    before = prepare(dataset, FULL, tmp_path / "out")
    assert "titles and abstracts" in before.about["says"][1]
    (tmp_path / "mind" / "bodies.tsv").write_text("".join(f"N{i}\tBody {i}\n" for i in range(20)))
    after = prepare(dataset, FULL, tmp_path / "out")
    assert all(text.startswith("Body") for text in texts(after, "train"))
    assert "bodies" in after.about["says"][1]


def test_folders_that_cannot_be_compared_on(tmp_path):
    write_rows(tmp_path / "train.jsonl", 10, 0)
    assert locate(str(tmp_path)) == {"all": str(tmp_path / "train.jsonl")}
    write_rows(tmp_path / "validation.jsonl", 10, 0)
    with pytest.raises(UserError, match="has train and validation, but a comparison needs train and test"):
        locate(str(tmp_path))
    write_rows(tmp_path / "valid.jsonl", 10, 0)
    with pytest.raises(UserError, match="are both validation"):
        locate(str(tmp_path))
    source = write_rows(tmp_path / "few.jsonl", 3, 0)
    with pytest.raises(UserError, match="too few rows"):
        prepare(Dataset("few", None, source), FULL, tmp_path / "out")
    source = write_jsonl(tmp_path / "one.jsonl", [{"text": "a", "label": "x"}] * 20)
    with pytest.raises(UserError, match=r"one\.jsonl: all training rows have one label"):
        prepare(Dataset("one", None, source), FULL, tmp_path / "out")
