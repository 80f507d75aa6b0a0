"""Training: it learns, with any encoder and any start, and a resumed run draws the same non-clicks."""

import json
import re
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fastformer.engine.training
from fastformer.errors import Interrupted, UserError
from fastformer.runs.folder import open_run
from fastformer.surroundings.progress import heard
from fastformer.tasks.recommendation import scoring, task
from fastformer.tasks.recommendation.metrics import impression_metrics
from fastformer.tasks.recommendation.mind import read_mind
from fastformer.tasks.recommendation.scoring import keep_states, score_clicks
from fastformer.tasks.verbs import load

from .conftest import MODELS, TINY, fit

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
    options = {"epochs": 8, "learning_rate": 5e-3, "batch_size": 16}
    sizes = {"hidden_size": 16, "hidden_dropout_prob": 0.0}
    result = fit(two_tastes, output=tmp_path / "run", recommender=model, **{**TINY, **options, "model": sizes})
    assert result["validation"]["auc"] > 0.9
    assert result["rows"] == {"train": 270, "validation": 30, "clicks": 270}
    assert result["validation"]["auc"] == max(epoch["auc"] for epoch in result["epochs"])


@pytest.mark.parametrize("model", MODELS)
def test_a_run_tells_what_it_is(runs, model):
    run = open_run(runs[model])
    assert (run.task, run.record["model"]) == ("recommendation", model)
    assert model in (runs[model] / "README.md").read_text()
    assert not (runs[model] / "checkpoints").exists()
    assert run.load_metrics()["validation"].keys() == {"auc", "mrr", "ndcg@5", "ndcg@10"}


def test_any_mixer_may_stand_in_either_place(clicks, tmp_path):
    options = {"news_mixer": "linear", "user_mixer": "longformer"}
    fit(clicks["train"], clicks["dev"], output=tmp_path / "run", **options, **TINY)
    model = load(tmp_path / "run").model
    assert (model.news.config.mixer, model.user.config.mixer) == ("linear", "longformer")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["news_mixer"], record["user_mixer"]) == ("linear", "longformer")


def test_only_the_last_layers_of_a_pretrained_encoder_are_trained_and_slowly(runs, clicks, plm):
    started = load_file(plm / "model.safetensors")
    trained = load(runs["plm-nr"]).model.pretrained.state_dict()
    moved = {name: float((trained[name] - value).abs().max()) for name, value in started.items() if name in trained}
    # The pooler is not used, and a bias of keys moves no softmax.
    real = {name: change for name, change in moved.items() if "pooler" not in name and "key.bias" not in name}
    assert {name for name, change in real.items() if change} == {name for name in real if re.search("layer.[12]", name)}
    assert 0 < max(moved.values()) < 1e-2


def test_a_frozen_encoder_reads_each_title_once_and_the_run_reads_titles_by_itself(runs, clicks, plm):
    run, dev = open_run(runs["fastformer+plm-nr"]), clicks["dev"]
    started, trained = load_file(plm / "model.safetensors"), run.load_weights()
    assert all(torch.equal(value, trained[f"news.plm.{name}"]) for name, value in started.items())
    found = impression_metrics(load(run).score(dev), dev.labels, dev.candidates.offsets)
    assert found["auc"] == pytest.approx(run.load_metrics()["validation"]["auc"], abs=1e-3)


