"""ROUGE against numbers counted by hand, in several scripts; intervals; baselines."""

import tracemalloc

import numpy as np
import pytest

from fastformer.errors import UserError
from fastformer.tasks.summarization.baselines import baseline_summaries
from fastformer.tasks.summarization.metrics import (
    ENGLISH,
    OTHER,
    LanguageDetector,
    UnicodeWords,
    language_code,
    mean_and_interval,
    rouge,
    rouge_of_each,
)


def test_counted_by_hand():
    # Of 5 and 4 words 3 are shared: F = 2·3 / 9. One pair of 4 and 3: 2·1 / 7. In order: "the cat … mat".
    [found] = rouge_of_each(["the cat sat on mat"], ["the cat with mat"])
    assert found == pytest.approx([6 / 9, 2 / 7, 6 / 9, 6 / 9])


def test_lsum_goes_sentence_by_sentence():
    # The sentences are swapped: no common order over the whole, but each sentence is there.
    [found] = rouge_of_each(["It slept all day.\nA cat sat."], ["A cat sat.\nIt slept all day."])
    assert found[0] == found[3] == 1
    assert found[2] == pytest.approx(4 / 7)


def test_english_is_stemmed_and_other_languages_are_not():
    assert rouge_of_each(["cats running"], ["cat runs"])[0, 0] == 1
    assert rouge_of_each(["cats running"], ["cat runs"], OTHER)[0, 0] == 0
    # rouge-score by itself drops letters outside ASCII and would find nothing here.
    assert rouge_of_each(["Hà Nội mưa"], ["hà nội nắng"], OTHER)[0, 0] == pytest.approx(2 / 3)


def test_words_of_any_script():
    words = UnicodeWords().tokenize
    assert words("Bão số 3, gió-giật!") == ["bão", "số", "3", "gió", "giật"]
    assert words("我吃饭 abc") == ["我", "吃", "饭", "abc"]
    assert words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert words("e\u0301te\u0301") == words("été")  # accents apart or joined


def test_language_by_letters():
    for text, language in (("A naïve café in an English text about many other things" * 2, OTHER), ("plain", ENGLISH)):
        detector = LanguageDetector()
        detector.read(text)
        assert detector.language() == language
    assert LanguageDetector().language() == ENGLISH


def test_languages_are_two_letters():
    assert [language_code(given) for given in ("en", "EN", "vi", "other")] == ["en", "en", "vi", "other"]
    for given in ("english", "en-US", "e", "eng", "12"):
        with pytest.raises(UserError, match=f"--language {given}: give a two-letter code, such as en"):
            language_code(given)


def test_intervals_hold_the_mean_and_narrow_with_documents():
    scores = np.random.default_rng(0).random((400, 4))
    many, few = mean_and_interval(scores), mean_and_interval(scores[:25])
    assert many == mean_and_interval(scores)
    assert many != mean_and_interval(scores, seed=1)
    for one in (many, few):
        low, high = one["intervals"]["rouge1"]
        assert low < one["rouge1"] < high
    width = [one["intervals"]["rouge1"][1] - one["intervals"]["rouge1"][0] for one in (many, few)]
    assert width[1] / width[0] == pytest.approx(4, rel=0.4)  # √(400 / 25)
    deviation = 100 * scores[:, 0].std() / 20
    assert width[0] == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_baselines_take_sentences():
    article = "One. Two. Three. Four."
    found = baseline_summaries(article, (0, 0))
    assert list(found) == ["lead 3", "random 3", "lead 1", "random 1"]
    assert found["lead 1"] == "One."
    assert found["lead 3"] == "One.\nTwo.\nThree."
    drawn = found["random 3"].split("\n")
    assert len(drawn) == 3
    assert drawn == sorted(drawn, key=article.index)  # in the order of the article
    assert found == baseline_summaries(article, (0, 0))
    assert len({baseline_summaries(article, (0, row))["random 1"] for row in range(20)}) == 4
    assert set(baseline_summaries("Alone", (0, 0)).values()) == {"Alone"}


def test_a_perfect_summary():
    found = rouge(["Same words."] * 3, ["Same words."] * 3)
    assert found["rouge1"] == found["rougeLsum"] == 100
    assert found["intervals"]["rouge1"] == [100, 100]


def test_intervals_of_many_documents_take_little_memory():
    scores = np.random.default_rng(0).random((20_000, 4))
    tracemalloc.start()
    mean_and_interval(scores)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * scores.nbytes
