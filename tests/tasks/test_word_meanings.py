"""What the words of an encoder mean, and a classifier that knows them."""

import json

import numpy as np
import pytest

from fastformer import TextClassifier
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.runs import folder
from fastformer.tasks.classification import encoding, ngram_features
from fastformer.tasks.encoder.words import Meanings

GOOD, BAD = ["fine", "great", "lovely", "superb"], ["awful", "poor", "dull", "dire"]
FILLER = ["the", "film", "was", "and", "we", "saw", "it", "on", "monday"]


@pytest.fixture(scope="module")
def known() -> Meanings:
    """Good words mean one thing, bad ones another, the rest nothing."""
    tokenizer = train_tokenizer("pieces", [" ".join(GOOD + BAD + FILLER)] * 2, vocab_size=200)
    table = np.zeros((len(tokenizer), 4), np.float32)
    for words, sign in ((GOOD, 1), (BAD, -1)):
        table[tokenizer.convert_tokens_to_ids(words), 0] = sign
    return Meanings(tokenizer, table)


def reviews(good: list[str], bad: list[str], count: int = 60) -> tuple[list[str], list[str]]:
    random = np.random.default_rng(0)
    labels = ["good" if number % 2 else "bad" for number in range(count)]
    words = {"good": good, "bad": bad}
    texts = [" ".join([*random.choice(FILLER, size=6), random.choice(words[label])]) for label in labels]
    return texts, labels


def test_vectors_of_words(known):
    vectors = known.of(["great", "", "poor", "greatpoor"])
    np.testing.assert_array_equal(vectors[:3, 0], [1, 0, -1])
    assert known.of([]).shape == (0, 4)


def test_texts_of_another_language_are_not_covered(known):
    assert known.cover({"great": 3, "xyz": 2})
    assert not known.cover({"great": 1, "gut": 5})
    assert not known.cover({})


def test_a_tokenizer_keeps_known_words_that_its_texts_lack(known):
    texts = ["great film"] * 3
    more = train_tokenizer("pieces", texts, vocab_size=50, further=lambda counts: known.words)
    assert "dull" not in train_tokenizer("pieces", texts, vocab_size=50).get_vocab()
    assert more.tokenize("dull film") == ["dull", "film"]
    small = train_tokenizer("pieces", texts, vocab_size=5, further=lambda counts: known.words)
    assert "film" in small.get_vocab()  # the words of the texts come first
    assert "dull" not in small.get_vocab()


def test_a_classifier_answers_by_words_it_was_never_shown(known, monkeypatch, tmp_path):
    monkeypatch.setattr(encoding, "_known_words", lambda show: known)
    texts, labels = reviews(GOOD[:2], BAD[:2])
    model = TextClassifier(epochs=1).fit(texts, labels)
    unseen, truth = reviews(GOOD[2:], BAD[2:], 20)
    assert (model.predict(unseen) == np.array(truth)).all()
    table = model.model_.get_input_embeddings().weight
    assert not table[model.tokenizer_.convert_tokens_to_ids(GOOD[2:])].any()  # the encoder has not learned them
    told = model._predictor.trained.metrics["ngrams"]
    assert told["meanings"] > 0
    model.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["ngram_meanings"] is True
    again = TextClassifier.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(unseen), model.predict_proba(unseen))
    without = TextClassifier(epochs=1, init="none").fit(texts, labels)
    assert without.model_.config.ngram_meanings is False


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(folder, "entry_points", lambda group: [])
    monkeypatch.setattr(encoding, "_shipped", Meanings.of_run)  # what an earlier test has loaded does not count
    assert encoding._known_words(show=True) is None
    told = " ".join(capsys.readouterr().err.split())
    assert "pip install fastformer-base-en" in told
    assert "pip install ./packages/fastformer-base-en" in told
    assert "run folder" not in told
    assert encoding._known_words(show=False) is None
    assert not capsys.readouterr().err


def test_long_texts_do_without(known, monkeypatch):
    monkeypatch.setattr(encoding, "_known_words", lambda show: known)
    monkeypatch.setattr(encoding, "LONG_TEXTS", 5)
    monkeypatch.setattr(ngram_features, "LONG_TEXTS", 5)
    model = TextClassifier(epochs=1).fit(*reviews(GOOD[:2], BAD[:2]))
    assert model.model_.config.ngram_meanings is False
    assert GOOD[3] not in model.tokenizer_.get_vocab()
