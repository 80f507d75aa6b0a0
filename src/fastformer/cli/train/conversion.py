"""`fastformer train conversion`."""

from pathlib import Path
from typing import Annotated

import typer

from fastformer.cli.options import Json, Seed, print_json, print_table
from fastformer.cli.train.options import (
    BatchSize,
    Epochs,
    LearningRate,
    MaxLength,
    Mixer,
    Overwrite,
    Resume,
    Tokenizer,
    WordVectors,
)


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
            help="Events to choose the epoch on [default: the last tenth of --train by time, or a random one if no row "
            "has a time]."
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
    init: WordVectors = None,
    max_length: MaxLength = None,
    max_behaviors: Annotated[int | None, typer.Option(min=1, help="Read this many of the latest behaviours.")] = None,
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
        init=init,
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
