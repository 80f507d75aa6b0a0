"""`fastformer train TASK`."""

from pathlib import Path
from typing import Annotated

import typer

from fastformer.cli.options import (
    DATA_HELP,
    ArticleColumn,
    Beams,
    Json,
    LabelColumn,
    Seed,
    SummaryColumn,
    TextColumn,
    print_json,
    print_summaries,
    print_table,
)

train_app = typer.Typer(no_args_is_help=True, help="Train a model for a task; leaves a run folder.")

Mixer = Annotated[
    str, typer.Option(help="fastformer, transformer, longformer, bigbird, linformer, linear or poolingformer.")
]
PresetName = Annotated[str, typer.Option(help="default, encoder, paper-amazon, paper-imdb or paper-mind.")]
Tokenizer = Annotated[str | None, typer.Option(help="word, bpe, nltk, or the path of a saved tokenizer.")]
MaxLength = Annotated[int | None, typer.Option(min=1, help="Cut texts after so many tokens.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Passes over the training data.")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Texts to a step.")]
LearningRate = Annotated[float | None, typer.Option(min=1e-9, help="Adam's learning rate.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted training in --output.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in --output when done.")]


@train_app.command("classification")
def train_classification(
    train: Annotated[str, typer.Option(help=f"Training data: {DATA_HELP}")],
    output: Annotated[Path, typer.Option(help="Run folder to write.")],
    validation: Annotated[
        str | None, typer.Option(help="Data to choose the epoch on [default: a tenth of --train].")
    ] = None,
    test: Annotated[str | None, typer.Option(help="Data that is only scored, at the end.")] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    regression: Annotated[bool, typer.Option("--regression", help="Labels are numbers, not classes.")] = False,
    mixer: Mixer = "fastformer",
    preset: PresetName = "default",
    tokenizer: Tokenizer = None,
    init: Annotated[
        str | None,
        typer.Option(
            help="Start from a GloVe file (text, .gz or .zip), a folder with a transformers or sentence-transformers "
            "encoder, or an earlier run, whose tokenizer is used too unless --tokenizer is given."
        ),
    ] = None,
    max_length: MaxLength = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    seed: Seed = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Train a text classifier.

    Labels may be strings or integers; lists of labels (JSONL, Parquet; `a|b` in CSV) train a multi-label model. Texts
    of any length are read, the file may be larger than memory, and Ctrl-C leaves a checkpoint that `--resume` continues
    from.

    Example: `fastformer train classification --train reviews.csv --test held-out.csv --output runs/reviews`
    """
    from fastformer.tasks.classification import train as run

    metrics = run(
        train,
        validation,
        test,
        output=output,
        mixer=mixer,
        preset=preset,
        text_column=text_column,
        label_column=label_column,
        regression=regression,
        tokenizer=tokenizer,
        init=init,
        max_length=max_length,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        show_progress=not json_,
    )
    if json_:
        return print_json(metrics)
    scores = {part: metrics[part] for part in ("validation", "test") if part in metrics}
    print_table(f"{output}", scores, tuple(metrics["validation"]))
    print(f"{metrics['train_seconds']:.0f} s for {metrics['rows']['train']:,} rows. The model is in {output}.")


@train_app.command("recommendation")
def train_recommendation(
    train: Annotated[
        str, typer.Option(metavar="DIR", help="Folder with MIND's news.tsv and behaviors.tsv, or builtin:train.")
    ],
    output: Annotated[Path, typer.Option(help="Run folder to write.")],
    validation: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder to choose the epoch on [default: a tenth of --train, at most 5,000]."),
    ] = None,
    model: Annotated[str, typer.Option(help="fastformer, nrms, fim, plm-nr or fastformer+plm-nr.")] = "fastformer",
    news_mixer: Annotated[str | None, typer.Option(help="Mixer that reads titles [default: the model's].")] = None,
    user_mixer: Annotated[str | None, typer.Option(help="Mixer that reads histories [default: the model's].")] = None,
    plm: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder with a transformers encoder that reads titles (plm-nr).")
    ] = None,
    plm_layers: Annotated[
        int | None,
        typer.Option(min=0, help="Train the last layers of --plm [default: none, it reads each title once]."),
    ] = None,
    preset: Annotated[str, typer.Option(help="default, for a CPU, or paper.")] = "default",
    fields: Annotated[
        str | None, typer.Option(help="Columns of news to read: title,category,subcategory,abstract [default: title].")
    ] = None,
    title_length: Annotated[int | None, typer.Option(min=1, help="Cut titles after so many tokens.")] = None,
    history_length: Annotated[int | None, typer.Option(min=1, help="Read so many of the last clicks.")] = None,
    negatives: Annotated[int | None, typer.Option(min=1, help="Non-clicks drawn beside each click.")] = None,
    epochs: Epochs = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Clicks to a step.")] = None,
    learning_rate: LearningRate = None,
    seed: Seed = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Train a news recommender on data in MIND's layout.

    `fastformer` is the paper's hierarchical model: titles to news vectors, clicked news to a user vector. `nrms` does
    so with plain self-attention, `plm-nr` and `fastformer+plm-nr` read titles with a pre-trained encoder (--plm), `fim`
    matches titles word by word. `recommend` prints what a user may like, `evaluate` and `predict` read folders of MIND.

    Example: `fastformer train recommendation --train MINDsmall_train --validation MINDsmall_dev --output runs/news`
    """
    from fastformer.tasks.recommendation import train as run

    metrics = run(
        train,
        validation,
        output=output,
        model=model,
        news_mixer=news_mixer,
        user_mixer=user_mixer,
        plm=plm,
        plm_layers=plm_layers,
        preset=preset,
        fields=fields,
        title_length=title_length,
        history_length=history_length,
        negatives=negatives,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        show_progress=not json_,
    )
    if json_:
        return print_json(metrics)
    print_table(f"{output}", {"validation": metrics["validation"]}, tuple(metrics["validation"]))
    print(f"{metrics['train_seconds']:.0f} s for {metrics['rows']['clicks']:,} clicks. The model is in {output}.")


@train_app.command("masked-words")
def train_masked_words(
    train: Annotated[
        list[str], typer.Option(help=f"Texts, with or without labels: {DATA_HELP} Or .txt, a text a line. Repeatable.")
    ],
    output: Annotated[Path, typer.Option(help="Run folder to write.")],
    validation: Annotated[
        str | None, typer.Option(help="Texts to choose the epoch on [default: a tenth of --train, at most 1,000].")
    ] = None,
    text_column: TextColumn = None,
    mixer: Mixer = "fastformer",
    preset: PresetName = "default",
    tokenizer: Tokenizer = None,
    max_length: MaxLength = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    seed: Seed = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Learn from text without labels, by filling in hidden words: a start for `train classification --init`.

    15% of the words are hidden. The run is a start for a classifier with the same `--preset` and `--mixer`; `predict`
    fills in every `[MASK]` of a text, `evaluate` gives the perplexity, `embed` mean token vectors.

    Example: `fastformer train masked-words --train reviews.txt --output runs/words`
    """
    from fastformer.tasks.masked_words import train as run

    metrics = run(
        train,
        validation,
        output=output,
        mixer=mixer,
        preset=preset,
        text_column=text_column,
        tokenizer=tokenizer,
        max_length=max_length,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        show_progress=not json_,
    )
    if json_:
        return print_json(metrics)
    print_table(f"{output}", {"validation": metrics["validation"]}, tuple(metrics["validation"]))
    print(f"{metrics['train_seconds']:.0f} s for {metrics['rows']['train']:,} texts. The model is in {output}.")


@train_app.command("conversion")
def train_conversion(
    train: Annotated[
        str,
        typer.Option(
            help="Events: .jsonl or .parquet (or .gz) with the columns behaviors (a list of texts, the latest last), "
            "ad (a text), label (0 or 1) and perhaps time; or `builtin`, simulated ones."
        ),
    ],
    output: Annotated[Path, typer.Option(help="Run folder to write.")],
    validation: Annotated[
        str | None,
        typer.Option(
            help="Events to choose the epoch on [default: the last tenth of --train by time, or a random one]."
        ),
    ] = None,
    test: Annotated[str | None, typer.Option(help="Events that are only scored, at the end.")] = None,
    numeric: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A side feature that is a number. Repeatable.")
    ] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A side feature that is a category. Repeatable.")
    ] = None,
    mixer: Mixer = "fastformer",
    user_mixer: Annotated[str | None, typer.Option(help="The method over behaviours [default: --mixer].")] = None,
    preset: Annotated[str, typer.Option(help="default, or paper.")] = "default",
    tokenizer: Tokenizer = None,
    max_length: MaxLength = None,
    max_behaviors: Annotated[int | None, typer.Option(min=1, help="Read so many of the latest behaviours.")] = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    seed: Seed = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Train a model that tells whether a user converts on an ad, from what the user did before: the paper's Ad CVR.

    Texts of behaviours and ads go through one encoder, the vectors of the behaviours through another, and an MLP judges
    user, ad, their product and the side features.

    Example: `fastformer train conversion --train log.jsonl --numeric price --categorical device --output runs/ads`
    """
    from fastformer.tasks.conversion import train as run

    metrics = run(
        train,
        validation,
        test,
        output=output,
        mixer=mixer,
        user_mixer=user_mixer,
        preset=preset,
        numeric=numeric or (),
        categorical=categorical or (),
        tokenizer=tokenizer,
        max_length=max_length,
        max_behaviors=max_behaviors,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        show_progress=not json_,
    )
    if json_:
        return print_json(metrics)
    scores = {part: metrics[part] for part in ("validation", "test") if part in metrics}
    print_table(f"{output}", scores, tuple(metrics["validation"]))
    print(f"{metrics['train_seconds']:.0f} s for {metrics['rows']['train']:,} rows. The model is in {output}.")


@train_app.command("summarization")
def train_summarization(
    train: Annotated[
        str,
        typer.Option(
            help="Documents: CSV, TSV, JSONL or Parquet (plain or .gz) with article and summary columns, .story files "
            "of CNN/DailyMail in a folder, PubMed or arXiv of Cohan et al., a folder saved by `datasets`, a Hub name, "
            "or `builtin`."
        ),
    ],
    output: Annotated[Path, typer.Option(help="Run folder to write.")],
    validation: Annotated[
        str | None, typer.Option(help="Documents to choose the epoch on [default: a tenth of --train, at most 1,000].")
    ] = None,
    test: Annotated[str | None, typer.Option(help="Documents that are only scored, at the end.")] = None,
    article_column: ArticleColumn = None,
    summary_column: SummaryColumn = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="en: words are stemmed for ROUGE; any other: they are not [default: en, or as letters tell]."
        ),
    ] = None,
    mixer: Mixer = "fastformer",
    preset: Annotated[str, typer.Option(help="default, paper-cnn-dailymail or paper-pubmed.")] = "default",
    tokenizer: Tokenizer = None,
    init: Annotated[
        str | None,
        typer.Option(help="Start from a GloVe file, a folder with a transformers encoder, or an earlier run."),
    ] = None,
    copy: Annotated[
        bool | None, typer.Option("--copy/--no-copy", help="Let it copy words of the article [default: the preset's].")
    ] = None,
    max_length: MaxLength = None,
    max_summary_length: Annotated[int | None, typer.Option(min=2, help="Most tokens of a summary.")] = None,
    beams: Beams = None,
    epochs: Epochs = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Documents to a step, on average.")] = None,
    learning_rate: LearningRate = None,
    seed: Seed = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Train a summarizer: an encoder with any of the seven methods, and a Transformer decoder that writes.

    `summarize` then prints the summary of a document, `predict` those of a file, `evaluate` scores them by ROUGE.
    Articles longer than --max-length are cut. Ctrl-C leaves a checkpoint that `--resume` continues from.

    Example: `fastformer train summarization --train news.jsonl --test held-out.jsonl --output runs/news`
    """
    from fastformer.tasks.summarization import train as run

    metrics = run(
        train,
        validation,
        test,
        output=output,
        mixer=mixer,
        preset=preset,
        article_column=article_column,
        summary_column=summary_column,
        language=language,
        tokenizer=tokenizer,
        init=init,
        copy=copy,
        max_length=max_length,
        max_summary_length=max_summary_length,
        beams=beams,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        show_progress=not json_,
    )
    if json_:
        return print_json(metrics)
    print_table(f"{output}", {"validation": metrics["validation"]}, tuple(metrics["validation"]))
    if test:
        print_summaries(test, metrics["test"])
    print(f"{metrics['train_seconds']:.0f} s for {metrics['rows']['train']:,} documents. The model is in {output}.")
