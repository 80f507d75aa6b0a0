"""The fast way from words to ids gives Rust's ids on any text, and is taken only where it is sure to."""

import gzip
import itertools
import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import TokenizersBackend

from fastformer.data import word_ids
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.data.tokenizers import encode_batch, load_tokenizer, rust_encodings

CORPUS = [
    "The film wasn't good, it's what they'd call 3.14 times too long in the U.S. -- we'll see, I'm told!",
    "internationalization of a 1990s DVD: can't've, won't; you're (he'd) 1,000 THE Film İstanbul café naïve",
] * 2
ENGLISH = """
    a b n t s d m N T S . , ' _ - 1 9 [ ] # don't can't've u.s.a. U.S. 3.14,15. n't N'T a.m. 1,000,000 's'll 'S 're 've
    'LL 'd 'm 1st 3a.b. x1.5 's.a. the film wasn't rock'n'roll '90s o'clock [PAD] [MASK] http://a.b/c?d=e
    internationalization
"""
OTHER = """
    é ’s don’t \u0301 e\u0301 東京 ﬁ Ⅷ \u0130 ß \u200b ٣ ² 😀 n\u02bct \u0149 ſ 'ſ ＇s ｎ't \u212b \u1100\u1161
"""
FRAGMENTS = [
    *(*ENGLISH.split(), *OTHER.split()),
    *(" ", "\n", "\t", "\0", "\x1f", "\x7f", "\x1c", "\x85", "\xa0", "\u2028"),
    *("x" * size for size in (8, 9, 16, 17, 31, 32, 33, 64, 65, 200)),
    *("7" * size for size in (32, 33, 70)),
    *("1." * 9 + "1", "1," * 12, "a." * 8, "a." * 9, "z" * 63 + "n't", "z" * 65 + "n't"),
]
nasty = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)
ascii_text = st.text(st.characters(max_codepoint=127))
any_text = st.text(st.characters(exclude_categories=["Cs"]))
texts_of = [ascii_text, nasty, any_text, st.lists(st.one_of(nasty, any_text), max_size=4).map(" ".join)]


def word_pieces(like: TokenizersBackend) -> TokenizersBackend:
    """A tokenizer of the same words in which every character is a piece: its ids tell where words begin."""
    characters = [chr(code) for code in range(33, 0x180)]
    vocabulary = dict.fromkeys([*like.get_vocab(), *characters, *(f"##{character}" for character in characters)])
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = like.backend_tokenizer.normalizer, like.backend_tokenizer.pre_tokenizer
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    return TokenizersBackend(tokenizer_object=backend, split_special_tokens=True, **special)


WORDS = [train_tokenizer("word", CORPUS, vocab_size=400, lowercase=lowercase) for lowercase in (True, False)]
TOKENIZERS = [*WORDS, *map(word_pieces, WORDS)]


def rust(tokenizer, texts):
    return [encoding.ids for encoding, _ in rust_encodings(tokenizer, texts, None, 0)]


def fast(tokenizer, texts):
    return [ids.tolist() for ids in word_ids.of(tokenizer)(texts, lambda pieces: rust(tokenizer, pieces))]


