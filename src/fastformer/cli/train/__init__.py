"""`fastformer train TASK`: a module a task."""

from fastformer.cli.train.classification import train_classification
from fastformer.cli.train.conversion import train_conversion
from fastformer.cli.train.recommendation import train_recommendation
from fastformer.cli.train_task import train_app

train_app.command("classification")(train_classification)
train_app.command("recommendation")(train_recommendation)
train_app.command("conversion")(train_conversion)
