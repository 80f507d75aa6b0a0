"""`explain` on trained runs: what the page says is what the model does, and what a mistake costs."""

import io
import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from fastformer import FastformerConfig, FastformerForSequenceClassification, TextClassifier, available_mixers
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.errors import UserError
from fastformer.modeling.ngrams import NgramChannel
from fastformer.runs.folder import open_run
from fastformer.tasks import verbs
from fastformer.tasks.classification import explain
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.explaining import explain_text, log_odds
from fastformer.tasks.verbs import predict

from ..test_cli import fastformer  # noqa: F401  runs a command
from .conftest import FILLER, WORDS, make_rows, write_csv, write_jsonl

train = partial(verbs.train, "classification")

TEXT = "The old cat,\nand then a  small HORSE near some unseenword."


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    found = train_tokenizer("word", [text for text, _ in make_rows(50, 0)], vocab_size=100)
    found.model_max_length = 64
    return found


def answer(run, text: str) -> dict:
    out = io.StringIO()
    source = run.parent / "one.jsonl"
    source.write_text(json.dumps({"text": text}))
    predict(open_run(run), str(source), out, show_progress=False)
    return json.loads(out.getvalue())


def test_the_answer_is_that_of_predict_and_the_animals_speak_for_it(run_folder, tmp_path):
    why = explain(open_run(run_folder), TEXT, tmp_path / "page.html")
    expected = answer(run_folder, TEXT)
    assert (why.prediction, why.label) == (expected["label"], "animal")
    assert why.probabilities == pytest.approx(expected["probabilities"], abs=1e-5)
    assert why.score == pytest.approx(np.log(why.probabilities["animal"] / (1 - why.probabilities["animal"])), rel=1e-2)
    assert {word.word for word in why.strongest(2)[0]} == {"cat", "HORSE"}
    assert [TEXT[start:end] for start, end in why.spans][:4] == ["The", "old", "cat", ","]
    assert [TEXT[start:end] for start, end in why.spans[why.unknown]] == [",", "."]
    assert why.pooling is why.global_query is why.global_key is None  # words tell all here: the channel answers alone
    assert len(why.removals.places) == len(why.tokens)
    assert -1 <= why.agreement <= 1
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page == why.to_html()
    assert "animals" in page  # the name of the run


def test_removing_the_strongest_word_really_costs_the_answer(run_folder, tmp_path):
    text = "the old new cat and then some"
    why = explain(open_run(run_folder), text, tmp_path / "page.html")
    [strongest] = why.strongest(1)[0]
    assert strongest.word == "cat"
    lost = why.removals.effects[why.removals.places.tolist().index(strongest.places[0])]
    shorter = answer(run_folder, text.replace("cat ", ""))["probabilities"]["animal"]
    assert why.score - lost == pytest.approx(np.log(shorter / (1 - shorter)), abs=0.01)


def test_the_page_has_the_other_labels_too(run_folder, tmp_path):
    why, asked = (explain(open_run(run_folder), TEXT, tmp_path / "p.html", label=label) for label in (None, "food"))
    assert sorted(why.others) == ["food", "tool"]
    np.testing.assert_allclose(why.others["food"].effect, asked.effect, atol=1e-6)
    assert why.others["food"].score == asked.score
    assert why.others["food"].score_of_nothing == asked.score_of_nothing
    places = why.removals.places.argsort()
    other = asked.removals.places.argsort()  # all tokens of this short text, in another order
    np.testing.assert_allclose(why.others["food"].removals.effects[places], asked.removals.effects[other], atol=1e-5)


def test_another_label_can_be_asked_for(run_folder, tmp_path):
    why = explain(open_run(run_folder), "a cat and a hammer with some soup", tmp_path / "page.html", label="tool")
    assert why.label == "tool"
    assert why.strongest(1)[0][0].word == "hammer"
    assert {"cat", "soup"} & {word.word for word in why.strongest(2)[1]}


