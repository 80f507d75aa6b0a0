"""For every task of the contract: data that it learns from in seconds, and data that it must refuse."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .conftest import make_rows, write_csv, write_jsonl
from .conversions import make_events


@dataclass
class Sample:
    """Sources and settings of one task."""

    train: str
    test: str | None
    examples: list[Any]  # for the predictor
    options: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # a source -> what is said of it
    fields: tuple[str, ...] = ()  # columns of the sources that answers can carry along


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
        ("text", "loud"),
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
        ("text", "label"),
    )


def conversion(folder: Path) -> Sample:
    (folder / "empty.jsonl").write_text("")
    (folder / "broken.jsonl").write_text(json.dumps(make_events(1, 0)[0]) + '\n{"behaviors": [\n')
    other = write_jsonl(folder / "other.jsonl", [{"history": [], "ad": "soup", "label": 1}])
    return Sample(
        write_jsonl(folder / "train.jsonl", make_events(150, 0)),
        write_jsonl(folder / "test.jsonl", make_events(40, 1)),
        make_events(10, 2),
        {"epochs": 2, "numeric": "price", "categorical": "device"},
        {**_refused(folder, "jsonl"), other: "no column 'behaviors'"},
        ("price", "label"),
    )


def _refused(folder: Path, ending: str) -> dict[str, str]:
    """A file that is not there, one with nothing in it, and, where it was written, a broken one."""
    refused = {str(folder / f"missing.{ending}"): "no such file", str(folder / f"empty.{ending}"): "empty"}
    broken = folder / f"broken.{ending}"
    return refused | ({str(broken): "line 2"} if broken.exists() else {})


SAMPLES: dict[str, Callable[[Path], Sample]] = {
    "conversion": conversion,
    "loudness": loudness,
    "masked-words": masked_words,
}


def save_json(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return str(path)
