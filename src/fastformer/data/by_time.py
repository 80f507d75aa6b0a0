"""Held out by time: validation rows are later than all training rows, as new data is later than a trained model."""

from typing import Literal, NamedTuple

import numpy as np

from fastformer.errors import UserError
from fastformer.surroundings.progress import say

VALIDATION_SHARE = 0.1
MOST = 3  # at most this many times as many rows as wanted, to keep rows of one time together
By = Literal["time", "last time", "random"]
# How rows to validate on were chosen, for model cards.
CHOSEN = {
    None: "given",
    "time": "the last of the training data by time",
    "last time": "drawn at random from the rows of the last time in the training data, which too many rows share",
    "random": "drawn at random from the training data, as no time tells them apart",
}


class HeldOut(NamedTuple):
    """Rows to train and to validate on, in their order, and how they were told apart."""

    train: np.ndarray
    validation: np.ndarray
    by: By


def hold_out_latest(times: np.ndarray, seed: int, most: int | None = None) -> HeldOut:
    """The last tenth by time validates, about `most` rows at most; a random tenth if rows have no different times.

    `times` are any numbers, NaN if a row has none. Rows of the same time stay together: the cut is moved to the
    nearest change of time that holds out at most `MOST` times as many rows as wanted. If there is none, too many
    rows share the last time, and those held out are drawn from them at random.
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
    wanted = min(max(1, round(VALIDATION_SHARE * count)), most or count)
    order = np.argsort(times, kind="stable")
    changes = np.flatnonzero(np.diff(times[order]) > 0) + 1
    possible = changes[count - changes <= MOST * wanted]
    draw = np.random.default_rng([seed, 1])
    cut = count - wanted
    by: By = "time"
    if not len(changes):
        order, by = draw.permutation(count), "random"
    elif not len(possible):
        last = changes[-1]
        order[last:], by = draw.permutation(order[last:]), "last time"
        say(
            f"{count - last:,} of {count:,} training rows have the same time, the last one: {wanted:,} of them, "
            "drawn at random, are held out to validate on."
        )
    else:
        cut = possible[np.abs(possible - cut).argmin()]
        if count - cut > 1.5 * wanted:
            say(
                f"{count - cut:,} of {count:,} training rows are held out to validate on, not {wanted:,}: "
                "rows of the same time stay together."
            )
    return HeldOut(np.sort(order[:cut]), np.sort(order[cut:]), by)
