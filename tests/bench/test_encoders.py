"""`bench encoder`: its scores on cases that can be worked out by hand."""

import numpy as np
import pytest

from fastformer.bench.encoders import bm25, found_facts, long_documents, long_scores, ndcg


def test_bm25_prefers_rare_words_and_short_texts():
    texts = [
        "the cat sat",
        "the dog sat on the mat with the dog",
        "the cat and the dog and the cow and a hen",
        "the hen",
    ]
    [cat, the] = bm25(texts, ["cat", "the"])
    assert cat[0] > cat[2] > cat[1] == cat[3] == 0
    assert max(the) < cat[0]
    mean = sum(len(text.split()) for text in texts) / 4  # and "cat" is in 2 of 4
    assert cat[0] == pytest.approx(np.log(1 + 2.5 / 2.5) * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / mean)))


def test_ndcg_is_one_for_the_best_order_and_falls_with_the_rank():
    names = [str(number) for number in range(20)]
    falling = -np.arange(20.0)
    assert ndcg(falling, names, {"0": 1, "1": 1}) == 1
    assert ndcg(falling, names, {"1": 1}) == pytest.approx(1 / np.log2(3))
    assert ndcg(falling, names, {"15": 1}) == 0


def test_the_fact_stands_in_the_last_tenth():
    passages = [" ".join(f"p{number}w{word}" for word in range(100)) for number in range(400)]
    documents, queries, without = long_documents(passages, 3)
    for document, query, rest in zip(documents, queries, without, strict=True):
        words, fact = document.split(), query.split()[0].split("w")[0]
        places = [place for place, word in enumerate(words) if word.startswith(f"{fact}w")]
        assert len(words) == 5000
        assert places[0] >= 4500
        assert fact + "w" not in rest
        assert not set(query.split()) & set(words)


def test_a_fact_is_found_by_the_best_passage_of_its_document_and_a_tie_is_no_find():
    whole = np.array([[0.9, 0.1, 0.2], [0.5, 0.5, 0.1], [0.3, 0.4, 0.2]])
    passages = np.array([[0.1, 0.9, 0.3, 0.2], [0.6, 0.1, 0.7, 0.2], [0.1, 0.2, 0.8, 0.8]])  # of the first document two
    found = found_facts(whole, passages, [2, 1, 1])
    assert found["found first"] == pytest.approx(1 / 3, abs=1e-3)
    assert found["found first by passages"] == pytest.approx(2 / 3, abs=1e-3)
    assert found["found in ten"] == found["found in ten by passages"] == 1


def test_an_encoder_that_reads_the_beginning_alone_finds_facts_by_passages_and_not_by_documents():
    """Every passage says one word of its own: the two halves of a fact have it in common, and nothing else has."""
    count, words = 30, np.random.default_rng(0).normal(size=(900, 64))

    def encode_first_hundred(texts):
        sums = np.stack([words[[int(word[1:]) for word in text.split()[:100]]].sum(axis=0) for text in texts])
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    passages = [" ".join([f"w{number}"] * 200) for number in range(900)]
    found = long_scores(passages, count, {"cut": encode_first_hundred})
    assert found["cut"]["found first"] < 0.2
    assert found["cut"]["moved by the fact"] == found["cut"]["moved by noise"] == 0
    assert found["cut"]["found first by passages"] == found["BM25"]["found first"] == 1
