"""Train, evaluate, predict, summarize and embed, from files to files."""

import gzip
import io
import json
import os
import shutil
import signal
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file, save_file
from tokenizers import processors
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import fastformer.engine.training
from fastformer.cli import main
from fastformer.data.tables import Reading
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.data.tokenizers import encode_batch, load_tokenizer
from fastformer.engine.warm_start import PAIRS, WORDS
from fastformer.errors import Interrupted, UserError
from fastformer.runs.folder import open_run
from fastformer.scale.scoring import score_files
from fastformer.surroundings.plotting import name_lines
from fastformer.tasks import get_task, verbs
from fastformer.tasks.summarization import Summarizer, summarize
from fastformer.tasks.summarization.course import plot_course
from fastformer.tasks.summarization.data import encode_documents
from fastformer.tasks.summarization.documents import Documents
from fastformer.tasks.summarization.task import Summarization
from fastformer.tasks.summarization.writing import Writer
from fastformer.tasks.verbs import embed, evaluate, load, predict

from ..conftest import write_jsonl
from .conftest import TINY, make_documents, train

quiet = {"show_progress": False}
still = {"preset": TINY, "epochs": 1, "learning_rate": 1e-9, **quiet}  # the weights stay where they start


def run_cli(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["fastformer", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    found = capsys.readouterr()
    return stop.value.code or 0, found.out, found.err


def test_training_learns_and_leaves_a_run(run_folder):
    metrics = json.loads((run_folder / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["rows"] == {"train": 108, "validation": 12, "test": 20}
    assert metrics["validation"]["perplexity"] < metrics["epochs"][0]["perplexity"] / 1.5
    course = [epoch["rouge1"] for epoch in metrics["epochs"]]
    assert course[0] < 60 < course[-1]
    times = [epoch["seconds"] for epoch in metrics["epochs"]]
    assert times == sorted(times)
    assert times[-1] <= metrics["train_seconds"]
    assert metrics["sample"]["documents"] == 12
    assert (run_folder / "course.png").read_bytes().startswith(b"\x89PNG")
    assert list(metrics["test"]["summaries"]) == ["model", "lead 3", "random 3", "lead 1", "random 1"]
    assert (run_folder / "generation_config.json").is_file()
    assert not (run_folder / "checkpoints").exists()
    card = (run_folder / "README.md").read_text(encoding="utf-8")
    assert f"{metrics['test']['summaries']['lead 1']['rouge1']:.2f}" in card


def test_the_run_is_at_home_in_transformers(run_folder):
    tokenizer, model = AutoTokenizer.from_pretrained(run_folder), AutoModelForSeq2SeqLM.from_pretrained(run_folder)
    article = make_documents(1, 9)[0]["article"]
    written = model.eval().generate(**tokenizer(article, return_tensors="pt", truncation=True))
    [found] = load(run_folder).writer([article])
    assert tokenizer.decode(written[0], skip_special_tokens=True) == found.summary


def test_scores_of_many_files_are_rouge_and_not_speed(run_folder, files, tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        shutil.copy(files["test"], tmp_path / "in" / name)
    found = score_files("evaluate", run_folder, tmp_path / "in", tmp_path / "out", workers=1, **quiet)
    alone = evaluate(open_run(run_folder), files["test"], **quiet)["summaries"]["model"]
    assert found.scores == pytest.approx({name: alone[name] for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")})


def test_evaluate_gives_what_training_gave(run_folder, files):
    found = evaluate(open_run(run_folder), files["test"], **quiet)
    said = json.loads((run_folder / "metrics.json").read_text(encoding="utf-8"))["test"]
    assert found["summaries"] == said["summaries"]
    assert found["rows"] == 20
    assert found["language"] == "en"


def test_predictions_are_in_input_order_whatever_the_lengths(run_folder, tmp_path):
    documents = make_documents(40, 3)
    out = io.StringIO()
    assert predict(open_run(run_folder), write_jsonl(tmp_path / "a.jsonl", documents), out, **quiet) == 40
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    writer = load(run_folder).writer
    for place in (0, 17, 39):
        [alone] = writer([documents[place]["article"]])
        assert lines[place]["summary"] == alone.summary
        assert lines[place]["score"] == pytest.approx(alone.score, abs=1e-3)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_score_is_the_mean_log_probability_of_the_words(run_folder, beams):
    predictor = load(run_folder)
    model, tokenizer = predictor.model, predictor.tokenizer
    writer = Writer(model, tokenizer, beams)
    # Rules of `generate` that change what is written, and that the score must not depend on.
    model.generation_config.suppress_tokens = [*model.generation_config.suppress_tokens, tokenizer.vocab["bought"]]
    model.generation_config.min_new_tokens = 6
    articles = [document["article"] for document in make_documents(3, 4)]
    for article, written in zip(articles, writer(articles), strict=True):
        assert "bought" not in written.summary
        ids = torch.from_numpy(np.stack(encode_batch(tokenizer, [article])[0])).long()
        words = [*encode_batch(tokenizer, [written.summary])[0][0].tolist(), tokenizer.eos_token_id]
        words = words[: TINY.max_summary_length]  # one that is cut has no end
        with torch.inference_mode():
            loss = model(ids, labels=torch.tensor([words])).loss
        assert written.score == pytest.approx(-loss.item(), abs=1e-3)


def test_articles_that_are_empty_or_too_long(run_folder, tmp_path, capsys):
    rows = [{"article": "x " * 100}, {"article": ""}, {"article": "Today anna bought a boat."}]
    rows.append({"article": "\u200b\n\u200b"})  # nothing to be seen, and no token
    out = io.StringIO()
    predict(open_run(run_folder), write_jsonl(tmp_path / "a.jsonl", rows), out, **quiet)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert lines[1] == lines[3] == {"summary": "", "score": None}
    assert lines[2]["summary"]
    said = capsys.readouterr().err
    assert "1 of 4 articles was cut after 32 tokens." in said
    assert "2 of 4 articles are empty, and so is the summary of each." in said


def test_summarize_and_embed(run_folder, files, tmp_path):
    article = tmp_path / "article.txt"
    article.write_text("Today anna bought a boat.\n\nThen it rained.\n", encoding="utf-8")
    [alone] = load(run_folder).writer(["Today anna bought a boat.\nThen it rained."])
    assert summarize(open_run(run_folder), str(article)) == alone.summary
    assert embed(open_run(run_folder), files["test"], tmp_path / "v.npy", **quiet) == (20, 32)
    assert np.isfinite(np.load(tmp_path / "v.npy")).all()
    article.write_text(" \n", encoding="utf-8")
    with pytest.raises(UserError, match="article.txt: the document is empty"):
        summarize(open_run(run_folder), str(article))
    with pytest.raises(UserError, match="none.txt: no such file; give a text file, or -"):
        summarize(open_run(run_folder), "none.txt")
    for several in (files["test"], str(tmp_path)):
        with pytest.raises(UserError, match="more than one document; `fastformer predict` summarizes each"):
            summarize(open_run(run_folder), several)
    story = tmp_path / "a.story"  # what people wrote of it is not read
    story.write_text("Today anna bought a boat.\n\nThen it rained.\n\n@highlight\n\nhugo hugo\n", encoding="utf-8")
    assert summarize(open_run(run_folder), str(story)) == alone.summary


def test_run_json_is_as_it_always_was(run_folder, files, tmp_path):
    record = open_run(run_folder).record
    assert record["language"] == "en"
    assert (record["mixer"], record["init"], record["preset"]) == ("fastformer", None, "custom")
    columns = {"article_column": None, "summary_column": None, "texts_from": ["article"], "labels_from": ["summary"]}
    layout = {"separator": None, "header": True, "strict": False}
    assert record["data"] == {**files, "validation": None, **columns, **layout}
    assert record["settings"]["model"]["copy_mechanism"]
    assert record["settings"].keys() >= {"tokenizer", "vocab_size", "max_summary_length", "beams", "no_repeat_ngrams"}
    source = write_jsonl(
        tmp_path / "a.jsonl", ({"x": one["article"], "y": one["summary"]} for one in make_documents(20, 0))
    )
    train(source, output=tmp_path / "run", **still, text_column="x", label_column="y", copy=False, follow=False)
    record = open_run(tmp_path / "run").record
    assert (record["data"]["article_column"], record["data"]["summary_column"]) == ("x", "y")
    assert not record["settings"]["model"]["copy_mechanism"]
    predictor = load(tmp_path / "run")
    assert predictor.model.copying is None
    assert predictor.settings.text_column == "x"
    assert evaluate(tmp_path / "run", source, **quiet)["rows"] == 20


def test_the_python_object(run_folder, tmp_path):
    documents = make_documents(120, 0)
    settings = {"tokenizer": "word", "max_length": 32, "max_summary_length": 12, "beams": 2, "epochs": 4}
    model = Summarizer(**settings, learning_rate=5e-3, batch_size=16).fit(documents)
    article, other = (document["article"] for document in make_documents(2, 7))
    assert model.summarize(article) == make_documents(1, 7)[0]["summary"]
    found = model.predict([{"article": article}, other], beams=1)
    assert [set(one) for one in found] == [{"summary", "score"}] * 2
    assert model.predict([]) == []
    frame = pd.DataFrame({"article": [article, other]})
    assert model.predict(frame, beams=1) == found
    assert model.embed(frame).shape[0] == 2
    model.save(tmp_path / "run")
    loaded = Summarizer.load(tmp_path / "run")
    assert loaded.predict([article, other], beams=1) == found
    assert (tmp_path / "run" / "course.png").is_file()
    assert loaded.evaluate(documents[:5])["rows"] == 5
    renamed = [{"body": one["article"], "title": one["summary"]} for one in documents[:5]]
    found = loaded.evaluate(renamed, text_column="body", label_column="title", beams=1, language="de")
    assert (found["rows"], found["beams"], found["language"]) == (5, 1, "de")
    with pytest.raises(UserError, match="--plot: a run of summarization has no use for it"):
        loaded.evaluate(documents[:5], plot="a.png")
    assert loaded.embed([article]).shape == (1, 128)
    with pytest.raises(UserError, match="this Summarizer is not trained yet"):
        Summarizer().summarize(article)


def test_a_document_may_come_through_a_pipe(run_folder, tmp_path, monkeypatch):
    article, pipe = b"Today anna bought a boat.", tmp_path / "pipe"
    expected = summarize(open_run(run_folder), str(_written(tmp_path / "a.txt", article)))
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(article,))
    writer.start()
    assert summarize(open_run(run_folder), str(pipe)) == expected
    writer.join()
    monkeypatch.setattr(sys, "stdin", None)  # as when it is closed
    for verb in (summarize, lambda run, source: predict(run, source, io.StringIO(), format="lines", **quiet)):
        with pytest.raises(UserError, match="standard input is closed; give a file"):
            verb(open_run(run_folder), "-")


def _written(path, content):
    path.write_bytes(content)
    return path


def test_a_foreign_tokenizers_marks_are_no_part_of_a_summary(files, tmp_path):
    tokenizer = train_tokenizer("word", [json.dumps(row) for row in make_documents(200, 5)], vocab_size=100)
    tokenizer.add_special_tokens({"cls_token": "[CLS]", "sep_token": "[SEP]"})
    marks = (("[SEP]", tokenizer.sep_token_id), ("[CLS]", tokenizer.cls_token_id))
    tokenizer.backend_tokenizer.post_processor = processors.BertProcessing(*marks)
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    train(files["train"], output=tmp_path / "run", **still, tokenizer=str(tmp_path / "tokenizer"))
    tokenizer, model = (auto.from_pretrained(tmp_path / "run") for auto in (AutoTokenizer, AutoModelForSeq2SeqLM))
    article = tokenizer("Today anna bought a boat.", return_tensors="pt", truncation=True)
    assert article["input_ids"][0, [0, -1]].tolist() == [tokenizer.cls_token_id, tokenizer.sep_token_id]
    model.eval().generate(**article)  # as the model card says
    pairs = encode_documents(
        Documents(files["test"], Reading(split="test")), tokenizer, 32, 12, tmp_path / "tokens", show_progress=False
    )
    summary = pairs[0]["input_ids"][-pairs[0]["labels"] :].tolist()
    assert tokenizer.cls_token_id not in summary
    assert summary.count(tokenizer.eos_token_id) == 1
    assert tokenizer.decode(summary, skip_special_tokens=True) == make_documents(20, 1)[0]["summary"]


@pytest.mark.parametrize(("epochs", "sample", "drawn"), [(2, {"documents": 3}, True), (1, {"documents": 3}, False)])
def test_one_epoch_is_no_course(epochs, sample, drawn):
    metrics = {"epochs": [{}] * epochs, "sample": sample}
    assert bool(get_task("summarization").pictures(SimpleNamespace(metrics=metrics))) == drawn


def test_names_stand_at_their_lines_and_not_on_each_other():
    axes = Figure().subplots()
    axes.set_ylim(0, 10)
    name_lines(axes, [(9.9, "high", "red"), (9.8, "near it", "blue"), (2.0, "low", "green")])
    places = {text.get_text(): text.xy[1] for text in axes.texts}
    assert places["low"] == pytest.approx(0.2, abs=0.1)
    assert places["high"] - places["near it"] > 0.05
    assert max(places.values()) <= 1


def test_any_name_of_a_run_is_a_title(run_folder, tmp_path):
    plot_course(open_run(run_folder).load_metrics(), tmp_path / "course.png", "run_$a_$b^{")
    assert (tmp_path / "course.png").stat().st_size > 10_000


def test_the_command_line(run_folder, files, tmp_path, monkeypatch, capsys):
    code, out, _ = run_cli(monkeypatch, capsys, "evaluate", run_folder, files["test"])
    assert code == 0
    assert all(part in out for part in ("model", "lead 3", "random 1", "R-Lsum", "documents per second"))
    assert "words are stemmed. Beam 2," in out
    code, out, _ = run_cli(
        monkeypatch, capsys, "evaluate", run_folder, files["test"], "--language", "VI", "--beams", "1"
    )
    assert code == 0
    assert "words are not stemmed. Beam 1," in out
    code, out, _ = run_cli(monkeypatch, capsys, "predict", run_folder, files["test"], "--beams", "1")
    expected = io.StringIO()
    predict(open_run(run_folder), files["test"], expected, beams=1, **quiet)
    assert (code, out) == (0, expected.getvalue())
    article = tmp_path / "article.txt"
    article.write_text("Today anna bought a boat.", encoding="utf-8")
    code, out, _ = run_cli(monkeypatch, capsys, "summarize", run_folder, article, "--beams", "3")
    assert code == 0
    assert out.strip() == summarize(open_run(run_folder), str(article), beams=3)
    code, _, said = run_cli(monkeypatch, capsys, "predict", run_folder, files["test"], "--article-column", "body")
    assert code == 2
    assert "no column 'body'; columns found: article, summary; name one of them with --article-column" in said


def test_a_run_of_another_task_is_refused(run_folder, tmp_path, monkeypatch, capsys):
    other = shutil.copytree(run_folder, tmp_path / "other")
    record = json.loads((other / "run.json").read_text(encoding="utf-8"))
    (other / "run.json").write_text(json.dumps(record | {"task": "masked-words"}), encoding="utf-8")
    code, _, said = run_cli(monkeypatch, capsys, "summarize", other, "article.txt")
    assert code == 2
    for options in (("evaluate", "--language", "en"), ("evaluate", "--beams", "2"), ("predict", "--beams", "2")):
        verb, option, value = options
        code, _, refused = run_cli(monkeypatch, capsys, verb, other, "builtin", option, value)
        assert code == 2
        assert f"{option}: a run of masked-words has no use for it; leave it out" in refused
    assert said.strip() == (
        f"fastformer: {other}: a run of masked-words, which writes no summaries; give a run of `train summarization`"
    )


def test_a_resumed_training_has_one_clock(files, tmp_path, monkeypatch):
    options = {"preset": TINY, "epochs": 2, **quiet}
    watch = fastformer.engine.training._Watch
    original = watch.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            signal.raise_signal(signal.SIGINT)
        original(self, args, state, control, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(watch, "on_step_end", on_step_end)
        with pytest.raises(Interrupted, match="step 5 of 14"):
            train(files["train"], output=tmp_path / "parts", **options)
    train(files["train"], output=tmp_path / "parts", resume=True, **options)
    metrics = open_run(tmp_path / "parts").load_metrics()
    times = [epoch["seconds"] for epoch in metrics["epochs"]]
    assert sorted(times) == times
    assert times[-1] <= metrics["train_seconds"]


def test_the_course_is_rouge_without_beams_and_changes_nothing(files, tmp_path):
    options = {"preset": TINY, "epochs": 2, **quiet}
    metrics = train(files["train"], files["test"], output=tmp_path / "scored", **options)
    found = evaluate(open_run(tmp_path / "scored"), files["test"], beams=1, **quiet)["summaries"]
    assert metrics["validation"]["rouge1"] == found["model"]["rouge1"] > 0
    assert metrics["sample"]["baselines"] == {name: found[name]["rouge1"] for name in found if name != "model"}
    unfollowed = train(files["train"], files["test"], output=tmp_path / "unscored", follow=False, **options)
    assert "rouge1" not in unfollowed["validation"]
    assert not (tmp_path / "unscored" / "course.png").exists()
    scored, unscored = (load_file(tmp_path / name / "model.safetensors") for name in ("scored", "unscored"))
    assert all(torch.equal(scored[name], unscored[name]) for name in scored)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixer": "performer"}, "unknown mixer 'performer'"),
        (
            {"preset": "paper-imdb"},
            "unknown preset 'paper-imdb'; did you .* Choose from default, paper-cnn-dailymail, paper-pubmed",
        ),
        ({"train": "-"}, "give files, not standard input"),
        ({"label_column": "abstract"}, "no column 'abstract'; columns found: article, summary"),
        ({"init": "none.txt"}, "none.txt: no such file or folder"),
        ({"language": "english"}, "--language english: give a two-letter code"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(files, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        train(**{"train": files["train"], "preset": TINY, **options}, output=tmp_path / "run", **quiet)
    assert not (tmp_path / "run").exists()


def test_a_bad_test_row_is_found_before_the_training(files, tmp_path, monkeypatch):
    rows = write_jsonl(tmp_path / "test.jsonl", [*make_documents(2, 0), {"article": "x", "summary": 7}])
    monkeypatch.setattr(Summarization, "build", None)
    with pytest.raises(UserError, match=r"test.jsonl, line 3: the summary is a number, not text"):
        train(files["train"], test=rows, output=tmp_path / "run", preset=TINY, **quiet)
    assert not (tmp_path / "run").exists()


def test_a_start_from_glove(files, tmp_path):
    vectors, numbers = tmp_path / "glove.txt", np.random.default_rng(0).normal(size=(3, 32)).round(4)
    rows = zip(("anna", "bert", "boat"), numbers, strict=True)
    vectors.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows), "utf-8")
    train(
        files["train"],
        output=tmp_path / "run",
        **{**still, "preset": replace(TINY, adapt_init=False)},
        init=str(vectors),
    )
    started, words = load_file(tmp_path / "run" / "model.safetensors")[WORDS], load_tokenizer(tmp_path / "run").vocab
    np.testing.assert_allclose(started[[words[word] for word in ("anna", "bert", "boat")]], numbers, atol=1e-5)


def test_a_start_from_another_summarizer_takes_all_of_it(files, run_folder, tmp_path):
    train(files["train"], output=tmp_path / "run", **still, init=str(run_folder))
    assert open_run(tmp_path / "run").record["init"] == str(run_folder)
    before, after = (load_file(folder / "model.safetensors") for folder in (run_folder, tmp_path / "run"))
    assert before.keys() == after.keys()
    for name, weight in before.items():
        torch.testing.assert_close(after[name], weight, rtol=0, atol=1e-6, msg=name)


def test_a_start_from_masked_words_takes_the_encoder_and_its_word_pairs(files, tmp_path):
    texts = write_jsonl(tmp_path / "texts.jsonl", ({"text": one["article"]} for one in make_documents(120, 0)))
    verbs.train("masked-words", texts, output=tmp_path / "words", tokenizer="word", epochs=1, **quiet)
    before = load_file(tmp_path / "words" / "model.safetensors")
    assert before[PAIRS].any()
    config = open_run(tmp_path / "words").load_config()
    alike = {name: getattr(config, name) for name in ("hidden_size", "num_attention_heads")}
    preset = replace(TINY, model={**TINY.model, **alike})
    train(files["train"], output=tmp_path / "run", **{**still, "preset": preset}, init=str(tmp_path / "words"))
    after = load_file(tmp_path / "run" / "model.safetensors")
    for name in (PAIRS, *(name for name in after if ".mixer." in name and name.startswith("fastformer."))):
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-6, msg=name)
    assert len(after[WORDS]) == len(before[WORDS]) + 1  # [END]
    torch.testing.assert_close(after[WORDS][:-1], before[WORDS], rtol=0, atol=1e-6)


def test_the_papers_table_of_hyper_parameters():
    settings = get_task("summarization").settings
    cnn, pubmed = (settings(f"paper-{name}") for name in ("cnn-dailymail", "pubmed"))
    assert (cnn.model["num_hidden_layers"], pubmed.model["num_hidden_layers"]) == (4, 2)
    assert (cnn.max_length, pubmed.max_length) == (2048, 4096)
    assert (cnn.training.epochs, pubmed.training.epochs) == (12, 15)
    for preset in (cnn, pubmed):
        assert (preset.beams, preset.training.batch_size, preset.training.learning_rate) == (5, 32, 1e-4)
        assert {name: preset.model[name] for name in ("window_size", "num_global_tokens", "num_random_tokens")} == {
            "window_size": 64,
            "num_global_tokens": 64,
            "num_random_tokens": 64,
        }
        assert (preset.model["pooling_window_size"], preset.model["block_size"]) == (256, 32)
        assert (preset.model["projection_size"], preset.model["decoder_layers"]) == (64, 4)
        assert "copy_mechanism" not in preset.model
        assert preset.model["share_layers"]
    transformer = settings("paper-pubmed", mixer="transformer")
    assert transformer.max_length == 512
    assert not transformer.model["share_layers"]
    assert settings("paper-pubmed", mixer="transformer", max_length=1024).max_length == 1024


def test_a_training_that_diverges_is_one_line(files, tmp_path):
    with pytest.raises(UserError, match="the training diverged; lower --learning-rate"):
        train(files["train"], output=tmp_path / "run", preset=TINY, epochs=1, learning_rate=1e30, **quiet)


@pytest.mark.parametrize("damage", ["cut", "overwritten", "plain"])
def test_a_damaged_archive_is_told_in_one_line(run_folder, tmp_path, monkeypatch, capsys, damage):
    whole = bytearray(gzip.compress(b"The cat sleeps on the mat. " * 2000))
    content = {"cut": whole[:40], "overwritten": whole[:20] + b"\xff" * 20 + whole[40:], "plain": b"not compressed"}
    (tmp_path / "article.txt.gz").write_bytes(bytes(content[damage]))
    for verb in ("summarize", "predict"):
        code, out, said = run_cli(monkeypatch, capsys, verb, run_folder, tmp_path / "article.txt.gz")
        assert (code, out) == (2, "")
        assert "article.txt.gz: not a complete gzip file" in said.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("decoder_start_token_id", None, "decoder_start_token_id is missing"),
        ("decoder_start_token_id", [3], "decoder_start_token_id is a list"),
        ("eos_token_id", "x", 'eos_token_id is "x"'),
        ("pad_token_id", 10**9, "pad_token_id names a token that the model does not have"),
        ("num_beams", 10**6, "num_beams is 1000000"),
        ("max_new_tokens", None, "max_new_tokens is missing"),
        ("max_new_tokens", 10**4, "max_new_tokens is more than the"),
    ],
)
def test_how_summaries_are_written_must_be_whole(run_folder, tmp_path, name, value, says):
    shutil.copytree(run_folder, tmp_path / "run")
    path = tmp_path / "run" / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(UserError, match=says):
        load(tmp_path / "run")


def test_a_damaged_run_is_told(run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "run")
    (tmp_path / "run" / "generation_config.json").write_text("{")
    with pytest.raises(UserError, match="the model cannot be loaded"):
        load(tmp_path / "run")
    shutil.copy(run_folder / "generation_config.json", tmp_path / "run")
    weights = load_file(run_folder / "model.safetensors")
    save_file(
        {name: weight for name, weight in weights.items() if not name.startswith("decoder.layers.0.")},
        tmp_path / "run" / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(UserError, match=r"the model cannot be loaded \(model.safetensors has no decoder.layers.0"):
        load(tmp_path / "run")
