"""For every task of the contract: data that it learns from in seconds, and data that it must refuse."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .conftest import WORDS, make_rows, write_csv, write_jsonl
from .conversions import make_events


@dataclass
class Sample:
    """Sources and settings of one task."""

    train: str
    test: str | None
    examples: list[Any]  # for the predictor
    options: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # a source -> what is said of it
    fields: tuple[str, ...] = ()  # some columns of the sources that answers can carry along


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


def classification(folder: Path) -> Sample:
    (folder / "empty.csv").write_text("")
    other = folder / "other.csv"
    other.write_text("number,size,color\n1,2,3\n")
    broken = folder / "broken.jsonl"
    broken.write_text('{"text": "a cat", "label": "animal"}\n{"text": \n')
    return Sample(
        write_csv(folder / "train.csv", make_rows(150, 0)),
        write_csv(folder / "test.csv", make_rows(30, 1)),
        [{"text": text} for text, _ in make_rows(6, 2)],
        {"epochs": 2},
        {**_refused(folder, "csv"), str(other): "column", str(broken): "line 2"},
        ("text", "label"),
    )


def recommendation(folder: Path) -> Sample:
    """Readers of food and readers of tools, in MIND's layout: what they clicked tells what they click."""
    pick = random.Random(0)
    tastes = [WORDS["food"], WORDS["tool"]]
    # Each with a word of its own: without positions, titles of the same words have the same score but for rounding.
    titles = [f"the {pick.choice(words)} and a {pick.choice(words)} {n}th" for words in tastes for n in range(20)]
    news = "".join(f"N{number}\tnews\tall\t{title}\t\t\t[]\t[]\n" for number, title in enumerate(titles))

    def impression(number: int) -> str:
        own, other = (pick.sample(range(start, start + 20), 6) for start in (20 * (number % 2), 20 - 20 * (number % 2)))
        shown = pick.sample([f"N{own[5]}-1", *(f"N{one}-0" for one in other[:4])], 5)
        time = f"11/{9 + number // 20}/2019 9:05:58 AM"
        return f"{number}\tU{number}\t{time}\t{' '.join(f'N{one}' for one in own[:5])}\t{' '.join(shown)}\n"

    def write(name: str, behaviors: str, news: str = news) -> str:
        (folder / name).mkdir()
        (folder / name / "news.tsv").write_text(news)
        (folder / name / "behaviors.tsv").write_text(behaviors)
        return str(folder / name)

    lines = [impression(number) for number in range(140)]
    candidates = [f"N{number}" for number in range(0, 40, 5)]
    return Sample(
        write("train", "".join(lines[:120])),
        write("test", "".join(lines[120:])),
        [
            *({"history": [f"N{one}" for one in history], "candidates": candidates} for history in ([1, 2], [22], [])),
            {"candidates": ["N3", "N30"]},
            {"history": ["N5"]},
        ],
        {"epochs": 2, "batch_size": 16},
        {
            str(folder / "missing"): "no such folder",
            write("empty", ""): "is empty",
            write("broken", f"{lines[0]}1\tU1\tnow\tN1\n"): "line 2: 4 fields between tabs",
            write("other", lines[0], "N1\tnews\ta title\n"): "line 1: 3 fields between tabs",
        },
        ("history", "impression"),
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
        ("summary", "article"),
    )


def encoder(folder: Path) -> Sample:
    from .conftest import save_teacher

    texts = [f"{one.capitalize()}. {other.capitalize()}." for (one, _), (other, _) in _twos(make_rows(160, 0))]
    pairs = [
        {"text": one, "a": one, "b": other, "score": float(label == second)}
        for (one, label), (other, second) in _twos(make_rows(40, 1))
    ]
    (folder / "empty.csv").write_text("")
    other = folder / "other.csv"
    other.write_text("number,size\n1,2\n")
    return Sample(
        write_csv(folder / "train.csv", [(text, "") for text in texts]),
        write_jsonl(folder / "test.jsonl", pairs),
        [text for text, _ in make_rows(6, 2)],
        {"epochs": 2, "batch_size": 40, "width": 16, "teacher": str(save_teacher(folder / "teacher"))},
        {**_refused(folder, "csv"), str(other): "column"},
        ("text", "score"),
    )


def _twos(rows: list) -> zip:
    return zip(rows[::2], rows[1::2], strict=True)


def _refused(folder: Path, ending: str) -> dict[str, str]:
    """A file that is not there, one with nothing in it, and, where it was written, a broken one."""
    refused = {str(folder / f"missing.{ending}"): "no such file", str(folder / f"empty.{ending}"): "empty"}
    broken = folder / f"broken.{ending}"
    return refused | ({str(broken): "line 2"} if broken.exists() else {})


SAMPLES: dict[str, Callable[[Path], Sample]] = {
    "conversion": conversion,
    "loudness": loudness,
    "masked-words": masked_words,
    "classification": classification,
    "recommendation": recommendation,
    "summarization": summarization,
    "encoder": encoder,
}


def save_json(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return str(path)
