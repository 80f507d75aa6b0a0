"""`fastformer train TASK`: one module per task."""

import typer

from fastformer.cli.train.classification import train_classification
from fastformer.cli.train.conversion import train_conversion
from fastformer.cli.train.masked_words import train_masked_words
from fastformer.cli.train.recommendation import train_recommendation
from fastformer.cli.train.summarization import train_summarization

train_app = typer.Typer(no_args_is_help=True, help="Train a model for a task; leaves a run folder.")
train_app.command("classification")(train_classification)
train_app.command("recommendation")(train_recommendation)
train_app.command("masked-words")(train_masked_words)
train_app.command("conversion")(train_conversion)
train_app.command("summarization")(train_summarization)
