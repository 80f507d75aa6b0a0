"""From the outputs of a model to probabilities, labels and answers. Nothing here imports PyTorch."""

from typing import Any

import numpy as np
from scipy.special import expit, softmax

from fastformer.errors import UserError
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.declaration import Predicting


def probabilities(space: LabelSpace, logits: np.ndarray) -> np.ndarray:
    """Class probabilities (texts, classes): they sum to 1 for one label per text, stand alone for several."""
    logits = logits.astype(np.float64)
    return softmax(logits, axis=-1) if space.kind == "single" else expit(logits)


def falling(chances: np.ndarray) -> np.ndarray:
    """Places of the classes by falling probability (along the last axis); of equal ones the first comes first."""
    return np.argsort(-chances, axis=-1, kind="stable")


def has_label(space: LabelSpace, chances: np.ndarray) -> np.ndarray:
    """Which labels a text has, by their probabilities (…, labels), if it may have several."""
    return chances > (0.5 if space.thresholds is None else np.array(space.thresholds))


def check_options(space: LabelSpace, options: Predicting, name: str) -> None:
    """Refuse what makes no sense for what the run called `name` predicts."""
    for flag, value in (("--top", options.top), ("--threshold", options.threshold)):
        if value is not None and space.kind == "number":
            raise UserError(f"{flag} {value}: {name} predicts a number and has no probabilities; leave {flag} out")
    if options.top is not None and options.top < 1:
        raise UserError(f"--top {options.top}: no label would be left; give 1 or more")
    if options.threshold is not None and not 0 <= options.threshold <= 1:
        raise UserError(f"--threshold {options.threshold}: a probability is between 0 and 1")


def describe(
    space: LabelSpace, logits: np.ndarray, top: int | None = None, threshold: float | None = None
) -> dict[str, Any]:
    """The prediction that the logits of one text make: `label`, `labels` or `prediction`, and `probabilities`.

    The probabilities are in the order of the labels, or only the `top` largest, in falling order. If there may be
    several, `labels` are those above their thresholds, or of at least `threshold`; if there is one, it is None if
    it is less probable than that.
    """
    if space.kind == "number":
        return {"prediction": float(logits[0])}
    chances = probabilities(space, logits)
    order = range(len(chances)) if top is None else falling(chances)[:top]
    named = {space.names[index]: round(float(chances[index]), 6) for index in order}
    if space.kind == "single":
        best = int(chances.argmax())
        sure = threshold is None or chances.max() >= threshold
        return {"label": space.names[best] if sure else None, "probabilities": named}
    found = has_label(space, chances) if threshold is None else chances >= threshold
    return {"labels": [name for name, yes in zip(space.names, found, strict=True) if yes], "probabilities": named}


def describe_all(
    space: LabelSpace, logits: np.ndarray, top: int | None = None, threshold: float | None = None
) -> list[dict[str, Any]]:
    """`describe` of many texts (texts, outputs) at a time, which takes a fraction of the time."""
    if logits.shape[1] != space.size:
        raise UserError(
            f"the model has {logits.shape[1]} outputs for {space.size} labels; its folder is damaged: train it again"
        )
    if space.kind == "number":
        return [{"prediction": number} for number in logits[:, 0].tolist()]
    names, chances = space.names, probabilities(space, logits)
    values = _rounded(chances)
    if top is None:
        named = [dict(zip(names, row, strict=True)) for row in values]
    else:
        orders = falling(chances)[:, :top].tolist()
        named = [{names[place]: row[place] for place in order} for order, row in zip(orders, values, strict=True)]
    if space.kind == "single":
        labels: list[str | None] = [names[one] for one in chances.argmax(axis=-1).tolist()]
        if threshold is not None:
            sure = (chances.max(axis=-1) >= threshold).tolist()
            labels = [label if yes else None for label, yes in zip(labels, sure, strict=True)]
        return [{"label": label, "probabilities": some} for label, some in zip(labels, named, strict=True)]
    found = (has_label(space, chances) if threshold is None else chances >= threshold).tolist()
    chosen = ([name for name, yes in zip(names, row, strict=True) if yes] for row in found)
    return [{"labels": labels, "probabilities": some} for labels, some in zip(chosen, named, strict=True)]


def _rounded(chances: np.ndarray) -> list[list[float]]:
    """`round(chance, 6)` of every number."""
    rounded = chances.round(6)
    # NumPy multiplies, rounds and divides: if the product falls between two integers, it may go the wrong way.
    millionths = chances * 1e6
    doubtful = np.abs(millionths - np.floor(millionths) - 0.5) < 1e-6
    rounded[doubtful] = [round(chance, 6) for chance in chances[doubtful].tolist()]
    return rounded.tolist()
