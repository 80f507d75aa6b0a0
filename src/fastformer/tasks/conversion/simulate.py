"""Simulated conversions, offline and by seed: people who read documentation, and what they click.

Items are the first lines of the built-in corpus' docstrings, each from a library. A user likes one of four libraries;
four of five things in the history are from it. An ad is a title too, from the liked library half of the time. With
m = 1 if the user likes the ad's library, x the price in standard deviations, and d = 1 on a phone:

    P(conversion) = sigmoid(4 m - 2.5 - 0.5 x + 0.5 d)

So price and device alone say little, and no model can do better than the noise allows.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from fastformer.data.corpus import builtin_rows, need_libraries
from fastformer.data.objects import Object
from fastformer.errors import UserError

LIBRARIES = ("networkx", "pandas", "sympy", "torch")
SPLITS = {"train": 2000, "validation": 300, "test": 500}  # rows of `builtin`
BEHAVIORS = 10
ITEMS_A_LIBRARY = 25
DEVICES = ("desktop", "phone")
_DAY = 86_400


@cache
def titles() -> dict[str, list[str]]:
    """The items by library: its first distinct first lines of docstrings, library names masked."""
    need_libraries(LIBRARIES)
    found: dict[str, dict[str, None]] = {library: {} for library in LIBRARIES}
    for row in builtin_rows("train"):
        if row.label in found and len(found[row.label]) < ITEMS_A_LIBRARY:
            found[row.label].setdefault(row.text.strip().splitlines()[0].strip())
    return {library: list(lines) for library, lines in found.items()}


def simulate(
    rows: int, *, seed: int = 0, behaviors: int = BEHAVIORS, shortest: int | None = None
) -> Iterator[dict[str, Any]]:
    """Events with `behaviors` (at most that many, at least `shortest`, by default half as many), `ad`, `label`, `time`.

    Also `user`, `price` (a number) and `device` (a category). The probability it was drawn with is in `chance`.
    """
    random = np.random.default_rng([seed, rows, behaviors])
    items = list(titles().values())
    shortest = behaviors // 2 if shortest is None else shortest
    for row in range(rows):
        liked = int(random.integers(len(items)))
        history = _libraries(random, liked, int(random.integers(shortest, behaviors + 1)), share=0.8)
        [about] = _libraries(random, liked, 1, share=0.5)
        price, phone = float(random.normal()), bool(random.integers(2))
        logit = 4 * (about == liked) - 2.5 - 0.5 * price + 0.5 * phone
        chance = 1 / (1 + np.exp(-logit))
        yield {
            "user": f"user-{row}",
            "time": row * _DAY // max(1, rows),
            "behaviors": [_pick(random, items[library]) for library in history],
            "ad": _pick(random, items[about]),
            "label": int(random.random() < chance),
            "price": round(10 + 3 * price, 2),
            "device": DEVICES[phone],
            "chance": float(chance),
        }


def _libraries(random: np.random.Generator, liked: int, count: int, share: float) -> np.ndarray:
    """Libraries of some items: a `share` of them the liked one, the others any."""
    return np.where(random.random(count) < share, liked, random.integers(len(LIBRARIES), size=count))


def _pick(random: np.random.Generator, lines: list[str]) -> str:
    return lines[random.integers(len(lines))]


def builtin_objects(split: str) -> Iterator[Object]:
    """The events of `builtin:SPLIT`: train, validation or test."""
    if split not in SPLITS:
        raise UserError(f"builtin has no split {split!r}: use one of {', '.join(SPLITS)}")
    events = simulate(SPLITS[split], seed=list(SPLITS).index(split))
    return ((f"builtin:{split}, row {number}", event) for number, event in enumerate(events, 1))
