"""`fastformer train summarization`."""

from pathlib import Path
from typing import Annotated

import typer

from fastformer.cli.options import (
    ArticleColumn,
    Beams,
    Json,
    Language,
    Seed,
    SummaryColumn,
    print_json,
    print_summaries,
    print_table,
)
from fastformer.cli.train.options import Epochs, LearningRate, Mixer, Overwrite, Resume, Tokenizer


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
    language: Language = None,
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
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Cut articles after this many tokens [default: the preset's, 512].")
    ] = None,
    max_summary_length: Annotated[
        int | None, typer.Option(min=2, help="Most tokens of a summary [default: the preset's, 128].")
    ] = None,
    beams: Beams = None,
    epochs: Epochs = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Documents per step, on average.")] = None,
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
    baselines = {name: {"rouge1": found} for name, found in metrics["sample"]["baselines"].items()}
    rows = {"validation": metrics["validation"], **baselines}
    print_table(f"{output}", rows, ("perplexity", "accuracy", "rouge1"))
    if test:
        print_summaries(test, metrics["test"])
    print(f"{metrics['train_seconds']:.0f} s for {metrics['rows']['train']:,} documents. The model is in {output}.")
