"""`fastformer train TASK`: one module per task."""

from fastformer.cli.train.classification import train_classification
from fastformer.cli.train.recommendation import train_recommendation
from fastformer.cli.train.summarization import train_summarization
from fastformer.cli.train_task import train_app

train_app.command("classification")(train_classification)
train_app.command("recommendation")(train_recommendation)
train_app.command("summarization")(train_summarization)
