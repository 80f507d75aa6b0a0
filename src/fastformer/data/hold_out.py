"""Held out at random: a tenth of the rows chooses the epoch if no validation data is given."""

import numpy as np

from fastformer.errors import UserError


def hold_out(
    count: int, seed: int, *, most: int, groups: np.ndarray | None = None, few: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train and to validate on, each in their order: a tenth validates, or `most` if that is fewer.

    But it is at least a tenth of `few`, or three tenths of the rows if that is fewer. If rows are of `groups`
    (classes), each group gives its share, rounded to whole rows: their sum may be more than `most`.
    """
    if count < 2:
        raise UserError("one row leaves nothing to validate on; give more rows, or other data to --validation")
    share = max(min(0.1, most / count), min(0.3, few / 10 / count))
    groups = np.zeros(count, dtype=np.int64) if groups is None else groups
    shuffled = np.random.default_rng([seed, 1]).permutation(count)
    by_group = shuffled[np.argsort(groups[shuffled], kind="stable")]
    members = np.split(by_group, np.cumsum(np.bincount(groups))[:-1])
    validation = np.concatenate([group[: round(share * len(group))] for group in members])
    if len(validation) < share * count / 2:  # the groups are tiny: go through them all, and pass over single rows
        many = np.concatenate([group for group in members if len(group) > 1] or [by_group])
        validation = many[np.arange(0, len(many), 1 / share).astype(np.int64)]
    validation = np.sort(validation)
    return np.setdiff1d(np.arange(count), validation), validation
