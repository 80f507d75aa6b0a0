"""Articles of which the first sentence says it all, and a run that has learned from a few of them."""

import random
from functools import partial
from pathlib import Path

import pytest

from fastformer.engine.settings import TrainingSettings
from fastformer.tasks import get_task, verbs

from ..conftest import write_jsonl

NAMES = ["anna", "bert", "clara", "david", "emma", "felix", "greta", "hugo"]
THINGS = ["a boat", "the house", "an apple", "some bread", "the piano"]
TINY = get_task("summarization").settings(
    tokenizer="word",
    vocab_size=200,
    max_length=32,
    max_summary_length=12,
    beams=2,
    training=TrainingSettings(epochs=4, batch_size=16, learning_rate=5e-3, warmup=0.1, fill_by="tokens"),
    model={
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "decoder_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    },
)
train = partial(verbs.train, "summarization")


def make_documents(count: int, seed: int) -> list[dict[str, str]]:
    pick = random.Random(seed)
    documents = []
    for _ in range(count):
        who, what = pick.choice(NAMES), pick.choice(THINGS)
        rest = " ".join(pick.choices(["it", "rained", "all", "day", "nobody", "knew", "why"], k=pick.randint(3, 12)))
        documents.append({"article": f"Today {who} bought {what}. Then {rest}.", "summary": f"{who} bought {what}"})
    return documents


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("documents")
    return {
        "train": write_jsonl(folder / "train.jsonl", make_documents(120, 0)),
        "test": write_jsonl(folder / "test.jsonl", make_documents(20, 1)),
    }


@pytest.fixture(scope="session")
def run_folder(files, tmp_path_factory) -> Path:
    """A finished run; tests only read it."""
    folder = tmp_path_factory.mktemp("runs") / "shopping"
    train(files["train"], test=files["test"], output=folder, preset=TINY, show_progress=False)
    return folder
