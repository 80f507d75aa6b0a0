"""Conversion prediction as a Python object."""

from fastformer.tasks.model import TaskModel


class ConversionPredictor(TaskModel):
    """Tells how likely a user converts on an ad, from what the user did before."""

    task = "conversion"
