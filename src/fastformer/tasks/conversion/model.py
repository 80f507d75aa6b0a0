"""Conversion prediction as a Python object."""

from fastformer.tasks.conversion.scoring import EventPredictor
from fastformer.tasks.model import TaskModel


class ConversionPredictor(TaskModel[EventPredictor]):
    """Tells how likely a user converts on an ad, from what the user did before.

    An example is a dictionary with `behaviors` (texts, the latest last), `ad` (a text) and the side features; to train
    and to evaluate it also has `label`, 0 or 1, and perhaps `time`.

        >>> model = ConversionPredictor(numeric=["price"], categorical=["device"]).fit("builtin")
        >>> graphs = ["Return the adjacency matrix of G.", "Draw the graph G."]
        >>> event = {"behaviors": graphs, "ad": "Returns the shortest path.", "price": 8.5, "device": "phone"}
        >>> model.predict([event, {**event, "behaviors": []}])
        [{'probability': 0.757776}, {'probability': 0.502164}]
    """

    task = "conversion"
