"""Training: it learns, the same seed gives the same model, and a resumed run ends as an uninterrupted one."""

import json
import re
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fastformer.training
from fastformer.errors import Interrupted, UserError
from fastformer.run_folder import open_run
from fastformer.tasks.recommendation import fit
from fastformer.tasks.recommendation.fit import fit_recommender
from fastformer.tasks.recommendation.metrics import impression_metrics
from fastformer.tasks.recommendation.mind import read_mind
from fastformer.tasks.recommendation.scoring import Recommender, keep_states, score, score_clicks

from .conftest import MODELS, TINY

FRUIT = ["apple", "pear", "plum", "cherry", "melon", "grape", "fig", "peach"]
TOOLS = ["hammer", "saw", "drill", "pliers", "chisel", "wrench", "file", "axe"]


@pytest.fixture(scope="module")
def two_tastes(tmp_path_factory):
    """Users who read of fruit and users who read of tools: what they clicked tells what they click."""
    random = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("tastes")
    titles = [f"{random.choice(words)} and {random.choice(words)}" for words in (FRUIT, TOOLS) for _ in range(30)]
    news = "".join(f"N{number}\tc\ts\t{title}\t\t\t[]\t[]\n" for number, title in enumerate(titles))
    (folder / "news.tsv").write_text(news)
    lines = []
    for number in range(300):
        own = random.permutation(30) + 30 * (number % 2)
        other = random.permutation(30) + 30 * (1 - number % 2)
        history = " ".join(f"N{one}" for one in own[:5])
        shown = [f"N{own[5]}-1", *(f"N{one}-0" for one in other[:4])]
        lines.append(f"{number}\tU{number}\t11/11/2019 9:00:00 AM\t{history}\t{' '.join(random.permutation(shown))}\n")
    (folder / "behaviors.tsv").write_text("".join(lines))
    return read_mind(folder)


@pytest.mark.parametrize("model", ["fastformer", "nrms", "fim"])
def test_it_learns_what_users_like(two_tastes, tmp_path, model):
    options = {"epochs": 8, "learning_rate": 5e-3, "batch_size": 16, "hidden_dropout_prob": 0.0}
    result = fit_recommender(two_tastes, None, tmp_path / "run", model=model, **{**TINY, **options})
    assert result["metrics"]["auc"] > 0.9
    assert result["rows"] == {"train": 270, "validation": 30, "clicks": 270}
    assert result["metrics"]["auc"] == max(epoch["auc"] for epoch in result["epochs"])


@pytest.mark.parametrize("model", MODELS)
def test_a_run_tells_what_it_is(runs, model):
    run = open_run(runs[model])
    assert (run.task, run.record["model"]) == ("recommendation", model)
    assert model in (runs[model] / "README.md").read_text()
    assert not (runs[model] / "checkpoints").exists()
    assert run.load_metrics()["validation"].keys() == {"auc", "mrr", "ndcg@5", "ndcg@10"}


def test_any_mixer_may_stand_in_either_place(clicks, tmp_path):
    options = {"news_mixer": "linear", "user_mixer": "longformer"}
    fit_recommender(clicks["train"], clicks["dev"], tmp_path / "run", **options, **TINY)
    model = Recommender(open_run(tmp_path / "run")).model
    assert (model.news.config.mixer, model.user.config.mixer) == ("linear", "longformer")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["news_mixer"], record["user_mixer"]) == ("linear", "longformer")


def test_only_the_last_layers_of_a_pretrained_encoder_are_trained_and_slowly(runs, clicks, plm):
    started = load_file(plm / "model.safetensors")
    trained = Recommender(open_run(runs["plm-nr"])).model.pretrained.state_dict()
    moved = {name: float((trained[name] - value).abs().max()) for name, value in started.items() if name in trained}
    # The pooler is not used, and a bias of keys moves no softmax.
    real = {name: change for name, change in moved.items() if "pooler" not in name and "key.bias" not in name}
    assert {name for name, change in real.items() if change} == {name for name in real if re.search("layer.[12]", name)}
    assert 0 < max(moved.values()) < 1e-2


def test_a_frozen_encoder_reads_each_title_once_and_the_run_reads_titles_by_itself(runs, clicks, plm):
    run, dev = open_run(runs["fastformer+plm-nr"]), clicks["dev"]
    started, trained = load_file(plm / "model.safetensors"), run.load_weights()
    assert all(torch.equal(value, trained[f"news.plm.{name}"]) for name, value in started.items())
    found = impression_metrics(score(run, dev), dev.labels, dev.candidates.offsets)
    assert found["auc"] == pytest.approx(run.load_metrics()["validation"]["auc"], abs=1e-3)


