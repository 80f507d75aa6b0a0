"""Test and validation examples that were trained on too: their scores say nothing about new data."""

from collections.abc import Hashable, Iterable

MUCH = 0.02  # share of the examples: fewer may be equal by chance, or were always there twice


def overlap(train: Iterable[Hashable], other: Iterable[Hashable]) -> tuple[int, int]:
    """How many of the `other` examples are in `train` too, and how many others there are.

    Memory has a number per other example, whatever the size of `train`.
    """
    asked = [hash(one) for one in other]
    wanted = set(asked)
    found = {number for one in train if (number := hash(one)) in wanted}
    return sum(number in found for number in asked), len(asked)
