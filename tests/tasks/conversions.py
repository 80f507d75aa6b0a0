"""Conversions that a tiny model learns in seconds: people who like animals or food, and ads for either."""

import random
from typing import Any

from fastformer.engine.settings import TrainingSettings
from fastformer.tasks.conversion.declaration import ConversionSettings

from .conftest import WORDS

TINY = ConversionSettings(
    training=TrainingSettings(epochs=5, batch_size=32, learning_rate=5e-3, warmup=0.05),
    model={
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "head_size": 16,
        "hidden_dropout_prob": 0.0,
        "initializer_range": 0.1,
    },
    max_length=6,
    max_behaviors=5,
)


def make_events(count: int, seed: int) -> list[dict[str, Any]]:
    """A user likes one kind of thing; an ad for it converts nine times of ten, another one time of ten."""
    pick = random.Random(seed)
    rows = []
    for number in range(count):
        liked, about = (pick.choice(["animal", "food"]) for _ in range(2))
        likely = 0.9 if liked == about else 0.1
        rows.append(
            {
                "behaviors": [f"bought a {pick.choice(WORDS[liked])}" for _ in range(pick.randint(1, 7))],
                "ad": f"{pick.choice(WORDS[about])} for sale",
                "label": int(pick.random() < likely),
                "time": number,
                "price": pick.choice([None, 10.5, 20, 30]),
                "device": pick.choice(["phone", "desktop", None]),
            }
        )
    return rows