def test_states_are_kept_once_for_one_table_of_news_and_are_close_enough(clicks, runs, plm, tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(fit, "keep_states", lambda *options: kept.append(keep_states(*options)) or kept[-1])
    options = {**TINY, "model": "fastformer+plm-nr", "plm": plm, "plm_layers": 0}
    fit_recommender(clicks["train"], None, tmp_path / "run", **options)
    [titles] = kept  # of training and validation
    assert open_run(tmp_path / "run").load_metrics()["held_out_by"] == "time"
    assert titles.states.dtype == torch.float16
    recommender, dev = Recommender(open_run(runs["fastformer+plm-nr"])), clicks["dev"]
    titles = recommender.titles(dev.news)
    read, stored = (
        score_clicks(recommender.model, one, dev, recommender.max_history)
        for one in (titles, keep_states(recommender.model, titles))
    )
    np.testing.assert_allclose(stored, read, atol=1e-3 * np.abs(read).max())


@pytest.fixture(scope="module")
def glove(clicks, tmp_path_factory):
    """Vectors of every third word of the titles; word number n has the vector n, n, …"""
    words = sorted({word for title in clicks["train"].news["title"].to_pylist() for word in title.lower().split()})
    path = tmp_path_factory.mktemp("glove") / "glove.txt"
    lines = (f"{word} {' '.join([str(number / 100)] * 15)} 1" for number, word in enumerate(words[::3]))
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("model", ["fastformer", "fim"])
def test_words_start_from_glove(clicks, glove, tmp_path, model):
    options = {**TINY, "model": model, "learning_rate": 1e-9, "init": glove}  # as good as untrained
    fit_recommender(clicks["train"], clicks["dev"], tmp_path / "fitted", **options)
    fit_recommender(clicks["train"], clicks["dev"], tmp_path / "as-is", **options, adapt_init=False)
    vectors = dict(line.split(" ", 1) for line in glove.read_text().splitlines())
    for name in ("fitted", "as-is"):
        run = open_run(tmp_path / name)
        assert run.record["init"] == str(glove)
        recommender = Recommender(run)
        table, vocabulary = recommender.model.get_input_embeddings().weight, recommender.tokenizer.get_vocab()
        known = [word for word in vectors if word in vocabulary]
        found = table[[vocabulary[word] for word in known]].detach().numpy()
        given = np.array([[float(number) for number in vectors[word].split()] for word in known])
        if name == "as-is":
            np.testing.assert_allclose(found, given, atol=1e-6)
        else:  # centred, of the size of a random start, frequent words smaller
            assert np.sqrt(np.square(found).mean()) < 2 * recommender.model.config.initializer_range
        assert len(known) > 50
        assert table[recommender.tokenizer.unk_token_id].abs().max() < 1e-6


def test_the_same_seed_gives_the_same_model_and_another_another(clicks, runs, tmp_path):
    for name, seed in (("same", 0), ("other", 1)):
        fit_recommender(clicks["train"], clicks["dev"], tmp_path / name, seed=seed, **TINY)
    first, same, other = (
        load_file(folder / "model.safetensors")
        for folder in (runs["fastformer"], tmp_path / "same", tmp_path / "other")
    )
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.fixture
def stop_after(monkeypatch):
    """Send this process the signal of Ctrl-C after a number of steps."""

    def install(steps):
        watch = fastformer.training._Watch
        original = watch.on_step_end

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == steps:
                signal.raise_signal(signal.SIGINT)
            original(self, args, state, control, **kwargs)

        monkeypatch.setattr(watch, "on_step_end", on_step_end)

    return install


@pytest.mark.parametrize("steps", [2, 9])  # within the first epoch and within the second, whose non-clicks are others
def test_resumed_training_ends_with_the_same_weights(clicks, tmp_path, stop_after, monkeypatch, steps):
    options = {**TINY, "epochs": 2, "batch_size": 32}
    parts = clicks["train"], clicks["dev"]
    whole = fit_recommender(*parts, tmp_path / "whole", **options)
    with monkeypatch.context():
        stop_after(steps)
        with pytest.raises(Interrupted, match=f"step {steps} of"):
            fit_recommender(*parts, tmp_path / "parts", **options)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"negatives=4, this command negatives=2"):
        fit_recommender(*parts, tmp_path / "parts", resume=True, negatives=2, **options)
    with pytest.raises(UserError, match="the data has changed"):
        fit_recommender(parts[0], parts[1].take(np.arange(20)), tmp_path / "parts", resume=True, **options)
    again = fit_recommender(*parts, tmp_path / "parts", resume=True, **options)
    assert again["epochs"] == whole["epochs"]
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_mistakes(clicks, runs, plm, tmp_path):
    def check(says, train=clicks["train"], validation=clicks["dev"], output=tmp_path / "run", **options):
        with pytest.raises(UserError, match=says):
            fit_recommender(train, validation, output, **{**TINY, **options})
        assert not (tmp_path / "run").exists()

    check("unknown model 'bert'.*fastformer, nrms, fim", model="bert")
    check("--news-mixer 'mamba' is unknown; choose from .*fastformer", news_mixer="mamba")
    check("plm-nr has no place for --news-mixer", model="plm-nr", plm=plm, news_mixer="linear")
    check("fim has no place for --user-mixer", model="fim", user_mixer="linear")
    check("plm-nr needs --plm", model="plm-nr")
    check("fastformer has no place for --plm; use --model plm-nr", plm=plm)
    check("no such folder", model="plm-nr", plm=tmp_path / "nowhere")
    check("holds no model", model="plm-nr", plm=tmp_path)
    check("unknown preset 'large'", preset="large")
    check("unknown setting 'width'", width=3)
    check("no column 'body'; choose from category", fields="title,body")
    check("not divisible", num_attention_heads=5)
    check("training impressions have no labels", train=clicks["test"])
    check("validation impressions have no labels", validation=clicks["test"])
    check("leaves nothing to validate on", train=clicks["train"].take(np.arange(1)), validation=None)
    check("holds a finished run", output=runs["fastformer"])
    check("no such file or folder", init=tmp_path / "nowhere")
    check("is a run; .* give --init a GloVe file", init=runs["fastformer"])
    check("plm-nr has no place for --init", model="plm-nr", plm=plm, init=plm)
