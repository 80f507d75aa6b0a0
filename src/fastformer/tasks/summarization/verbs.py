"""The verbs of the command line for summarization, as functions on files and run folders."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from fastformer.data.formats import STANDARD_INPUT, decode, guard, is_table, opened, standard_input
from fastformer.errors import Interrupted, UserError
from fastformer.inference import TextRunner
from fastformer.modeling.pooling import MeanPooling
from fastformer.run_folder import CHECKPOINTS, Run, claim_output, save_results, save_run, unharmed
from fastformer.tasks import check_training
from fastformer.tasks.summarization.baselines import baseline_summaries
from fastformer.tasks.summarization.card import model_card
from fastformer.tasks.summarization.course import COURSE_FILE, plot_course
from fastformer.tasks.summarization.documents import STORY, Documents, read_documents, tidy
from fastformer.tasks.summarization.fit import fit_summarizer
from fastformer.tasks.summarization.metrics import ENGLISH, language_code, rouge
from fastformer.tasks.summarization.presets import Preset, get_preset
from fastformer.tasks.summarization.writing import Summarizer
from fastformer.vectors import write_vectors
from fastformer.warm_start import tokenizer_of


def train(
    train: str,
    validation: str | None = None,
    test: str | None = None,
    *,
    output: str | Path,
    mixer: str = "fastformer",
    preset: str | Preset = "default",
    article_column: str | None = None,
    summary_column: str | None = None,
    language: str | None = None,
    tokenizer: str | None = None,
    init: str | None = None,
    copy: bool | None = None,
    max_length: int | None = None,
    max_summary_length: int | None = None,
    beams: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    follow: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train on documents with summaries and leave a run folder; return its metrics.

    Without `validation` a tenth of the documents, at most 1,000, is held out to choose the epoch. `test` is only
    scored, at the end. `preset` is a name, or settings of one's own. With `follow` some validation documents are
    summarized after every epoch, and the run has a picture of its course.
    """
    check_training((mixer,), (train, validation, test))
    language = language and language_code(language)
    settings = (preset if isinstance(preset, Preset) else get_preset(preset, mixer)).with_overrides(
        tokenizer=tokenizer or tokenizer_of(init),
        max_length=max_length,
        max_summary_length=max_summary_length,
        beams=beams,
        copy=copy,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    columns = {"article_column": article_column, "summary_column": summary_column}
    sources = {"train": train, "validation": validation, "test": test}
    folder = claim_output(output, resume=resume, overwrite=overwrite)
    with unharmed(folder):
        documents = {
            split: Documents(str(source), **columns, split=split).check() for split, source in sources.items() if source
        }
        if test:
            sum(1 for _ in documents["test"])  # a row that is wrong shows now and not after the training
        fitted = fit_summarizer(
            documents["train"],
            documents.get("validation"),
            preset=settings,
            mixer=mixer,
            init=init,
            language=language,
            follow=follow,
            checkpoints=folder / CHECKPOINTS,
            resume=resume,
            show_progress=show_progress,
        )
        metrics, name = fitted.metrics(), folder.resolve().name
        record = {
            "task": "summarization",
            "mixer": mixer,
            "preset": preset if isinstance(preset, str) else "custom",
            "settings": asdict(fitted.preset),
            "language": fitted.language,
            "init": init,
            "data": {**{split: source and str(source) for split, source in sources.items()}, **columns},
        }
        card = model_card(record, metrics, name)
        save_run(folder, fitted.model, fitted.tokenizer, record=record, metrics=metrics, card=card)
        if follow:
            plot_course(metrics, folder / COURSE_FILE, name)
        if test:  # last, for it takes long: whatever happens, the model is safe
            summarizer = Summarizer(fitted.model, fitted.tokenizer)
            try:
                metrics["test"] = _score(summarizer, documents["test"], fitted.language, seed, show_progress)
            except KeyboardInterrupt:
                again = f"`fastformer evaluate {folder} {test}` scores it"
                raise Interrupted(f"stopped while {test} was scored; the model is in {folder}, and {again}") from None
            save_results(folder, metrics, model_card(record, metrics, name))
    return metrics


def evaluate(
    run: Run,
    source: str,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    language: str | None = None,
    beams: int | None = None,
    seed: int = 0,
    show_progress: bool = True,
) -> dict[str, Any]:
    """ROUGE of a run on a file, beside baselines: the first three sentences or one of an article, and random ones.

    `summaries` has of each the means in percent and 95% `intervals`. Columns are those of the training unless given.
    """
    if source == "-":
        raise UserError("scoring needs a file: standard input does not say which column is the summary")
    language = language_code(language or run.record.get("language", ENGLISH))
    summarizer, data = Summarizer.of(run, beams), run.record.get("data", {})
    columns = (text_column or data.get("article_column"), label_column or data.get("summary_column"))
    documents = Documents(source, *columns, split="test")
    return _score(summarizer, documents, language, seed, show_progress)


def predict(
    run: Run,
    source: str,
    out: TextIO,
    *,
    text_column: str | None = None,
    format: str | None = None,
    beams: int | None = None,
    show_progress: bool = True,
) -> int:
    """Write `{"summary": …, "score": …}`, one JSON line an article, in input order; return how many.

    The score is the mean log-probability of the summary's words; nothing where the article is empty.
    """
    summarizer = Summarizer.of(run, beams)
    articles = _articles(run, source, text_column, format)
    for written in summarizer(articles, "Summarizing", show_progress):
        score = None if written.score is None else round(written.score, 4)
        out.write(json.dumps({"summary": written.summary, "score": score}, ensure_ascii=False) + "\n")
    summarizer.warn()
    return summarizer.count


def summarize(run: Run, source: str, *, beams: int | None = None) -> str:
    """The summary of one document: a text file, or `-` for standard input."""
    summarizer = Summarizer.of(run, beams)
    article = _read_document(source)
    [written] = summarizer([article])
    summarizer.warn()
    return written.summary


def embed(
    run: Run,
    source: str,
    output: str | Path,
    *,
    text_column: str | None = None,
    format: str | None = None,
    show_progress: bool = True,
) -> tuple[int, int]:
    """Write article vectors, the mean of the encoder's, to `.npy` or `.parquet`; return their number and width."""
    summarizer = Summarizer.of(run)
    model, tokenizer = summarizer.model, summarizer.tokenizer
    runner = TextRunner(model, tokenizer, tokenizer.model_max_length)

    def mean(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = model.get_encoder()(input_ids, attention_mask).last_hidden_state
        return MeanPooling(model.config)(states, attention_mask.bool())

    vectors = runner(_articles(run, source, text_column, format), mean)
    count = write_vectors(output, vectors, model.config.hidden_size, show_progress)
    runner.warn_about_cut_texts()
    return count, model.config.hidden_size


def _articles(run: Run, source: str, column: str | None, format: str | None) -> Iterator[str]:
    column = column or run.record.get("data", {}).get("article_column")
    documents = read_documents(source, article_column=column, with_summary=False, format=format, split="test")
    return (document.article for document in documents)


def _read_document(source: str) -> str:
    """All of a text file, or of standard input."""
    if source == "-":
        name, text = STANDARD_INPUT, "".join(decode(standard_input(), STANDARD_INPUT))
    elif not Path(source).exists():
        raise UserError(f"{source}: no such file; give a text file, or - for standard input")
    elif Path(source).is_dir() or is_table(source):
        raise UserError(f"{source}: more than one document; `fastformer predict` summarizes each of them")
    elif source.endswith(STORY):
        name, [(text, _)] = source, read_documents(source)
    else:
        with opened(source) as file:
            name, text = source, "".join(guard(source, decode(file, source)))
    if not (text := tidy(text)):
        raise UserError(f"{name}: the document is empty; give one with words in it")
    return text


def _score(
    summarizer: Summarizer, documents: Documents, language: str, seed: int, show_progress: bool
) -> dict[str, Any]:
    baselines, references = [], []

    def noting_references() -> Iterator[str]:
        for row, document in enumerate(documents):
            baselines.append(baseline_summaries(document.article, (seed, row)))
            references.append(document.summary)
            yield document.article

    written = [one.summary for one in summarizer(noting_references(), "Summarizing", show_progress)]
    documents.warn_about_empty()
    summarizer.warn()
    summaries = {"model": written, **{name: [one[name] for one in baselines] for name in baselines[0]}}
    return {
        "rows": len(references),
        "language": language,
        "beams": summarizer.beams,
        "documents_per_second": round(summarizer.count / summarizer.seconds, 2),
        "summaries": {name: rouge(texts, references, language, seed) for name, texts in summaries.items()},
    }