class TestSameIdsAsRust:
    @given(st.lists(st.one_of(texts_of), max_size=5))
    @settings(max_examples=400, deadline=None)
    def test_on_any_texts(self, texts):
        for tokenizer in TOKENIZERS:
            assert fast(tokenizer, texts) == rust(tokenizer, texts)

    def test_on_every_pair_of_nasty_fragments(self):
        texts = [f"{one}{two}" for one, two in itertools.product(FRAGMENTS, FRAGMENTS)]
        for tokenizer in TOKENIZERS:
            assert fast(tokenizer, texts) == rust(tokenizer, texts)

    def test_on_every_short_text_around_an_apostrophe(self):
        sides = ["".join(side) for size in range(4) for side in itertools.product("nst1_ ", repeat=size)]
        texts = [f"{left}'{right}" for left, right in itertools.product(sides, sides)]
        tokenizer = TOKENIZERS[2]
        assert fast(tokenizer, texts) == rust(tokenizer, texts)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["imdb", "bbc", "vietnamese-news"])
    def test_on_real_texts(self, data, name):
        with gzip.open(data / name / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
            texts = [json.loads(line) for line in itertools.islice(lines, 500)]
        texts = [next(value for value in row.values() if isinstance(value, str))[:20_000] for row in texts]
        for tokenizer in (train_tokenizer("word", texts[:250], vocab_size=5000), TOKENIZERS[2]):
            assert fast(tokenizer, texts) == rust(tokenizer, texts)

    def test_when_more_pieces_come_than_are_kept(self, monkeypatch):
        monkeypatch.setattr(word_ids, "_MOST_PIECES", 3)
        texts = [" ".join(f"{number}th" for number in range(start, start + 9)) for start in range(20)]
        assert fast(TOKENIZERS[2], texts) == rust(TOKENIZERS[2], texts)
        assert len(word_ids.of(TOKENIZERS[2])._pieces) <= 3

    def test_in_several_threads_at_once(self):
        texts = [" ".join(FRAGMENTS[start:] + FRAGMENTS[:start]) for start in range(0, len(FRAGMENTS), 7)]
        tokenizer = word_pieces(WORDS[0])
        expected, found = rust(tokenizer, texts), []
        threads = [threading.Thread(target=lambda: found.append(fast(tokenizer, texts))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [expected] * 8

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_encode_batch_cuts_as_before(self, side, monkeypatch):
        texts = ["", "The film. " * 300, "wasn't 3.14 café " * 200, "film"]
        tokenizer = train_tokenizer("word", CORPUS, vocab_size=400)
        tokenizer.truncation_side = side
        assert word_ids.of(tokenizer) is not None
        for length in (None, 1, 7, 1200):
            rows, cut = encode_batch(tokenizer, texts, length)
            with monkeypatch.context() as patch:
                patch.setattr(word_ids, "of", lambda tokenizer: None)
                expected, expected_cut = encode_batch(tokenizer, texts, length)
            assert [row.tolist() for row in rows] == [row.tolist() for row in expected]
            assert cut == expected_cut
            assert all(row.dtype == "int32" for row in rows)


class TestWhichTokenizers:
    def test_our_own_words_saved_or_not_and_word_pieces(self, tmp_path):
        WORDS[0].save_pretrained(tmp_path)
        assert all(word_ids.of(tokenizer) for tokenizer in [*TOKENIZERS, load_tokenizer(tmp_path)])

    def test_no_other_kind(self):
        assert word_ids.of(train_tokenizer("bpe", CORPUS, vocab_size=400)) is None
        assert word_ids.of(train_tokenizer("nltk", CORPUS, vocab_size=400)) is None

    @pytest.mark.parametrize(
        "change",
        [
            lambda tokenizer, backend: setattr(tokenizer, "split_special_tokens", False),
            lambda tokenizer, backend: tokenizer.add_tokens(["the film"]),
            lambda tokenizer, backend: setattr(backend, "normalizer", normalizers.Lowercase()),
            lambda tokenizer, backend: setattr(
                backend, "pre_tokenizer", pre_tokenizers.Split(Regex(r"\w+"), "removed", invert=True)
            ),
        ],
        ids=["special tokens are read", "added token", "normalizer", "pattern"],
    )
    def test_none_that_was_changed_even_after_use(self, change):
        tokenizer = train_tokenizer("word", CORPUS, vocab_size=400)
        assert word_ids.of(tokenizer)
        change(tokenizer, tokenizer.backend_tokenizer)
        assert word_ids.of(tokenizer) is None

    def test_word_pieces_that_give_up_on_short_words_go_to_rust(self):
        tokenizer = word_pieces(WORDS[0])
        tokenizer.backend_tokenizer.model.max_input_chars_per_word = 5
        assert word_ids.of(tokenizer) is None
