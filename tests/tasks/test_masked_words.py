"""Masked words: what is hidden, what is learned, and what a run of it is good for."""

import io
import json
import math
import signal
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers.processors import TemplateProcessing
from transformers import pipeline

import fastformer.engine.training
from fastformer import FastformerConfig
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.data.tokenizers import encode_batch
from fastformer.engine.warm_start import PAIRS, WORDS
from fastformer.errors import Interrupted, UserError
from fastformer.export.exporting import export
from fastformer.runs.folder import open_run
from fastformer.tasks import classification, verbs
from fastformer.tasks.masked_words import objective
from fastformer.tasks.masked_words.objective import MaskedWordLearner, hide_at_random, hide_by_hash
from fastformer.tasks.verbs import embed, evaluate, load, predict
from fastformer.tasks.verbs import train as train_task

from .conftest import make_rows, write_csv

train = partial(train_task, "masked-words")

quiet = {"show_progress": False}
ANIMALS = ["cat", "dog", "horse", "otter"]
COLOURS = ["red", "blue", "green", "grey"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Texts in which a word tells what kind of word comes next."""
    random = np.random.default_rng(0)
    lines = [
        " ".join(f"a {random.choice(COLOURS)} {random.choice(ANIMALS)} ." for _ in range(random.integers(2, 6)))
        for _ in range(300)
    ]
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture(scope="module")
def run(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "words"
    train(source, output=folder, epochs=20, **quiet)
    return folder


def batch():
    ids = torch.randint(0, 500, (40, 100), generator=torch.Generator().manual_seed(0))
    return ids, ids >= 3


class TestHiding:
    def test_shares(self):
        ids, may_hide = batch()
        hidden = hide_at_random(ids.repeat(10, 1), may_hide.repeat(10, 1), 2, 500)
        changed, masked = hidden.ids != ids.repeat(10, 1), hidden.ids == 2
        assert hidden.where.sum() / may_hide.repeat(10, 1).sum() == pytest.approx(0.15, abs=0.01)
        assert (masked & hidden.where).sum() / hidden.where.sum() == pytest.approx(0.8, abs=0.02)
        assert (changed & ~masked).sum() / hidden.where.sum() == pytest.approx(0.1, abs=0.02)
        assert not (changed & ~hidden.where).any()

    def test_special_tokens_and_padding_are_never_hidden(self):
        ids, may_hide = batch()
        for hidden in (hide_at_random(ids, may_hide, 2, 500), hide_by_hash(ids, may_hide, 2)):
            assert not (hidden.where & ~may_hide).any()

    def test_scoring_hides_the_same_words_in_any_company(self):
        ids, may_hide = batch()
        whole = hide_by_hash(ids, may_hide, 2)
        alone = hide_by_hash(ids[7:8, :60], may_hide[7:8, :60], 2)
        assert torch.equal(alone.where[0], whole.where[7, :60])
        assert whole.where.sum() / may_hide.sum() == pytest.approx(0.15, abs=0.02)
        assert (whole.ids[whole.where] == 2).all()


class TestLoss:
    @pytest.fixture
    def learner(self):
        torch.manual_seed(0)
        config = FastformerConfig(
            vocab_size=500, hidden_size=16, num_attention_heads=2, intermediate_size=16, initializer_range=0.3
        )
        return MaskedWordLearner(config, 2, [0, 1, 2])

    def test_with_all_words_drawn_it_is_the_whole_sum(self, learner, monkeypatch):
        monkeypatch.setattr(objective, "SAMPLED_WORDS", 500)
        words, targets = torch.randn(30, 16), torch.randint(3, 500, (30,))
        expected = torch.nn.functional.cross_entropy(learner.decoder(words), targets)
        torch.testing.assert_close(learner._sampled_loss(words, targets), expected)

    def test_with_few_words_drawn_it_is_right_on_average(self, learner, monkeypatch):
        monkeypatch.setattr(objective, "SAMPLED_WORDS", 100)
        words, targets = torch.randn(30, 16), torch.randint(3, 500, (30,))
        expected = torch.nn.functional.cross_entropy(learner.decoder(words), targets)
        with torch.no_grad():
            losses = torch.stack([learner._sampled_loss(words, targets) for _ in range(200)])
        assert losses.std() > 0
        assert losses.mean().item() == pytest.approx(expected.item(), rel=0.02)

    def test_only_what_is_not_hidden_tells(self, source, tmp_path):
        """Another word under the mask changes nothing: neither its vector nor its neighbour's pair is read."""
        torch.manual_seed(0)
        config = FastformerConfig(vocab_size=500, hidden_size=16, num_attention_heads=2, bigram_buckets=64)
        learner = MaskedWordLearner(config, 2, [0, 1, 2]).eval()
        torch.nn.init.normal_(learner.fastformer.embeddings.bigram_embeddings.weight)
        ids = torch.randint(3, 500, (1, 50))
        hidden = hide_by_hash(ids, ids > 0, 2)
        assert hidden.where.any()
        changed = torch.where(hidden.where, (ids + 7) % 490 + 3, ids)
        again = objective.Hidden(torch.where(hidden.where, 2, changed), hidden.where)
        mask = torch.ones_like(ids)
        torch.testing.assert_close(learner.states(hidden, mask), learner.states(again, mask))

    def test_texts_without_words_have_no_loss(self, learner):
        ids = torch.zeros(3, 4, dtype=torch.long)
        loss = learner.train()(ids, ids).loss
        loss.backward()
        assert loss == 0
        assert len(learner.eval()(ids, ids).logits) == 0


def test_it_learns_what_comes_next(run, source):
    metrics = json.loads((run / "metrics.json").read_text())
    # Colours and animals are drawn from four each; "a" and "." are certain.
    assert metrics["validation"]["perplexity"] < 1.5 * math.exp((2 * math.log(4) + 2 * 0) / 4)
    scores = evaluate(open_run(run), source, **quiet)
    assert scores["rows"] == 300
    assert scores["perplexity"] == pytest.approx(metrics["validation"]["perplexity"], rel=0.25)


def test_a_run_folder_says_what_it_is(run):
    record = json.loads((run / "run.json").read_text())
    assert record["task"] == "masked-words"
    assert json.loads((run / "config.json").read_text())["architectures"] == ["FastformerForMaskedLM"]
    card = (run / "README.md").read_text()
    assert "fill-mask" in card
    assert "--init words" in card


def test_blanks_are_filled(run, tmp_path):
    (tmp_path / "blanks.txt").write_text("a red [MASK] . a [MASK] dog .\nno blank\n")
    out = io.StringIO()
    assert predict(open_run(run), str(tmp_path / "blanks.txt"), out, **quiet) == 2
    first, second = [json.loads(line)["blanks"] for line in out.getvalue().splitlines()]
    assert len(first) == 2
    assert second == []
    assert set(list(first[0])[:4]) == set(ANIMALS)
    assert set(list(first[1])[:4]) == set(COLOURS)
    assert 0.9 < sum(first[0].values()) <= 1.0001
    with pytest.raises(UserError, match="give a list of texts, not one string"):
        list(load(run).predict("a red [MASK]"))


@pytest.mark.parametrize("marked", [False, True])
def test_the_text_around_a_blank_is_encoded_as_a_whole_text_is(run, marked):
    """With byte pairs a blank stands for its space too; special tokens stand around all of it, once."""
    filler, text = load(open_run(run)), "the sum of the array"
    filler.tokenizer = train_tokenizer("bpe", [text] * 9, vocab_size=400, min_frequency=1)
    if marked:
        marks = [(mark, filler.tokenizer.convert_tokens_to_ids(mark)) for mark in ("[UNK]", "[PAD]")]
        backend = filler.tokenizer.backend_tokenizer
        backend.post_processor = TemplateProcessing(single="[UNK] $A [PAD]", special_tokens=marks)
    [whole], _ = encode_batch(filler.tokenizer, [text])
    tokens = filler.tokenizer.convert_ids_to_tokens(whole)
    expected = ["[MASK]" if token == "Ġsum" else token for token in tokens]
    assert "[MASK]" in expected
    assert filler.tokenizer.convert_ids_to_tokens(filler._encode("the [MASK] of the array")) == expected
    start, end = (tokens[:1], tokens[-1:]) if marked else ([], [])
    assert filler.tokenizer.convert_ids_to_tokens(filler._encode("[MASK]")) == [*start, "[MASK]", *end]


def test_a_word_that_is_several_tokens_has_the_chance_of_the_likeliest(run, monkeypatch):
    """With byte pairs "cat" is a token with the space before it and one without, and a space alone is no word."""
    filler = load(open_run(run))
    expected = filler.fill("a red [MASK] .", top=6)[0]
    best, second, third, *_ = expected
    plain = filler.tokenizer.decode
    alike = {second: f" {best}", third: " "}
    monkeypatch.setattr(filler.tokenizer, "decode", lambda ids: alike.get(plain(ids), plain(ids)))
    found = filler.fill("a red [MASK] .", top=4)[0]
    assert found == {word: chance for word, chance in expected.items() if word not in (second, third)}


def test_transformers_fills_blanks_too(run):
    guesses = pipeline("fill-mask", model=str(run))("a red [MASK] .")
    assert {guess["token_str"] for guess in guesses[:4]} == set(ANIMALS)


def test_here_special_tokens_in_a_text_are_words(run):
    [ids], _ = encode_batch(open_run(run).load_tokenizer(), ["a [PAD] and a [MASK]"])
    assert not {0, 2} & set(ids.tolist())


def test_embed_gives_text_vectors(run, source, tmp_path):
    assert embed(open_run(run), source, tmp_path / "v.npy", **quiet) == (300, 128)
    assert np.load(tmp_path / "v.npy").std() > 0


def test_labels_and_several_files_are_no_obstacle(source, tmp_path):
    table = write_csv(tmp_path / "table.csv", make_rows(30, 0))
    metrics = train([source, table], output=tmp_path / "run", epochs=1, tokenizer="nltk", **quiet)
    assert metrics["rows"] == {"train": 297, "validation": 33}
    assert len(pipeline("fill-mask", model=str(tmp_path / "run"))("a red [MASK] and a [MASK].")) == 2


def test_a_classifier_starts_from_it(run, tmp_path):
    rows = [(f"a {colour} {animal}", animal) for colour in COLOURS for animal in ANIMALS[:2]] * 3
    table = write_csv(tmp_path / "table.csv", rows)
    options = {"init": str(run), "epochs": 1, "learning_rate": 1e-9, **quiet}
    verbs.train("classification", table, output=tmp_path / "run", **options)
    before, after = (load_file(folder / "model.safetensors") for folder in (run, tmp_path / "run"))
    shared = [name for name in before if name.startswith("fastformer.")]
    assert {WORDS, PAIRS} < set(shared)
    for name in shared:
        torch.testing.assert_close(after[name].float(), before[name].float(), rtol=1e-3, atol=1e-4)
    assert (tmp_path / "run" / "tokenizer.json").read_text() == (run / "tokenizer.json").read_text()


def test_resumed_training_ends_with_the_same_weights(source, tmp_path, monkeypatch):
    train(source, output=tmp_path / "whole", epochs=2, **quiet)
    watch, original = fastformer.engine.training._Watch, fastformer.engine.training._Watch.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 12:
            signal.raise_signal(signal.SIGINT)
        original(self, args, state, control, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(watch, "on_step_end", on_step_end)
        with pytest.raises(Interrupted, match="step 12 of"):
            train(source, output=tmp_path / "parts", epochs=2, **quiet)
    with pytest.raises(UserError, match="mixer='fastformer', this command mixer='linear'"):
        train(source, output=tmp_path / "parts", epochs=2, resume=True, mixer="linear", **quiet)
    train(source, output=tmp_path / "parts", epochs=2, resume=True, **quiet)
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


class TestMistakes:
    def check(self, match, call, *arguments, **options):
        with pytest.raises(UserError, match=match) as caught:
            call(*arguments, **options, **quiet)
        assert "\n" not in str(caught.value)

    def test_of_the_data(self, tmp_path):
        (tmp_path / "one.txt").write_text("only one text\n")
        self.check("no such file", train, "nothing.txt", output=tmp_path / "run")
        self.check("one row leaves nothing", train, str(tmp_path / "one.txt"), output=tmp_path / "run", tokenizer="bpe")
        self.check("standard input", train, "-", output=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_tokenizer_without_a_mask(self, source, tmp_path):
        from transformers import PreTrainedTokenizerFast

        from fastformer.data.tokenizer_training import train_tokenizer

        backend = train_tokenizer("word", ["a red cat"] * 2, vocab_size=50).backend_tokenizer
        saved = json.loads(backend.to_str().replace("[MASK]", "[HIDE]"))
        (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
        assert PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json")).mask_token is None
        path = str(tmp_path / "tokenizer.json")
        self.check("has no mask token", train, source, output=tmp_path / "run", tokenizer=path)

    def test_a_classifier_is_not_a_filler(self, run, source):
        with pytest.raises(UserError, match="this run is for masked-words"):
            classification.TextClassifier.load(run)

    def test_a_run_cannot_be_exported(self, run, tmp_path):
        with pytest.raises(UserError, match="a run of masked-words cannot be exported"):
            export(run, tmp_path / "export")
        assert not (tmp_path / "export").exists()
