"""Tokenizers: what is trained, saved, loaded and encoded gives the same ids everywhere, on any text."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer, word_tokenize
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, ByT5Tokenizer, TokenizersBackend

from fastformer.data import nltk_words as nltk
from fastformer.data.nltk_words import nltk_words
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.data.tokenizers import encode_batch, load_tokenizer
from fastformer.errors import UserError

KINDS = ["word", "bpe", "nltk"]
CORPUS = [
    "The film wasn't good. It's 3.14 times too long, said the U.S. critic!",
    "Mr. Smith didn't like it; he walked out, and the film went on.",
    "Tiếng Việt có dấu. Ein größerer Satz. 東京は大きい。",
    '"The good, the bad," she said. (1,000 people agreed; 8/10.)',
] * 2


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind):
    return train_tokenizer(kind, iter(CORPUS), vocab_size=400)


@pytest.fixture(scope="module")
def reloaded(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    tokenizer.save_pretrained(folder)
    assert sorted(file.name for file in folder.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    return [load_tokenizer(folder), load_tokenizer(folder / "tokenizer.json"), AutoTokenizer.from_pretrained(folder)]


def ids(tokenizer, *texts, max_length=None):
    return [row.tolist() for row in encode_batch(tokenizer, texts, max_length)[0]]


def words(tokenizer, text):
    return tokenizer.convert_ids_to_tokens(ids(tokenizer, text)[0])


any_text = st.one_of(st.text(), st.lists(st.sampled_from([*" ".join(CORPUS).split(), "[PAD]", "\n"])).map(" ".join))


class TestEveryKind:
    def test_special_tokens_come_first_and_none_is_added(self, tokenizer):
        assert [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.mask_token_id] == [0, 1, 2]
        assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["[PAD]", "[UNK]", "[MASK]"]
        assert tokenizer.model_input_names == ["input_ids", "attention_mask"]
        assert len(ids(tokenizer, "film")[0]) == len(tokenizer.tokenize("film"))

    @settings(max_examples=60, deadline=None)
    @given(texts=st.lists(any_text, min_size=1, max_size=4))
    def test_ids_are_the_same_alone_in_a_batch_saved_and_pickled(self, tokenizer, reloaded, texts):
        together = ids(tokenizer, *texts)
        assert together == [ids(tokenizer, text)[0] for text in texts]
        assert together == tokenizer(texts)["input_ids"]
        assert together == [tokenizer.encode(text) for text in texts]
        for other in reloaded:
            assert ids(other, *texts) == together

    def test_a_pickled_copy_is_the_same(self, tokenizer):
        copy = pickle.loads(pickle.dumps(tokenizer))
        assert ids(copy, *CORPUS, "[MASK] me") == ids(tokenizer, *CORPUS, "[MASK] me")

    @settings(max_examples=60, deadline=None)
    @given(text=any_text)
    def test_ids_stay_inside_the_vocabulary_and_text_never_becomes_padding_or_a_mask(self, tokenizer, text):
        row = ids(tokenizer, text)[0]
        assert all(0 <= index < len(tokenizer) for index in row)
        assert not {0, 2} & set(row)

    def test_special_tokens_added_later_are_saved(self, kind, tmp_path):
        tokenizer = train_tokenizer(kind, CORPUS, vocab_size=300)
        tokenizer.add_special_tokens({"bos_token": "[BOS]", "eos_token": "[EOS]"})
        tokenizer.save_pretrained(tmp_path)
        other = load_tokenizer(tmp_path)
        assert len(other) == len(tokenizer)
        assert other.eos_token_id == tokenizer.eos_token_id == len(tokenizer) - 1
        assert ids(other, *CORPUS) == ids(tokenizer, *CORPUS)

    def test_training_is_deterministic_and_streams(self, kind, tokenizer):
        again = train_tokenizer(kind, (text for text in CORPUS), vocab_size=400)
        assert again.get_vocab() == tokenizer.get_vocab()

    def test_cut_texts_are_counted(self, tokenizer):
        rows, cut = encode_batch(tokenizer, ["film " * 50, "film", "", "film " * 51], max_length=10)
        assert [len(row) for row in rows[:1] + rows[2:]] == [10, 0, 10]
        assert cut == 2
        assert rows[0].dtype == np.int32
        assert encode_batch(tokenizer, ["film " * 50])[1] == 0

    def test_half_a_surrogate_pair_is_text_too(self, tokenizer):
        assert ids(tokenizer, "film \ud800") == ids(tokenizer, "film ?")

    def test_earlier_padding_and_truncation_leave_no_trace(self, tokenizer):
        before = ids(tokenizer, *CORPUS)
        tokenizer(CORPUS, padding=True, truncation=True, max_length=3)
        assert ids(tokenizer, *CORPUS) == before

    def test_an_error_while_reading_texts_arrives_unchanged(self, kind):
        def broken():
            yield "one text"
            raise UserError("line 2 is broken")

        with pytest.raises(UserError, match="line 2 is broken"):
            train_tokenizer(kind, broken(), vocab_size=300)

    def test_worker_processes_encode_without_a_warning(self, tokenizer, capfd):
        expected = ids(tokenizer, *CORPUS)
        loader = DataLoader(
            CORPUS,
            batch_size=4,
            num_workers=1,
            multiprocessing_context="fork",
            collate_fn=lambda texts: ids(tokenizer, *texts),
        )
        assert [row for batch in loader for row in batch] == expected
        assert "fork" not in capfd.readouterr().err


class TestWord:
    def split(self, text, **options):
        return " ".join(words(train_tokenizer("word", [text], vocab_size=300, min_frequency=1, **options), text))

    def test_words_marks_numbers_and_clitics(self):
        assert self.split("Don't pay $1,000.50; it's the U.S.'s 2nd well-known mp3!") == (
            "do n't pay $ 1,000.50 ; it 's the u.s. 's 2 nd well - known mp3 !"
        )

    def test_curly_apostrophes_are_apostrophes(self):
        assert self.split("can\N{RIGHT SINGLE QUOTATION MARK}t") == "ca n't"

    def test_case_is_kept_on_request(self):
        assert self.split("DON'T Stop", lowercase=False) == "DO N'T Stop"

    def test_accents_stay_and_compose(self):
        assert self.split("Tiê\u0301ng Việt größer हिन्दी") == "tiếng việt größer हिन्दी"

    def test_scripts_without_spaces_are_split_into_characters(self):
        assert self.split("abc漢字カナ 2019年 วันนี้") == "abc 漢 字 カ ナ 2019 年 วั น นี้"

    def test_invisible_characters_vanish(self):
        assert self.split("a\u200bb\x00 c\xa0d") == "a b c d"

    def test_the_frequent_words_win_and_the_rare_are_unknown(self):
        tokenizer = train_tokenizer("word", ["a a a b b c"], vocab_size=4)
        assert words(tokenizer, "a b c") == ["a", "[UNK]", "[UNK]"]
        assert words(train_tokenizer("word", ["a a a b b c"], vocab_size=9), "a b c") == ["a", "b", "[UNK]"]

    def test_masks_can_be_asked_for(self):
        tokenizer = train_tokenizer("word", ["fill the gap"], vocab_size=9, min_frequency=1)
        assert tokenizer.mask_token_id in tokenizer("fill the [MASK]", split_special_tokens=False)["input_ids"]

    def test_five_megabytes_are_one_text(self):
        text = " ".join(CORPUS) * 11_000
        assert len(text) > 5_000_000
        tokenizer = train_tokenizer("word", CORPUS, vocab_size=100)
        rows, cut = encode_batch(tokenizer, [text], max_length=512)
        assert (len(rows[0]), cut) == (512, 1)


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer("bpe", CORPUS, vocab_size=300)


class TestBpe:
    @settings(deadline=None)
    @given(text=any_text)
    def test_any_text_comes_back(self, bpe, text):
        assert bpe.decode(ids(bpe, text)[0]) == text

    def test_a_long_text_without_spaces_trains(self):
        letters = np.random.default_rng(0).choice(list("acgt"), size=200_000)
        tokenizer = train_tokenizer("bpe", ["".join(letters)], vocab_size=500)
        assert len(tokenizer) == 500


class TestNltk:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("I live in the U.S. now. It rains.", "I live in the U.S. now . It rains ."),
            ('He said "hello." She left!', "He said `` hello . '' She left !"),
            ("They can't, won't, and I'm gonna.", "They ca n't , wo n't , and I 'm gon na ."),
            ("Mr. Smith's dog met J. R. Tolkien. Dr. Who?", "Mr. Smith 's dog met J. R. Tolkien . Dr. Who ?"),
            ("wait... what?! ok. so do i. the end.", "wait ... what ? ! ok . so do i . the end ."),
            (
                "It cost $3.88 (in 1,000 cases).\n\nSee p. 5: 6:30 a.m. today.",
                "It cost $ 3.88 ( in 1,000 cases ) . See p . 5 : 6:30 a.m. today .",
            ),
            ("", ""),
        ],
    )
    def test_the_words_are_those_of_word_tokenize(self, text, expected):
        assert nltk_words(text, "rule") == expected

    @pytest.mark.parametrize(
        "text", [*CORPUS[:2], "\"It's 'quoted',\" -- he'd say: [so] {what}?", "more'n 'tis cannot"]
    )
    def test_one_sentence_gives_what_nltk_gives(self, text):
        sentence = text.partition(". ")[0]
        assert nltk_words(sentence, "rule").split() == word_tokenize(sentence, preserve_line=True)

    @settings(max_examples=300, deadline=None)
    @given(text=st.text(alphabet=st.sampled_from([*"aAdns.,:;!?'\"`-()[]{}<>$%*… \n»”’“‘é漢5"])))
    def test_faster_patterns_change_nothing(self, text):
        assert nltk._nltk_tokenize()(text) == NLTKWordTokenizer().tokenize(text)

    def test_pairs_and_split_words(self):
        tokenizer = train_tokenizer("nltk", CORPUS, vocab_size=400)
        pair = tokenizer("The film.", "It's good.")["input_ids"]
        assert " ".join(tokenizer.convert_ids_to_tokens(pair)) == "the film . it 's good ."
        assert tokenizer([("The film.", "It's good.")])["input_ids"] == [pair]
        assert tokenizer(["The", "film"], is_split_into_words=True)["input_ids"] == ids(tokenizer, "The film")[0]

    def test_the_sentence_splitter_is_remembered(self, tmp_path, monkeypatch):
        data = tmp_path / "nltk_data" / "tokenizers" / "punkt_tab" / "english"
        data.mkdir(parents=True)
        for name in ("collocations.tab", "sent_starters.txt", "ortho_context.tab"):
            (data / name).touch()
        (data / "abbrev_types.txt").write_text("zzz\n")  # a splitter that knows one abbreviation
        with monkeypatch.context() as installed:
            installed.setattr("nltk.data.path", [str(tmp_path / "nltk_data")])
            nltk.punkt.cache_clear()
            tokenizer = train_tokenizer("nltk", ["Say zzz. now. Go on."], vocab_size=50, min_frequency=1)
            assert " ".join(words(tokenizer, "Say zzz. now. Go on.")) == "say zzz. now . go on ."
            tokenizer.save_pretrained(tmp_path / "saved")
            assert ids(load_tokenizer(tmp_path / "saved"), "zzz. now.") == ids(tokenizer, "zzz. now.")
        monkeypatch.setattr("nltk.data.path", [])
        nltk.punkt.cache_clear()
        with pytest.raises(UserError, match="punkt_tab"):
            load_tokenizer(tmp_path / "saved")
        nltk.punkt.cache_clear()


class TestForeign:
    """Tokenizers that others made keep their own special tokens."""

    @pytest.fixture
    def bert_like(self, tmp_path):
        names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
        backend = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        backend.enable_padding(length=9)
        backend.enable_truncation(max_length=3)
        roles = {f"{name[1:-1].lower()}_token": name for name in names[:5]}
        TokenizersBackend(tokenizer_object=backend, **roles).save_pretrained(tmp_path)
        return load_tokenizer(tmp_path)

    def test_special_tokens_survive_the_cut(self, bert_like):
        rows, cut = encode_batch(bert_like, ["a b c a b c", "a b", ""], max_length=4)
        assert [row.tolist() for row in rows] == [[2, 5, 6, 3], [2, 5, 6, 3], [2, 3]]
        assert cut == 1
        bert_like.truncation_side = "left"
        assert ids(bert_like, "a b c", max_length=4) == [[2, 6, 7, 3]]

    def test_no_limit_means_no_limit_and_no_warning(self, bert_like, capfd, caplog):
        bert_like.model_max_length = 4
        assert len(ids(bert_like, "a " * 100)[0]) == 102
        assert capfd.readouterr().err == ""
        assert not caplog.records

    def test_a_limit_without_room_for_text_is_refused(self, bert_like):
        with pytest.raises(UserError, match="at least 3"):
            encode_batch(bert_like, ["a"], max_length=2)

    def test_a_bare_file_is_enough(self, tmp_path):
        train_tokenizer("word", CORPUS, vocab_size=50).backend_tokenizer.save(str(tmp_path / "mine.json"))
        tokenizer = load_tokenizer(tmp_path / "mine.json")
        assert [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.mask_token_id] == [0, 1, 2]

    def test_a_missing_padding_token_is_added(self, tmp_path):
        backend = Tokenizer(models.WordLevel({"a": 0, "<|end|>": 1}, unk_token="<|end|>"))
        TokenizersBackend(tokenizer_object=backend, eos_token="<|end|>").save_pretrained(tmp_path)
        tokenizer = load_tokenizer(tmp_path)
        assert (tokenizer.pad_token, tokenizer.pad_token_id, len(tokenizer)) == ("[PAD]", 2, 3)

    def test_tokenizers_without_rust_work(self, tmp_path):
        ByT5Tokenizer(extra_ids=0).save_pretrained(tmp_path)
        rows, cut = encode_batch(load_tokenizer(tmp_path), ["abc", "é"], max_length=3)
        assert [row.tolist() for row in rows] == [[100, 101, 1], [198, 172, 1]]
        assert cut == 1


class TestMistakes:
    def test_training(self):
        with pytest.raises(UserError, match="unknown tokenizer 'words'"):
            train_tokenizer("words", CORPUS, vocab_size=100)
        with pytest.raises(UserError, match="at least 259"):
            train_tokenizer("bpe", CORPUS, vocab_size=100)
        with pytest.raises(UserError, match="no word of the texts occurs 2 times"):
            train_tokenizer("word", ["every word once"], vocab_size=100)
        with pytest.raises(UserError, match="text 2 is None"):
            train_tokenizer("word", ["one", None], vocab_size=100)
        with pytest.raises(UserError, match="in a list"):
            train_tokenizer("word", "one string", vocab_size=100)

    def test_loading(self, tmp_path, monkeypatch):
        monkeypatch.setattr("fastformer.data.tokenizers.HfApi.model_info", lambda *_, **__: 1 / 0)
        for source in (tmp_path / "nowhere", "nobody/nothing"):
            with pytest.raises(UserError, match="no such file or folder"):
                load_tokenizer(source)
        with pytest.raises(UserError, match="holds no tokenizer.json"):
            load_tokenizer(tmp_path)
        (tmp_path / "tokenizer.json").write_text("{broken")
        for source in (tmp_path, tmp_path / "tokenizer.json"):
            with pytest.raises(UserError, match="no tokenizer in"):
                load_tokenizer(source)

    def test_code_in_a_folder_is_never_run(self, tmp_path):
        mapping = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(mapping))
        (tmp_path / "tokenizer.json").write_text("{}")
        (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n")
        with pytest.raises(UserError, match="custom code"):
            load_tokenizer(tmp_path)
        assert not (tmp_path / "ran").exists()
