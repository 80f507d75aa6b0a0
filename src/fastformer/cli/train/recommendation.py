"""`fastformer train recommendation`."""

from pathlib import Path
from typing import Annotated

import typer

from fastformer.cli.options import Json, Seed, print_json, print_table
from fastformer.cli.train.options import Epochs, LearningRate, Overwrite, Resume, WordVectors


def train_recommendation(
    train: Annotated[
        str, typer.Option(metavar="DIR", help="Folder with MIND's news.tsv and behaviors.tsv, or builtin:train.")
    ],
    output: Annotated[Path, typer.Option(help="Run folder to write.")],
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder to choose the epoch on [default: the last tenth of --train by time, about 5,000 impressions "
            "at most].",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="fastformer, nrms, fim, plm-nr or fastformer+plm-nr.")] = "fastformer",
    news_mixer: Annotated[str | None, typer.Option(help="Mixer that reads titles [default: the model's].")] = None,
    user_mixer: Annotated[str | None, typer.Option(help="Mixer that reads histories [default: the model's].")] = None,
    plm: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder with a transformers encoder that reads titles (plm-nr).")
    ] = None,
    plm_layers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Train this many of the last layers of --plm [default: 0, it reads each title once; 2 in paper].",
        ),
    ] = None,
    init: WordVectors = None,
    preset: Annotated[str, typer.Option(help="default, for a CPU, or paper.")] = "default",
    fields: Annotated[
        str | None, typer.Option(help="Columns of news to read: title,category,subcategory,abstract [default: title].")
    ] = None,
    title_length: Annotated[int | None, typer.Option(min=1, help="Cut titles after this many tokens.")] = None,
    history_length: Annotated[int | None, typer.Option(min=1, help="Read this many of the last clicks.")] = None,
    negatives: Annotated[int | None, typer.Option(min=1, help="Non-clicks drawn beside each click.")] = None,
    epochs: Epochs = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Clicks per step.")] = None,
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
        init=init,
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
