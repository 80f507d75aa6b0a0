"""Examples to score on that were trained on too: their scores say nothing of new ones."""

from collections.abc import Hashable, Iterable

MUCH = 0.02  # of the examples: fewer than that are alike by chance, or were always there twice


def overlap(train: Iterable[Hashable], other: Iterable[Hashable]) -> tuple[int, int]:
    """How many of the `other` examples are in `train` too, and how many they are.

    Memory has a number per other example, whatever the size of `train`.
    """
    asked = [hash(one) for one in other]
    wanted = set(asked)
    found = {number for one in train if (number := hash(one)) in wanted}
    return sum(number in found for number in asked), len(asked)