@pytest.mark.parametrize("text", ["", "   ", "\x00", "cat", "c\ud800t \N{GRINNING FACE} שלום"])
def test_any_text_has_a_page(run_folder, tmp_path, text):
    why = explain(open_run(run_folder), text, tmp_path / "page.html")
    assert len(why.tokens) == len(why.effect)
    assert np.isfinite(why.effect).all()
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_what_is_not_read_is_said(run_folder, tmp_path):
    short = shutil.copytree(run_folder, tmp_path / "short")
    settings = json.loads((short / "tokenizer_config.json").read_text())
    (short / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 4096}))
    long = "the old cat " * 1500
    why = explain(open_run(short), long, tmp_path / "page.html")
    assert why.cut
    assert len(why.tokens) == 4096
    assert why.spans[-1].tolist() == [1365 * 12, 1365 * 12 + 3]
    assert "The grey part was not read" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_number_is_explained_in_its_own_units(tmp_path):
    rows = [(text, 5000.0 + 100 * text.split().count("old")) for text, _ in make_rows(300, 2)]
    source = write_csv(tmp_path / "train.csv", rows)
    train(source, output=tmp_path / "run", regression=True, epochs=8, show_progress=False)
    why = explain(open_run(tmp_path / "run"), "an old cat and an old saw", tmp_path / "page.html")
    assert why.label is None
    assert why.probabilities == {}
    assert why.prediction == pytest.approx(why.score)
    assert 4900 < why.prediction < 5500
    assert why.strongest(1)[0][0].word == "old"


def test_of_several_labels_the_most_probable_is_explained(tmp_path):
    records = [
        {"text": f"{one} {two}", "label": sorted({a, b})}
        for (one, a), (two, b) in zip(make_rows(300, 0), make_rows(300, 1), strict=True)
    ]
    train(write_jsonl(tmp_path / "train.jsonl", records), output=tmp_path / "run", epochs=10, show_progress=False)
    run = open_run(tmp_path / "run")
    why = explain(run, "cat otter cat hammer", tmp_path / "page.html")
    assert isinstance(why.prediction, list)
    assert why.label == max(why.probabilities, key=why.probabilities.get)
    why = explain(run, "cat otter cat hammer", tmp_path / "page.html", label="tool")
    assert why.strongest(1)[0][0].word == "hammer"


@pytest.mark.parametrize("mixer", available_mixers())
def test_every_mixer_can_be_explained(mixer, tokenizer):
    torch.manual_seed(0)
    names = tuple(WORDS)
    config = FastformerConfig(
        mixer=mixer, vocab_size=100, hidden_size=32, intermediate_size=32, num_attention_heads=4, num_labels=3
    )
    model = FastformerForSequenceClassification(config)
    text = " ".join(FILLER * 4)
    why = explain_text(model, tokenizer, LabelSpace("single", names), text, label="food")
    assert np.isfinite(why.effect).all()
    assert np.abs(why.effect).max() > 0
    assert len(why.removals.places) == 40
    assert (why.global_query is None) == (mixer != "fastformer")
    for weights in filter(lambda found: found is not None, (why.global_query, why.global_key, why.pooling)):
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert not model.training
    assert ("forms no global query" in why.to_html()) == (mixer != "fastformer")


def test_where_the_channel_answers_alone_no_weights_of_the_encoder_are_shown(tokenizer):
    config = FastformerConfig(vocab_size=100, hidden_size=32, num_attention_heads=4, num_labels=3)
    model = FastformerForSequenceClassification(config).eval()
    channel = NgramChannel(100, 64, 3)
    torch.nn.init.uniform_(channel.words)
    model.add_ngrams(channel, only=True)
    why = explain_text(model, tokenizer, LabelSpace("single", tuple(WORDS)), " ".join(FILLER))
    assert np.abs(why.effect).max() > 0
    assert why.pooling is why.global_query is why.global_key is None
    page = why.to_html()
    assert "channel answers alone" in page
    assert "Pooling" not in page
    assert "Global query" not in page


def test_a_broken_model_is_called_so(tokenizer):
    config = FastformerConfig(vocab_size=100, hidden_size=32, num_attention_heads=4, num_labels=3)
    model = FastformerForSequenceClassification(config)
    torch.nn.init.constant_(model.classifier.weight, torch.nan)
    with pytest.raises(UserError, match="not a number"):
        explain_text(model, tokenizer, LabelSpace("single", tuple(WORDS)), "the old cat")


def test_log_odds():
    logits = torch.tensor([[1.0, 2.0, -1.0], [0.0, 0.5, 3.0]], dtype=torch.float64)
    chances = logits.softmax(dim=1)[:, 1]
    torch.testing.assert_close(
        log_odds(LabelSpace("single", ("a", "b", "c")), 1)(logits), (chances / (1 - chances)).log()
    )
    torch.testing.assert_close(
        log_odds(LabelSpace("multi", ("a", "b", "c")), 1)(logits), logits.sigmoid()[:, 1].logit()
    )
    torch.testing.assert_close(log_odds(LabelSpace("number"), 0)(logits[:, :1]), logits[:, 0])