def test_states_are_kept_once_for_one_table_of_news_and_are_close_enough(clicks, runs, plm, tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(task, "keep_states", lambda *options: kept.append(keep_states(*options)) or kept[-1])
    options = {**TINY, "recommender": "fastformer+plm-nr", "plm": plm, "plm_layers": 0}
    fit(clicks["train"], output=tmp_path / "run", **options)
    [titles] = kept  # of training and validation
    assert open_run(tmp_path / "run").load_metrics()["held_out_by"] == "time"
    assert titles.states.dtype == torch.float16
    ranker, dev = load(runs["fastformer+plm-nr"]), clicks["dev"]
    ranker.model.news.freeze(1)
    titles = ranker.titles(dev.news)
    read, stored = (
        score_clicks(ranker.model, one, dev, ranker.settings.history_length)
        for one in (titles, keep_states(ranker.model, titles))
    )
    np.testing.assert_allclose(stored, read, atol=1e-3 * np.abs(read).max())


def test_states_that_take_too_much_memory_are_not_kept(clicks, runs, monkeypatch):
    ranker = load(runs["fastformer+plm-nr"])
    ranker.model.news.freeze(0)
    titles = ranker.titles(clicks["dev"].news)
    needed = keep_states(ranker.model, titles).states.nbytes
    monkeypatch.setattr(scoring, "physical_memory", lambda: 2 * needed - 1)
    with heard() as said:
        assert keep_states(ranker.model, titles, show=True) is titles
    assert said == ["Token vectors of all titles would take 0 GB: they are made again at every step."]


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
    options = {**TINY, "recommender": model, "learning_rate": 1e-9, "init": glove}  # as good as untrained
    fit(clicks["train"], clicks["dev"], output=tmp_path / "fitted", **options)
    fit(clicks["train"], clicks["dev"], output=tmp_path / "as-is", **options, adapt_init=False)
    vectors = dict(line.split(" ", 1) for line in glove.read_text().splitlines())
    for name in ("fitted", "as-is"):
        run = open_run(tmp_path / name)
        assert run.record["init"] == str(glove)
        ranker = load(run)
        table, vocabulary = ranker.model.get_input_embeddings().weight, ranker.tokenizer.get_vocab()
        known = [word for word in vectors if word in vocabulary]
        found = table[[vocabulary[word] for word in known]].detach().numpy()
        given = np.array([[float(number) for number in vectors[word].split()] for word in known])
        if name == "as-is":
            np.testing.assert_allclose(found, given, atol=1e-6)
        else:  # centred, of the size of a random start, frequent words smaller
            assert np.sqrt(np.square(found).mean()) < 2 * ranker.model.config.initializer_range
        assert len(known) > 50
        assert table[ranker.tokenizer.unk_token_id].abs().max() < 1e-6


@pytest.fixture
def stop_after(monkeypatch):
    """Send this process the signal of Ctrl-C after a number of steps."""

    def install(steps):
        watch = fastformer.engine.training._Watch
        original = watch.on_step_end

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == steps:
                signal.raise_signal(signal.SIGINT)
            original(self, args, state, control, **kwargs)

        monkeypatch.setattr(watch, "on_step_end", on_step_end)

    return install


def test_training_resumed_in_the_second_epoch_draws_the_same_non_clicks(clicks, tmp_path, stop_after, monkeypatch):
    options = {**TINY, "epochs": 2, "batch_size": 32}
    parts = clicks["train"], clicks["dev"]
    whole = fit(*parts, output=tmp_path / "whole", **options)
    with monkeypatch.context():
        stop_after(9)
        with pytest.raises(Interrupted, match="step 9 of"):
            fit(*parts, output=tmp_path / "parts", **options)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"negatives=4, this command negatives=2"):
        fit(*parts, output=tmp_path / "parts", resume=True, negatives=2, **options)
    with pytest.raises(UserError, match="the data has changed"):
        fit(parts[0], parts[1].take(np.arange(20)), output=tmp_path / "parts", resume=True, **options)
    again = fit(*parts, output=tmp_path / "parts", resume=True, **options)
    assert again["epochs"] == whole["epochs"]
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_mistakes(clicks, runs, plm, tmp_path):
    def check(says, train=clicks["train"], validation=clicks["dev"], output=tmp_path / "run", **options):
        with pytest.raises(UserError, match=says):
            fit(train, validation, output=output, **{**TINY, **options})
        assert not (tmp_path / "run").exists()

    check("unknown model 'bert'; choose from fastformer, nrms, fim", recommender="bert")
    check("unknown mixer 'mamba'; choose from .*fastformer", news_mixer="mamba")
    check("plm-nr has no place for --news-mixer", recommender="plm-nr", plm=plm, news_mixer="linear")
    check("fim has no place for --user-mixer", recommender="fim", user_mixer="linear")
    check("plm-nr needs --plm", recommender="plm-nr")
    check("fastformer has no place for --plm; use --model plm-nr", plm=plm)
    check("no such folder", recommender="plm-nr", plm=tmp_path / "nowhere")
    check("holds no model", recommender="plm-nr", plm=tmp_path)
    check("unknown setting of the model 'hidden_sizes'; did you mean 'hidden_size'?", model={"hidden_sizes": 3})
    check("no column 'body'; choose from category", fields="title,body")
    check("not divisible", model={"num_attention_heads": 5})
    check("train impressions have no labels", train=clicks["test"])
    check("validation impressions have no labels", validation=clicks["test"])
    check("leaves nothing to validate on", train=clicks["train"].take(np.arange(1)), validation=None)
    check("articles as well as clicks on them; give a folder", train=list(clicks["train"]))
    check("holds a finished run", output=runs["fastformer"])
    check("no such file or folder", init=tmp_path / "nowhere")
    check("is a run; .* give --init a GloVe file", init=runs["fastformer"])
    check("plm-nr has no place for --init", recommender="plm-nr", plm=plm, init=plm)
