"""Runs of words are not repeated; names of several pieces and characters of several bytes are."""

import pytest
import torch
from transformers import NoRepeatNGramLogitsProcessor

from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.data.tokenizers import encode_batch
from fastformer.tasks.summarization.repeats import NoRepeatedWords, begins_word, readings

TEXTS = ["so the cat sat on the mat with the dog.", "天气很好", "好很气天", "气好天很"] * 5


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer("bpe", TEXTS, vocab_size=300, min_frequency=15)  # characters, not pairs of them


@pytest.fixture(scope="module")
def merged():
    return train_tokenizer("bpe", TEXTS, vocab_size=400, min_frequency=5)  # whole words, but those it does not know


def refused(tokenizer, count: int, written: str) -> set[str]:
    [ids] = encode_batch(tokenizer, [written])[0]
    return {tokenizer.decode([piece]) for piece in NoRepeatedWords(tokenizer, count).ruled_out(ids.tolist())}


def test_what_begins_a_word(bpe):
    texts = {text for text in readings(bpe).values() if begins_word(text)}
    assert {" the", " ", "天", "很"} <= texts
    assert not {"the", "a", ".", "\ufffd"} & texts
    word = train_tokenizer("word", TEXTS, vocab_size=50)
    assert all(map(begins_word, readings(word).values()))


def test_three_words_are_not_written_twice(merged):
    assert refused(merged, 3, "so the cat sat down the cat") == {" sat"}
    assert refused(merged, 3, "so the cat sat down the") == set()
    assert refused(merged, 3, "so the cat sat down a cat") == set()
    assert refused(merged, 2, "so the cat sat down the") == {" cat"}


def test_words_are_the_same_at_the_start_and_after_a_new_line(merged):
    assert refused(merged, 3, "the cat sat down the cat") == {" sat"}
    assert refused(merged, 3, "so the cat sat down\nthe cat") == {" sat"}
    assert refused(merged, 3, "so on\nthe mat so on") == {" the"}  # not the new line, which may always follow
    assert refused(merged, 3, "so on the mat so on\n") == {"th", " the"}


def test_a_word_of_pieces_is_refused_at_its_beginning(bpe):
    assert refused(bpe, 3, "so the cat sat down the cat") == set()  # a space alone begins nothing
    assert refused(bpe, 3, "so the cat sat down the cat ") == {"s"}
    assert refused(bpe, 3, "so the cat sat down the cat s") == set()


def test_a_name_of_many_pieces_may_be_written_again(bpe):
    name = " Xyzzyqq"
    pieces = encode_batch(bpe, [name])[0][0]
    assert len(pieces) > 3
    for end in range(1, len(name) + 1):  # it is neither refused nor broken off
        assert refused(bpe, 3, f"so{name} sat, the{name[:end]}") == set()


def test_a_character_of_many_bytes_may_be_written_again(bpe):
    [pieces] = encode_batch(bpe, ["龘 is 龘"])[0]
    rule = NoRepeatedWords(bpe, 3)
    assert len(encode_batch(bpe, ["龘"])[0][0]) == 3
    assert all(not rule.ruled_out(pieces[:end].tolist()) for end in range(len(pieces) + 1))
    assert refused(bpe, 2, "天气很好天") == {"气"}  # known characters are words


@pytest.mark.parametrize("count", [1, 2, 3])
def test_with_words_for_tokens_it_is_the_rule_of_transformers(count):
    tokenizer = train_tokenizer("word", TEXTS, vocab_size=50)
    random = torch.Generator().manual_seed(count)
    written = torch.randint(3, 8, (20, 12), generator=random)
    written[:, 0] = 0  # the start
    scores = torch.zeros(20, len(tokenizer))
    found = NoRepeatedWords(tokenizer, count)(written, scores)
    expected = NoRepeatNGramLogitsProcessor(count)(written, scores)
    if count == 1:  # theirs counts the start as a word
        expected[:, 0] = 0
    assert torch.equal(found, expected)
    assert found.isinf().any()
    assert not scores.any()
