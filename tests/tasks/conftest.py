"""A small task that a classifier learns in seconds, in files and in memory."""

import csv
import json
import random
from pathlib import Path

import pytest

WORDS = {
    "animal": ["cat", "dog", "horse", "otter", "sparrow", "badger"],
    "food": ["bread", "soup", "cheese", "noodle", "apple", "pepper"],
    "tool": ["hammer", "wrench", "saw", "drill", "chisel", "ladder"],
}
FILLER = ["the", "a", "very", "old", "new", "and", "then", "with", "some", "near", "quite", "small"]


def make_rows(count: int, seed: int) -> list[tuple[str, str]]:
    pick = random.Random(seed)
    rows = []
    for _ in range(count):
        label = pick.choice(list(WORDS))
        words = pick.choices(FILLER, k=pick.randint(4, 14)) + pick.choices(WORDS[label], k=2)
        pick.shuffle(words)
        rows.append((" ".join(words), label))
    return rows


def write_csv(path: Path, rows) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return str(path)


def write_jsonl(path: Path, records) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def save_teacher(folder: Path) -> Path:
    """An encoder for others to learn from, as save_pretrained writes it: small, with random weights."""
    import torch
    from transformers import BertConfig, BertModel

    from fastformer.data.tokenizer_training import train_tokenizer

    words = [*FILLER, *(word for words in WORDS.values() for word in words), "."]
    tokenizer = train_tokenizer("pieces", [" ".join(words)], vocab_size=200, min_frequency=1)
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(tokenizer), initializer_range=0.3, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("data")
    return {
        "train": write_csv(folder / "train.csv", make_rows(300, 0)),
        "test": write_csv(folder / "test.csv", make_rows(60, 1)),
    }


@pytest.fixture(scope="session")
def run_folder(files, tmp_path_factory) -> Path:
    """A finished run; tests only read it."""
    from fastformer.tasks.verbs import train

    folder = tmp_path_factory.mktemp("runs") / "animals"
    train("classification", files["train"], test=files["test"], output=folder, show_progress=False)
    return folder