def test_an_estimator_explains():
    texts, labels = zip(*make_rows(150, 0), strict=True)
    model = TextClassifier(epochs=8).fit(list(texts), [{"animal": 1, "food": 2, "tool": 10}[label] for label in labels])
    why = model.explain("a cat and a hammer")
    assert why.label == str(model.predict(["a cat and a hammer"])[0])
    other = model.explain("a cat and a hammer", label=10, baseline="mean")
    assert (other.label, other.baseline, other.model) == ("10", "mean", "TextClassifier")
    assert other.strongest(1)[0][0].word == "hammer"
    assert other._repr_html_().startswith("<iframe")
    with pytest.raises(ValueError, match="one text, a string, not a list"):
        model.explain(["a cat"])
    with pytest.raises(ValueError, match=r"no label '3'; choose from 1, 2, 10"):
        model.explain("a cat", label=3)


def test_the_command_writes_a_page_and_prints_a_summary(fastformer, run_folder, tmp_path):  # noqa: F811
    page = tmp_path / "why.html"
    code, out, _ = fastformer("explain", run_folder, "the old cat and a horse", "--output", page)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("animal (")
    assert lines[0].endswith("%), 6 tokens")
    assert "cat +" in lines[1]
    assert "horse +" in lines[1]
    assert "rank correlation" in lines[3]
    assert lines[-1] == f"The page is in {page}."
    first = page.read_text(encoding="utf-8")

    (tmp_path / "text.txt").write_bytes("\ufeffthe old cat and a horse".encode())
    for source in (("-",), ("--file", tmp_path / "text.txt")):
        page.unlink()
        code, out, _ = fastformer(
            "explain", run_folder, *source, "--output", page, "--json", stdin="the old cat and a horse"
        )
        result = json.loads(out)
        assert result["explained"] == result["prediction"] == "animal"
        assert result["tokens"] == result["tokens_removed"] == 6
        assert result["output"] == str(page)
        assert page.read_text(encoding="utf-8") == first


class TestMistakes:
    """Each gets one clear line, and no page."""

    def check(self, result, *parts):
        code, _, err = result
        assert code == 2
        [line] = [line for line in err.splitlines() if line.startswith("fastformer: ")]
        assert all(part in line for part in parts)
        assert "Traceback" not in err

    def test_of_the_run(self, fastformer, run_folder, tmp_path):  # noqa: F811
        page = tmp_path / "page.html"
        self.check(fastformer("explain", tmp_path, "text", "--output", page), "not a run folder")
        run, export, other = (tmp_path / name for name in ("animals", "animals-onnx-int8", "other"))
        for folder, change in ((run, {}), (export, {"export": {"int8": True}}), (other, {"task": "juggling"})):
            shutil.copytree(run_folder, folder)
            record = json.loads((folder / "run.json").read_text())
            (folder / "run.json").write_text(json.dumps({**record, **change}))
        refused = fastformer("explain", export, "a cat", "--output", page)
        self.check(refused, "is an export, which has no gradients", f"the run it was made from, {run}")
        shutil.rmtree(run)
        self.check(fastformer("explain", export, "a cat", "--output", page), "give the run it was made from")
        self.check(fastformer("explain", other, "a cat", "--output", page), "only classifiers", "juggling")
        assert not page.exists()

    def test_of_the_text(self, fastformer, run_folder, tmp_path):  # noqa: F811
        output = ("--output", tmp_path / "page.html")
        self.check(fastformer("explain", run_folder, *output), "give either the text")
        both = ("text", "--file", tmp_path / "x.txt")
        self.check(fastformer("explain", run_folder, *both, *output), "give either the text")
        self.check(fastformer("explain", run_folder, "--file", tmp_path / "x.txt", *output), "x.txt: no such file")
        (tmp_path / "latin.txt").write_bytes("un caf\u00e9".encode("latin1"))
        self.check(fastformer("explain", run_folder, "--file", tmp_path / "latin.txt", *output), "latin.txt: not UTF-8")
        self.check(
            fastformer("explain", run_folder, "a", "--label", "star", *output), "no label 'star'", "animal, food"
        )
        self.check(fastformer("explain", run_folder, "a", "--baseline", "x", *output), "unknown baseline 'x'")
        assert [path.name for path in tmp_path.iterdir()] == ["latin.txt"]

    def test_of_the_page(self, fastformer, run_folder, tmp_path):  # noqa: F811
        self.check(fastformer("explain", run_folder, "a", "--output", tmp_path), "is a folder")
        self.check(fastformer("explain", run_folder, "a", "--output", tmp_path / "no" / "x"), "cannot be written")
