"""Texts without labels: the n-gram channel learns which words go together; where that is no better, nothing changes."""

import json
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fastformer import TextClassifier
from fastformer.data.batches import EncodedTexts, Joined, Subset
from fastformer.errors import Interrupted, UserError
from fastformer.tasks import verbs
from fastformer.tasks.classification import channel, ngram_features, ngrams
from fastformer.tasks.classification.channel import fit_channel, outputs_of
from fastformer.tasks.classification.data import LabelSpace
from tests.tasks.conftest import make_rows, write_csv, write_jsonl
from tests.tasks.test_resume import stop_after  # noqa: F401

train = partial(verbs.train, "classification")

FILLERS, TOPIC = 40, 120  # words of every text, and words of each of two topics
SIZE = 1 + FILLERS + 2 * TOPIC
TOPICS = LabelSpace("single", ("one", "other"))
LETTERS = np.random.default_rng(3).choice(list("abcdefghijklmnopqrstuvwxyz"), size=(SIZE, 8))  # that say no topic
TOKENIZER = SimpleNamespace(
    get_vocab=lambda: {"".join(word): number for number, word in enumerate(LETTERS)},
    all_special_ids=[0],
    pad_token_id=0,
)


def texts(count: int, seed: int, topic_words: int = 3, mixed: bool = False) -> Subset:
    """Texts of two topics; if `mixed`, their words say nothing of which words go together."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    parts = []
    for label in labels:
        first = 1 + FILLERS + (0 if mixed else TOPIC * label)
        words = random.integers(first, first + (2 * TOPIC if mixed else TOPIC), size=topic_words)
        parts.append(np.concatenate([random.integers(1, 1 + FILLERS, size=6), words]))
    offsets = np.cumsum([0] + [len(part) for part in parts])
    return Subset(EncodedTexts(np.concatenate(parts).astype(np.int32), offsets, labels), np.arange(count))


def fit(unlabelled: EncodedTexts | None, everything: bool = False):
    labelled = texts(140, 0)
    training, held_out = Subset(labelled.texts, np.arange(80)), Subset(labelled.texts, np.arange(80, 140))
    return fit_channel(
        tokenizer=TOKENIZER,
        vocab_size=SIZE,
        space=TOPICS,
        training=training,
        held_out=held_out,
        everything=labelled if everything else None,
        unlabelled=unlabelled,
        encoder=np.zeros((60, 2), np.float32),
        seed=0,
        show_progress=False,
    )


def accuracy(fitted) -> float:
    test = texts(400, 1)
    scores = outputs_of(test, 0, lambda input_ids, attention_mask: fitted(input_ids, attention_mask.bool()))
    return float((scores.argmax(axis=1) == test.labels).mean())


@pytest.mark.parametrize("everything", [False, True])
def test_words_that_go_together_in_unlabelled_texts_are_learned(everything):
    without, with_them = fit(None, everything), fit(texts(1500, 2, topic_words=8).texts, everything)
    told = with_them.told["unlabelled"]
    assert told["helps"]
    assert told["rows"] == told["used"] == 1500
    assert told["with"]["log_loss"] < told["without"]["log_loss"]
    assert told["with"]["value"] > told["without"]["value"]
    assert accuracy(with_them.channel) > accuracy(without.channel) + 0.05
    assert "unlabelled" not in without.told


@pytest.mark.parametrize("crossed", [True, False])
@pytest.mark.parametrize("everything", [False, True])
def test_the_bar_ends_where_it_said(everything, crossed, monkeypatch):
    seen: list[tuple[int, list[int]]] = []

    @contextmanager
    def watched(title, total, show):
        seen.append((total, steps := []))
        yield steps.append

    monkeypatch.setattr(channel, "progress_bar", watched)
    if not crossed:
        monkeypatch.setattr(ngrams, "CROSSED_TEXTS", 1)
    fit(None, everything)
    [(total, steps)] = seen
    assert sum(steps) == total


def test_useless_unlabelled_texts_change_nothing():
    without, with_them = fit(None), fit(texts(1500, 2, topic_words=8, mixed=True).texts)
    assert not with_them.told["unlabelled"]["helps"]
    assert with_them.blend == without.blend
    before, after = without.channel.state_dict(), with_them.channel.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("scale", [None, 0.5, 0.0])
def test_directions_fold_into_the_features(scale):
    """With every form of word vectors beside them: none, used, or left out."""
    few, further = texts(60, 0), texts(200, 2)
    words = ngram_features.word_strings(TOKENIZER.get_vocab(), SIZE, [0])
    meanings = None if scale is None else np.random.default_rng(0).normal(size=(SIZE, 4)).astype(np.float32)
    plain = ngram_features.Features(Joined(few, further), words, 512, meanings)
    features = plain.along(5, 0, 60).with_meanings_at(1.0 if scale is None else scale)
    plain = plain.with_meanings_at(1.0 if scale is None else scale)
    assert features.rows.shape == (60, plain.rows.shape[1] + 5)
    fitted = ngrams.fit_machines(features, few.labels, 2, C=1.0)
    folded = features.directions.folded(fitted)
    np.testing.assert_allclose(folded(plain.rows[np.arange(60)]), fitted(features.rows), atol=1e-4)


def test_memory_is_bounded(monkeypatch):
    few, further = texts(60, 0), texts(200, 2)
    assert len(ngram_features.beside(few, further, 0)) == 200
    monkeypatch.setattr(ngram_features, "MAX_VALUES", float(ngram_features.values_of(few).sum() * 2))
    fit = ngram_features.beside(few, further, 0)
    assert 50 < len(fit) <= 60
    assert (np.diff(fit.indices) > 0).all()
    monkeypatch.setattr(ngram_features, "MOST_UNLABELLED", 7)
    assert len(ngram_features.beside(few, further, 0)) == 7


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory) -> str:
    rows = [{"text": text} for text, _ in make_rows(400, 9)]
    return write_jsonl(tmp_path_factory.mktemp("data") / "unlabelled.jsonl", rows)


def test_resumed_training_ends_with_the_same_weights(files, unlabelled, tmp_path, stop_after, monkeypatch):  # noqa: F811
    quiet = {"show_progress": False, "epochs": 2}
    metrics = train(files["train"], unlabelled=unlabelled, output=tmp_path / "whole", **quiet)
    assert metrics["ngrams"]["unlabelled"]["rows"] == 400
    assert json.loads((tmp_path / "whole" / "run.json").read_text())["data"]["unlabelled"] == unlabelled
    with monkeypatch.context():
        stop_after(4)
        with pytest.raises(Interrupted):
            train(files["train"], unlabelled=unlabelled, output=tmp_path / "parts", **quiet)
    monkeypatch.undo()
    other = write_csv(tmp_path / "other.csv", make_rows(50, 3))
    with pytest.raises(UserError, match="the data has changed"):
        train(files["train"], unlabelled=other, output=tmp_path / "parts", resume=True, **quiet)
    with pytest.raises(UserError, match="the data has changed"):
        train(files["train"], output=tmp_path / "parts", resume=True, **quiet)
    train(files["train"], unlabelled=unlabelled, output=tmp_path / "parts", resume=True, **quiet)
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_the_estimator_learns_their_words():
    labelled, further = make_rows(60, 0), [f"{text} zebra" for text, _ in make_rows(20, 1)]
    model = TextClassifier(epochs=1).fit(*zip(*labelled, strict=True), unlabelled=further)
    assert "zebra" in model.tokenizer_.get_vocab()
    assert model._predictor.trained.metrics["ngrams"]["unlabelled"]["rows"] == 20
    assert set(model.predict(["a cat and a dog"])) <= set(model.classes_)


class TestMistakes:
    def test_of_the_file(self, files, tmp_path):
        (tmp_path / "empty.csv").write_text("text\n")
        (tmp_path / "columns.csv").write_text("x,y\na,b\n")
        for name, part in (("empty.csv", "no rows"), ("columns.csv", "--text-column"), ("no.csv", "no such file")):
            with pytest.raises(UserError, match=part):
                train(files["train"], unlabelled=str(tmp_path / name), output=tmp_path / "run", show_progress=False)
            assert not (tmp_path / "run").exists()
        with pytest.raises(UserError, match="standard input"):
            train(files["train"], unlabelled="-", output=tmp_path / "run", show_progress=False)

    def test_of_the_labels_and_the_preset(self):
        with pytest.raises(UserError, match="several labels"):
            TextClassifier().fit(["a", "b"], [["x"], ["y"]], unlabelled=["c"])
        with pytest.raises(UserError, match="this preset does not have"):
            TextClassifier(preset="encoder").fit(["a", "b"], ["x", "y"], unlabelled=["c"])
        with pytest.raises(UserError, match="no texts"):
            TextClassifier().fit(["a", "b"], ["x", "y"], unlabelled=[])
        with pytest.raises(ValueError, match="not one string"):
            TextClassifier().fit(["a", "b"], ["x", "y"], unlabelled="c")
