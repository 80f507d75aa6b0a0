"""For every task of the contract: data that it learns from in seconds, and data that it must refuse."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .conftest import make_rows, write_csv, write_jsonl


@dataclass
class Sample:
    """Sources and settings of one task."""

    train: str
    test: str | None
    examples: list[Any]  # for the predictor
    options: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # a source -> what is said of it


def loudness(folder: Path) -> Sample:
    pick = random.Random(0)
    rows = [
        {"text": " ".join(words), "loud": words.count("SHOUT") / len(words)}
        for words in (
            [pick.choice(["SHOUT", "hush", "speak", "sing"]) for _ in range(pick.randint(3, 12))] for _ in range(120)
        )
    ]
    (folder / "empty.jsonl").write_text("")
    (folder / "broken.jsonl").write_text('{"text": "a", "loud": 1}\n{"text": \n')
    other = write_jsonl(folder / "other.jsonl", [{"words": "a", "loud": 1}])
    return Sample(
        write_jsonl(folder / "train.jsonl", rows[:100]),
        write_jsonl(folder / "test.jsonl", rows[100:]),
        rows[100:110],
        {"epochs": 2},
        _refused(folder, "jsonl") | {other: "text"},
    )


def masked_words(folder: Path) -> Sample:
    texts = [text for text, _ in make_rows(150, 0)]
    (folder / "empty.csv").write_text("")
    train = write_csv(folder / "train.csv", [(text, "") for text in texts])
    other = folder / "other.csv"
    other.write_text("number,size\n1,2\n")
    return Sample(
        train,
        None,
        [f"{text} [MASK]" for text in texts[:6]],
        {"epochs": 2},
        {**_refused(folder, "csv"), str(other): "column"},
    )


def summarization(folder: Path) -> Sample:
    from .summarization.conftest import make_documents

    (folder / "empty.jsonl").write_text("")
    (folder / "broken.jsonl").write_text('{"article": "a b", "summary": "a"}\n{"article": \n')
    other = write_jsonl(folder / "other.jsonl", [{"words": "a b", "number": 1}])
    test = make_documents(10, 1)
    return Sample(
        write_jsonl(folder / "train.jsonl", make_documents(100, 0)),
        write_jsonl(folder / "test.jsonl", test),
        [*test[:3], *(document["article"] for document in test[3:6])],
        {"epochs": 2, "batch_size": 20, "tokenizer": "word", "beams": 2, "max_summary_length": 12},
        _refused(folder, "jsonl") | {other: "cannot tell which column holds the article"},
    )


def _refused(folder: Path, ending: str) -> dict[str, str]:
    """A file that is not there, one with nothing in it, and, where it was written, a broken one."""
    refused = {str(folder / f"missing.{ending}"): "no such file", str(folder / f"empty.{ending}"): "empty"}
    broken = folder / f"broken.{ending}"
    return refused | ({str(broken): "line 2"} if broken.exists() else {})


SAMPLES: dict[str, Callable[[Path], Sample]] = {
    "loudness": loudness,
    "masked-words": masked_words,
    "summarization": summarization,
}


def save_json(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return str(path)
