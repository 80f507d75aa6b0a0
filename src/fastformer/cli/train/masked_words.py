"""`fastformer train masked-words`."""

from pathlib import Path
from typing import Annotated

import typer

from fastformer.cli.options import DATA_HELP, Json, Seed, TextColumn, print_json, print_table
from fastformer.cli.train.options import (
    BatchSize,
    Epochs,
    LearningRate,
    MaxLength,
    Mixer,
    Overwrite,
    PresetName,
    Resume,
    Tokenizer,
)


def train_masked_words(
    train: Annotated[
        list[str],
        typer.Option(help=f"Texts, with or without labels: {DATA_HELP} Or .txt, one text per line. Repeatable."),
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
