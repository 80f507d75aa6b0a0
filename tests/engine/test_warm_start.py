"""`--init`: a model starts from word vectors, from another library's encoder, or from an earlier run."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from transformers import BertConfig, BertModel, CLIPConfig, CLIPModel, T5Config, T5Model

from fastformer import TextClassifier
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.data.tokenizers import load_tokenizer
from fastformer.engine.hub import local_folder
from fastformer.engine.warm_start import PAIRS, WORDS
from fastformer.engine.word_encoder import open_encoder, word_vectors
from fastformer.errors import UserError
from fastformer.runs.folder import open_run
from fastformer.tasks import verbs

from ..tasks.conftest import FILLER, files, make_rows, run_folder, write_csv  # noqa: F401  the small task and its run
from ..tasks.conftest import WORDS as TOPICS

train = partial(verbs.train, "classification")

ALL_WORDS = [*FILLER, *(word for words in TOPICS.values() for word in words)]
still = {"show_progress": False, "epochs": 1, "learning_rate": 1e-9}  # the weights stay where they start


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Every test has a cache of its own."""
    monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def save_encoder(folder: Path, build=BertModel, config=None) -> Path:
    """A folder as save_pretrained writes it: small, with random weights, and a tokenizer that splits into letters."""
    tokenizer = train_tokenizer("bpe", ALL_WORDS, vocab_size=270)
    torch.manual_seed(0)
    config = config or BertConfig(
        vocab_size=270, hidden_size=96, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    build(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


def test_a_name_on_the_hub_is_a_start(encoder, files, tmp_path, monkeypatch):  # noqa: F811
    """Without network it is found where the library keeps what it downloaded."""
    kept = tmp_path / "hub" / "models--some--encoder"
    shutil.copytree(encoder, kept / "snapshots" / "abc")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert local_folder("some/encoder") == kept / "snapshots" / "abc"
    train(files["train"], output=tmp_path / "run", init="some/encoder", **still)
    assert open_run(tmp_path / "run").record["init"] == "some/encoder"
    with pytest.raises(UserError, match=r"some/other: no such file or folder here, and the Hugging Face Hub does not"):
        local_folder("some/other")
    assert local_folder("glove.txt") == Path("glove.txt")


@pytest.fixture(scope="module")
def sentence_encoder(encoder, tmp_path_factory):
    """The same encoder as a sentence-transformers folder: first token, length 1."""
    folder = tmp_path_factory.mktemp("sentence") / "model"
    shutil.copytree(encoder, folder)
    names = ("Transformer", "Pooling", "Normalize")
    modules = [
        {"idx": place, "path": "" if not place else f"{place}_{name}", "type": f"sentence_transformers.models.{name}"}
        for place, name in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 96, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def weights(run) -> dict[str, torch.Tensor]:
    return load_file(f"{run}/model.safetensors")


def table(run) -> tuple[dict[str, int], np.ndarray]:
    return load_tokenizer(run).get_vocab(), weights(run)[WORDS].numpy()


def cosines(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


class TestVectors:
    """Word vectors from a file or an encoder."""

    def test_a_file_of_vectors_fills_the_embedding(self, files, tmp_path):  # noqa: F811
        vectors = np.random.default_rng(0).normal(3, 1, (len(ALL_WORDS), 128)).round(4)
        lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in zip(ALL_WORDS, vectors, strict=True)]
        (tmp_path / "glove.txt").write_text("\n".join(lines))
        options = {"init": str(tmp_path / "glove.txt"), "tokenizer": "word"}
        train(files["train"], output=tmp_path / "run", **options, **still)
        vocabulary, started = table(tmp_path / "run")
        rows = started[[vocabulary[word] for word in ALL_WORDS]]
        np.testing.assert_allclose(cosines(rows), cosines(vectors - vectors.mean(0)), atol=0.05)
        assert not started[vocabulary["[PAD]"]].any()

    def test_the_presets_of_the_paper_take_vectors_as_they_are(self, files, tmp_path):  # noqa: F811
        vectors = np.random.default_rng(0).normal(3, 1, (len(ALL_WORDS), 256)).round(4)
        lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in zip(ALL_WORDS, vectors, strict=True)]
        (tmp_path / "glove.txt").write_text("\n".join(lines))
        train(files["train"], output=tmp_path / "run", init=str(tmp_path / "glove.txt"), preset="paper-imdb", **still)
        vocabulary, started = table(tmp_path / "run")
        np.testing.assert_allclose(started[[vocabulary[word] for word in ALL_WORDS]], vectors, rtol=1e-5)

    def test_on_little_data_vectors_move_little(self, encoder, files, tmp_path):  # noqa: F811
        options = {"epochs": 1, "show_progress": False}
        train(files["train"], output=tmp_path / "warm", init=str(encoder), **options)
        train(files["train"], output=tmp_path / "start", init=str(encoder), **still)
        train(files["train"], output=tmp_path / "cold", **options)
        train(files["train"], output=tmp_path / "cold-start", **still)
        pairs = (("warm", "start"), ("cold", "cold-start"))
        moved = [np.abs(table(tmp_path / end)[1] - table(tmp_path / start)[1]).max() for end, start in pairs]
        assert 0 < moved[0] < moved[1] / 10

    def test_an_encoder_gives_words_its_vectors(self, encoder, files, tmp_path):  # noqa: F811
        train(files["train"], output=tmp_path / "run", init=str(encoder), **still)
        vocabulary, started = table(tmp_path / "run")
        tokenizer, model = load_tokenizer(encoder), BertModel.from_pretrained(encoder).eval()
        words = [word for word in vocabulary if not word.startswith("[")]
        with torch.no_grad():
            outputs = [model(**tokenizer(word, return_tensors="pt")).last_hidden_state for word in words]
        theirs = np.array([output.mean(1)[0].numpy() for output in outputs])
        # A wider model loses nothing; the mean has [UNK] and [MASK] in it too.
        rows = started[[vocabulary[word] for word in words]]
        np.testing.assert_allclose(cosines(rows), cosines(theirs - theirs.mean(0)), atol=0.1)

    def test_frequent_words_are_small(self, encoder, files, tmp_path):  # noqa: F811
        train(files["train"], output=tmp_path / "run", init=str(encoder), **still)
        vocabulary, started = table(tmp_path / "run")
        sizes = np.linalg.norm(started, axis=1)
        assert sizes[[vocabulary[word] for word in FILLER]].max() < sizes[vocabulary["otter"]]
        assert sizes.max() < 3 * 0.1 * 128**0.5  # an embedding that starts at random has numbers of size 0.1

    def test_what_sentence_transformers_asks_for_is_done(self, encoder, sentence_encoder):
        tokenizer, model = load_tokenizer(encoder), BertModel.from_pretrained(encoder).eval()
        vectors = word_vectors(open_encoder(sentence_encoder), ALL_WORDS, show_progress=False)
        np.testing.assert_allclose(np.linalg.norm(vectors.astype(np.float32), axis=1), 1, atol=1e-3)
        for word, vector in list(zip(ALL_WORDS, vectors, strict=True))[:5]:
            with torch.no_grad():
                first = model(**tokenizer(word, return_tensors="pt")).last_hidden_state[0, 0]
            np.testing.assert_allclose(vector, first / first.norm(), atol=1e-3)

    def test_a_model_with_encoder_and_decoder_gives_its_encoder(self, tmp_path):
        config = T5Config(vocab_size=270, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
        folder = save_encoder(tmp_path / "t5", T5Model, config)
        assert word_vectors(open_encoder(folder), ALL_WORDS, show_progress=False).shape[1] == 32

    def test_byte_level_tokens_are_read_as_text(self, encoder, files, tmp_path):  # noqa: F811
        train(files["train"], output=tmp_path / "run", init=str(encoder), tokenizer="bpe", **still)
        vocabulary, started = table(tmp_path / "run")
        assert cosines(started[[vocabulary["cat"], vocabulary["Ġcat"]]])[0, 1] == pytest.approx(1, abs=1e-3)


class TestCache:
    def test_the_second_time_no_model_is_needed(self, encoder, cache, monkeypatch):
        first = word_vectors(open_encoder(encoder), ALL_WORDS, show_progress=False)
        assert len(list(cache.iterdir())) == 1
        monkeypatch.setattr("fastformer.engine.word_encoder.load_encoder", None)
        second = word_vectors(open_encoder(encoder), ALL_WORDS, show_progress=False)
        np.testing.assert_array_equal(first, second)

    def test_other_words_or_other_weights_are_encoded_anew(self, encoder, cache, tmp_path):
        word_vectors(open_encoder(encoder), ALL_WORDS, show_progress=False)
        word_vectors(open_encoder(encoder), ALL_WORDS[:5], show_progress=False)
        shutil.copytree(encoder, tmp_path / "other")
        model = BertModel.from_pretrained(tmp_path / "other")
        model.embeddings.word_embeddings.weight.data *= 2
        model.save_pretrained(tmp_path / "other")
        word_vectors(open_encoder(tmp_path / "other"), ALL_WORDS, show_progress=False)
        assert len(list(cache.iterdir())) == 3

    def test_a_broken_file_is_made_anew(self, encoder, cache):
        first = word_vectors(open_encoder(encoder), ALL_WORDS, show_progress=False)
        [file] = cache.iterdir()
        file.write_bytes(file.read_bytes()[:100])
        np.testing.assert_array_equal(word_vectors(open_encoder(encoder), ALL_WORDS, show_progress=False), first)
        np.testing.assert_array_equal(load_file(file)["vectors"].numpy(), first)

    def test_a_place_that_cannot_be_written_costs_only_the_cache(self, encoder, tmp_path, monkeypatch, capsys):
        (tmp_path / "file").write_text("not a folder")
        monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path / "file"))
        assert len(word_vectors(open_encoder(encoder), ALL_WORDS, show_progress=False)) == len(ALL_WORDS)
        assert "not kept for the next time" in capsys.readouterr().err


class TestRun:
    def test_the_same_task_goes_on_where_it_was(self, run_folder, files, tmp_path):  # noqa: F811
        train(files["train"], output=tmp_path / "run", init=str(run_folder), **still)
        before, after = weights(run_folder), weights(tmp_path / "run")
        assert {name for name in before if not name.startswith("ngrams.")} <= after.keys()
        head = "classifier.weight"
        louder = after[head].norm() / before[head].norm()  # both runs set their temperature
        for name, weight in before.items():
            if name.startswith("ngrams."):  # fitted to the data at hand
                continue
            factor = louder if name.startswith("classifier.") else 1.0
            torch.testing.assert_close(after[name], weight * factor, rtol=0, atol=1e-5)

    def test_other_labels_get_a_new_head(self, run_folder, tmp_path):  # noqa: F811
        rows = [
            (text, {"animal": "alive", "food": "edible", "tool": "useful"}[label]) for text, label in make_rows(80, 0)
        ]
        train(write_csv(tmp_path / "train.csv", rows), output=tmp_path / "run", init=str(run_folder), **still)
        before, after = weights(run_folder), weights(tmp_path / "run")
        for name, weight in before.items():
            if name.startswith("ngrams."):  # fitted to the data at hand
                continue
            kept = not name.startswith("classifier.")
            assert torch.allclose(after[name], weight, rtol=0, atol=1e-6) == kept

    def test_with_another_vocabulary_words_keep_their_vectors(self, run_folder, files, tmp_path):  # noqa: F811
        rows = [(f"{text} zebra zebu", label) for text, label in make_rows(80, 0)]
        source = write_csv(tmp_path / "train.csv", rows)
        train(source, output=tmp_path / "run", init=str(run_folder), tokenizer="word", **still)
        (old_words, old), (words, new) = table(run_folder), table(tmp_path / "run")
        learned = old.any(axis=1)
        shared = [word for word in words if word in old_words and learned[old_words[word]]]
        assert len(shared) > 25
        np.testing.assert_allclose(
            new[[words[word] for word in shared]], old[[old_words[word] for word in shared]], atol=1e-6
        )
        assert new[words["zebra"]].std() == pytest.approx(old[learned].std(), rel=0.6)
        assert weights(tmp_path / "run")[PAIRS].abs().max() < 1e-6  # its rows are numbered by the old vocabulary

    def test_another_mixer_takes_the_words_only(self, run_folder, files, tmp_path):  # noqa: F811
        train(files["train"], output=tmp_path / "run", init=str(run_folder), mixer="transformer", **still)
        np.testing.assert_allclose(table(tmp_path / "run")[1], table(run_folder)[1], atol=1e-6)

    def test_the_run_remembers_its_start(self, run_folder, files, tmp_path):  # noqa: F811
        train(files["train"], output=tmp_path / "run", init=str(run_folder), **still)
        assert open_run(tmp_path / "run").record["init"] == str(run_folder)

    def test_in_scikit_learn(self, run_folder):  # noqa: F811
        texts, labels = zip(*make_rows(60, 7), strict=True)
        model = clone(TextClassifier(init=str(run_folder), epochs=1, learning_rate=1e-9)).fit(texts, labels)
        assert model.score(texts, labels) > 0.9  # it knows them already


class TestMistakes:
    def check(self, match, files, tmp_path, init, **options):  # noqa: F811
        with pytest.raises(UserError, match=match) as caught:
            train(files["train"], output=tmp_path / "run", init=str(init), **still, **options)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "run").exists()

    def test_nothing_there(self, files, tmp_path):  # noqa: F811
        self.check("no such file or folder; give --init", files, tmp_path, tmp_path / "nothing")
        (tmp_path / "empty").mkdir()
        self.check("holds no model .no config.json", files, tmp_path, tmp_path / "empty")

    def test_not_vectors(self, files, tmp_path):  # noqa: F811
        self.check("is not a GloVe file", files, tmp_path, files["train"])

    def test_one_known_word(self, files, tmp_path):  # noqa: F811
        (tmp_path / "one.txt").write_text(" ".join([ALL_WORDS[0], *["0.5"] * 128]) + "\n")
        self.check("all known words have the same vector", files, tmp_path, tmp_path / "one.txt")

    def test_pickled_weights_are_never_loaded(self, encoder, files, tmp_path):  # noqa: F811
        shutil.copytree(encoder, tmp_path / "pickled")
        (tmp_path / "pickled" / "model.safetensors").rename(tmp_path / "pickled" / "pytorch_model.bin")
        self.check("only pickled weights", files, tmp_path, tmp_path / "pickled")

    def test_code_in_the_folder_is_never_run(self, encoder, files, tmp_path):  # noqa: F811
        shutil.copytree(encoder, tmp_path / "code")
        config = json.loads((tmp_path / "code" / "config.json").read_text())
        config |= {"model_type": "strange", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}
        (tmp_path / "code" / "config.json").write_text(json.dumps(config))
        (tmp_path / "code" / "evil.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'w')\nclass C: pass\nclass M: pass"
        )
        self.check("the encoder cannot be loaded", files, tmp_path, tmp_path / "code")
        assert not (tmp_path / "ran").exists()

    def test_a_damaged_or_unfit_encoder(self, encoder, files, tmp_path):  # noqa: F811
        shutil.copytree(encoder, tmp_path / "damaged")
        (tmp_path / "damaged" / "model.safetensors").write_bytes(b"no weights")
        self.check("the encoder cannot be loaded", files, tmp_path, tmp_path / "damaged")
        save_file({"some.weight": torch.ones(3)}, tmp_path / "damaged" / "model.safetensors", {"format": "pt"})
        self.check("the weights are of another", files, tmp_path, tmp_path / "damaged")
        tower = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        config = CLIPConfig(text_config={**tower, "vocab_size": 270}, vision_config=tower, projection_dim=8)
        self.check("is not a text encoder", files, tmp_path, save_encoder(tmp_path / "clip", CLIPModel, config))

    def test_unknown_pooling(self, sentence_encoder, files, tmp_path):  # noqa: F811
        shutil.copytree(sentence_encoder, tmp_path / "max")
        (tmp_path / "max" / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
        self.check("pooling by max_tokens is not known here", files, tmp_path, tmp_path / "max")

    def test_a_run_of_another_width(self, run_folder, files, tmp_path):  # noqa: F811
        match = r"its model has width 128, this one 256; use its --preset .default"
        self.check(match, files, tmp_path, run_folder, preset="paper-imdb")

    def test_a_run_of_a_task_with_another_encoder(self, run_folder, files, tmp_path):  # noqa: F811
        shutil.copytree(run_folder, tmp_path / "news")
        weights = load_file(tmp_path / "news" / "model.safetensors")
        save_file({f"news.{name}": weight for name, weight in weights.items()}, tmp_path / "news" / "model.safetensors")
        self.check("a run of classification has no encoder that can start this one", files, tmp_path, tmp_path / "news")

    def test_an_export_or_an_unfinished_run(self, run_folder, files, tmp_path):  # noqa: F811
        shutil.copytree(run_folder, tmp_path / "export")
        record = json.loads((tmp_path / "export" / "run.json").read_text())
        (tmp_path / "export" / "run.json").write_text(json.dumps({**record, "export": {}}))
        self.check("is an export", files, tmp_path, tmp_path / "export")
        (tmp_path / "unfinished" / "checkpoints").mkdir(parents=True)
        self.check("training has not finished", files, tmp_path, tmp_path / "unfinished")
