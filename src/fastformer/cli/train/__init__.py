"""`fastformer train TASK`: one module per task."""

from fastformer.cli.train.conversion import train_conversion
from fastformer.cli.train_task import train_app

train_app.command("conversion")(train_conversion)
