"""`fastformer train classification`."""

from pathlib import Path
from typing import Annotated

import typer

from fastformer.cli.options import DATA_HELP, Json, LabelColumn, Seed, TextColumn, print_json, print_table
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


def train_classification(
    train: Annotated[str, typer.Option(help=f"Training data: {DATA_HELP}")],
    output: Annotated[Path, typer.Option(help="Run folder to write.")],
    validation: Annotated[
        str | None,
        typer.Option(
            help="Data to choose the epoch on [default: a tenth of --train, at most 5,000 rows; "
            "of fewer than 3,000 rows up to three tenths]."
        ),
    ] = None,
    test: Annotated[str | None, typer.Option(help="Data that is only scored, at the end.")] = None,
    unlabelled: Annotated[
        str | None,
        typer.Option(
            help="Texts without labels, in any format that --train may have: their words join in the vocabulary, and "
            "which words go together in them is learned from if that does better on held-out rows."
        ),
    ] = None,
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
    class_weight: Annotated[
        str | None,
        typer.Option(
            help="balanced: every class counts the same, however rare; better recall of rare ones, less accuracy. "
            "For one label per text."
        ),
    ] = None,
    seed: Seed = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Train a text classifier.

    Labels may be strings or integers; lists of labels (JSONL, Parquet; `a|b` in CSV) train a multi-label model. The
    default preset reads texts of up to a million tokens whole; those longer than --max-length are cut, and a line says
    how many. The file may be larger than memory, and Ctrl-C leaves a checkpoint that `--resume` continues from.

    Example: `fastformer train classification --train reviews.csv --test held-out.csv --output runs/reviews`
    """
    from fastformer.tasks.classification import train as run

    metrics = run(
        train,
        validation,
        test,
        unlabelled=unlabelled,
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
        class_weight=class_weight,
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
