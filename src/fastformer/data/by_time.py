"""Held out by time: what is validated on lies after all that is trained on, as what a model will meet lies after it."""

from typing import Literal, NamedTuple

import numpy as np

from fastformer.errors import UserError

VALIDATION_SHARE = 0.1
# How rows to validate on were chosen, for model cards.
CHOSEN = {
    None: "given",
    "time": "the last of the training data by time",
    "random": "drawn at random from the training data, as no time tells them apart",
}


class HeldOut(NamedTuple):
    """Rows to train and to validate on, in their order, and how they were told apart."""

    train: np.ndarray
    validation: np.ndarray
    by: Literal["time", "random"]


def hold_out_latest(times: np.ndarray, seed: int, most: int | None = None) -> HeldOut:
    """The last tenth by time validates, about `most` rows at most; a random one where no time tells rows apart.

    `times` are any numbers, NaN where a row has none. Rows of the same time stay together: the cut is moved to the
    nearest change of time, whichever side of `most` that is.
    """
    count = len(times)
    if count < 2:
        raise UserError("one row leaves nothing to validate on; give more rows, or other data to --validation")
    timeless = int(np.isnan(times).sum())
    if 0 < timeless < count:
        raise UserError(
            f"{timeless:,} of {count:,} training rows have no time, so the latest tenth cannot be found; give every "
            "row a time, or none, or give other data to --validation"
        )
    cut = count - min(max(1, round(VALIDATION_SHARE * count)), most or count)
    order = np.argsort(times, kind="stable")
    changes = np.flatnonzero(np.diff(times[order]) > 0) + 1
    if not len(changes):
        order = np.random.default_rng([seed, 1]).permutation(count)
    else:
        cut = changes[np.abs(changes - cut).argmin()]
    return HeldOut(np.sort(order[:cut]), np.sort(order[cut:]), "time" if len(changes) else "random")
