"""Cases: a command line on damaged input, on a damaged run folder, or with damaged arguments."""

import csv
import gzip
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .damage import bytes_damaged, json_damaged, rows_damaged
from .subjects import Subject


@dataclass
class Case:
    """A command line. `answers`: so many lines of JSON are due; `same`: of these, those at these places as ever."""

    arguments: list[str]
    stdin: bytes = b""
    subject: Subject | None = None
    verb: str = ""
    answers: int | None = None
    same: set[int] = field(default_factory=set)
    damaged: bool = False  # the run folder is
    lasting: bool = False  # it may go on for long: one that still runs after a while has understood what was asked


def make(kind: str, number: int, seed: int, subjects: list[Subject], place: Path) -> Case:
    """The case of this kind and number; what it reads is written into `place`."""
    pick = Random(f"{seed} {kind} {number}")
    return KINDS[kind](pick, pick.choice(subjects), place)


# ---- inputs ----------------------------------------------------------------------------------------------------------


def _input(pick: Random, subject: Subject, place: Path) -> Case:
    """Damaged rows, or the damaged bytes of a file, for a verb that reads it."""
    verb = pick.choices(["predict", "evaluate", "embed", "train", "other"], [16, 6, 4, 1, 4])[0]
    if verb == "train":
        return _training(pick, subject, place)
    if verb == "other" and (other := _other_input(pick, subject, place)) is not None:
        return other
    if (verb == "evaluate" and not subject.labelled) or verb == "other":
        verb = "predict"
    if subject.folders and verb in ("evaluate", "embed"):
        source = _damaged_folder(pick, Path(subject.train), place / "data")
        return Case(_verb(verb, subject.run, source, place), subject=subject, verb=verb)
    source, case = _damaged_rows(pick, subject, place)
    case.arguments, case.verb = _verb(verb, subject.run, source, place), verb
    if source == "-":
        case.arguments += ["--format", "jsonl"]
        if verb == "evaluate":
            case.arguments = _verb("predict", subject.run, "-", place)
    if verb == "predict" and pick.random() < 0.1:
        case.arguments += ["--output", str(place / f"out.{pick.choice(['csv', 'parquet', 'jsonl', 'txt'])}")]
        case.verb = "predict to a file"
    if verb == "predict" and pick.random() < 0.1:
        case.arguments += ["--keep-all"]
        case.same = set()
    return case


def _damaged_rows(pick: Random, subject: Subject, place: Path) -> tuple[str, Case]:
    """A file of rows of which some are odd; or the damaged bytes of one."""
    case = Case([], subject=subject)
    rows, ending = subject.rows, pick.choice(list(WRITERS))
    if by_bytes := pick.random() < 0.5:
        content = WRITERS[ending](rows)
        content = bytes_damaged(content, pick) if pick.random() < 0.9 else content
        ending = pick.choice(list(WRITERS)) if pick.random() < 0.1 else ending  # a file that is called otherwise
    else:
        rows, changed = rows_damaged(rows, pick)
        try:
            content = WRITERS[ending](rows)
        except (ValueError, OverflowError, pa.ArrowException):  # that format cannot hold it
            ending, content = "jsonl", WRITERS["jsonl"](rows)
        if ending in ("jsonl", "json"):
            case.answers, case.same = len(rows), set(range(len(rows))) - changed
    if not by_bytes and ending == "jsonl" and pick.random() < 0.2:
        case.stdin = content
        return "-", case
    (place / f"data.{ending}").write_bytes(content)
    return str(place / f"data.{ending}"), case


def _json(row: Any) -> str:
    return json.dumps(row)


def _csv(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)), delimiter=delimiter)
    writer.writeheader()
    writer.writerows([{k: _json(v) if isinstance(v, list | dict) else v for k, v in row.items()} for row in rows])
    return file.getvalue().encode()


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{next(iter(row.values()), '')}\n" for row in rows).encode()


def _jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{_json(row)}\n" for row in rows).encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def _zipped(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.csv", _csv(rows))
    return file.getvalue()


WRITERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "jsonl": _jsonl,
    "json": lambda rows: json.dumps(rows).encode(),
    "csv": _csv,
    "tsv": lambda rows: _csv(rows, "\t"),
    "parquet": _parquet,
    "txt": _lines,
    "jsonl.gz": lambda rows: gzip.compress(_jsonl(rows)),
    "csv.zip": _zipped,
}


def _damaged_folder(pick: Random, source: Path, target: Path) -> str:
    """A copy of a folder of data with one file of it damaged."""
    shutil.copytree(source, target)
    file = pick.choice(sorted(path for path in target.rglob("*") if path.is_file()))
    if pick.random() < 0.1:
        file.unlink()
    else:
        file.write_bytes(bytes_damaged(file.read_bytes(), pick))
    return str(target)


def _training(pick: Random, subject: Subject, place: Path) -> Case:
    """A training on damaged data, with few steps."""
    if subject.folders:
        source = _damaged_folder(pick, Path(subject.train), place / "data")
    else:
        source = str(place / Path(subject.train).name)
        Path(source).write_bytes(bytes_damaged(Path(subject.train).read_bytes(), pick))
    return Case(_train(subject, source, place), subject=subject, verb="train")


def _train(subject: Subject, source: str, place: Path) -> list[str]:
    options = {**subject.options, "batch_size": 50}
    given = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return ["train", subject.task, "--train", source, "--output", str(place / "made"), "--json", *given]


def _other_input(pick: Random, subject: Subject, place: Path) -> Case | None:
    """The verbs of one task."""
    text = bytes_damaged(b"the old cat and a new hammer. some soup with cheese, then bread", pick)
    document = place / "document.txt"
    document.write_bytes(text)
    plain = text.decode("utf-8", "surrogateescape").replace("\0", "")
    match subject.task:
        case "classification" if subject.run.endswith("run"):
            given = pick.choice([["--file", str(document)], [plain]])
            return Case(["explain", subject.run, *given, "--output", str(place / "page.html")], verb="explain")
        case "classification" | "masked-words" | "encoder":
            given = pick.choice([["--document", str(document)], ["--text", plain]])
            return Case(["predict", subject.run, *given], verb="predict", answers=1)
        case "summarization":
            return Case(["summarize", subject.run, str(document)], verb="summarize")
        case "recommendation":
            history = bytes_damaged(b"N1,N2,N30", pick).decode("utf-8", "surrogateescape").replace("\0", "")
            return Case(["recommend", subject.run, "--history", history, "--json"], verb="recommend")
    return None


def _verb(verb: str, run: str, source: str, place: Path) -> list[str]:
    further = {"evaluate": ["--json"], "embed": ["--json", "--output", str(place / "vectors.npy")]}
    return [verb, run, source, *further.get(verb, [])]


# ---- run folders -----------------------------------------------------------------------------------------------------


def _folder(pick: Random, subject: Subject, place: Path) -> Case:
    """A run folder of which a file is damaged, cut or gone, and a verb that opens it."""
    run = place / "run"
    shutil.copytree(subject.run, run)
    names = sorted(path for path in run.rglob("*") if path.is_file() and path.suffix not in (".md", ".png"))
    file = pick.choice(names)
    match pick.randrange(10):
        case 0:
            file.unlink()
        case 1:
            file.write_bytes(b"")
        case 2 | 3:
            file.write_bytes(bytes_damaged(file.read_bytes(), pick))
        case 4:
            file.write_bytes(pick.choice(names).read_bytes())
        case _ if file.suffix == ".json":
            file.write_text(json_damaged(json.loads(file.read_text()), pick))
        case _ if file.suffix == ".safetensors":
            _damage_header(file, pick)
        case _:
            file.write_bytes(bytes_damaged(file.read_bytes(), pick))
    (place / "data.jsonl").write_bytes(_jsonl(subject.rows))
    verb = pick.choices(["predict", "evaluate", "embed", "export"], [7, 1, 2, 1])[0]
    if verb == "evaluate" and not subject.labelled:
        verb = "predict"
    source = subject.train if subject.folders and verb in ("evaluate", "embed") else str(place / "data.jsonl")
    if verb == "export":
        arguments = ["export", str(run), "--output", str(place / "made"), "--json"]
    else:
        arguments = _verb(verb, str(run), source, place)
    count = len(subject.rows) if verb == "predict" else None
    return Case(arguments, subject=subject, verb=verb, answers=count, damaged=True)


def _damage_header(file: Path, pick: Random) -> None:
    """Change the table of tensors of a safetensors file, or the numbers behind it."""
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, tensors = content[8 : 8 + size], content[8 + size :]
    match pick.randrange(3):
        case 0:
            header = json_damaged(json.loads(header), pick).encode()
        case 1:  # not a number
            start = pick.randrange(0, len(tensors) - 4, 4)
            tensors = tensors[:start] + b"\xff" * min(4000, len(tensors) - start) + tensors[start + 4000 :]
        case _:
            tensors = bytes_damaged(tensors, pick)
    file.write_bytes(len(header).to_bytes(8, "little") + header + tensors)


# ---- arguments -------------------------------------------------------------------------------------------------------

WORDS = [
    "", "-", "--", "-1", "0", "1", "2", "1000000", str(2**40), str(10**30), "1e999", "nan", "x", "a,b", ",", "/", "..",
    "/dev/null", "/dev/zero", "missing.csv", "\udce9.jsonl", "a" * 5000, "--help", "--json", "é", "tab", "None", "0.5",
]  # fmt: skip
NUMBERS = ["-1", "0", "1", "3", "1000000", str(2**40), str(10**30), "0.5", "1e999", "nan"]


def _argument(pick: Random, subject: Subject, place: Path) -> Case:
    """Options of a verb, chosen at random, with values that nobody means."""
    (place / "data.jsonl").write_bytes(_jsonl(subject.rows))
    os.symlink("loop.csv", place / "loop.csv")
    source = subject.train if subject.folders else str(place / "data.jsonl")
    general, special = ["predict", "evaluate", "embed", "train", "export"], ["summarize", "recommend", "explain"]
    verb = pick.choice([*general, *special, "search", "ensemble"])
    arguments = {
        "train": _train(subject, source, place),
        "export": ["export", subject.run, "--output", str(place / "made")],
        "summarize": ["summarize", subject.run, str(place / "data.jsonl")],
        "recommend": ["recommend", subject.run],
        "explain": ["explain", subject.run, "a cat", "--output", str(place / "page.html")],
        "search": ["search", str(place / "data.jsonl"), "a cat", "--model", subject.run],
        "ensemble": ["ensemble", subject.run, subject.run, "--output", str(place / "made")],
    }.get(verb) or _verb(verb, subject.run, source if verb == "evaluate" else str(place / "data.jsonl"), place)
    _damage_arguments(arguments, options_of(verb, subject.task), pick, place)
    lasting = ("--epochs", "1000000") in pairwise(arguments)
    return Case(arguments, subject=subject, verb=f"{verb}?", lasting=lasting)


def _damage_arguments(
    arguments: list[str], known: list[tuple[str, bool]], pick: Random, place: Path, words: list[str] = WORDS
) -> None:
    """Change one or two arguments, take them away, or add options."""
    for _ in range(pick.choice((1, 1, 2))):
        word = pick.choice([*words, str(place / "loop.csv"), str(place)])
        match pick.randrange(6):
            case 0:
                arguments[pick.randrange(1, len(arguments))] = word
            case 1 if len(arguments) > 2:
                del arguments[pick.randrange(1, len(arguments))]
            case _:
                name, takes = pick.choice(known)
                arguments += [name, word] if takes else [name]


def _tool(pick: Random, subject: Subject, place: Path) -> Case:
    """The same for what stands around the verbs of tasks: servers, measurements, tables, and tables of clicks."""
    data, run, made = str(place / "data.jsonl"), subject.run, str(place / "made")
    out = str(place / "out")  # measurements go on in a folder, so one that was refused may leave it
    Path(data).write_bytes(_jsonl(subject.rows))
    os.symlink("loop.csv", place / "loop.csv")
    for split in ("train", "test"):
        (place / "sets" / "one").mkdir(parents=True, exist_ok=True)
        (place / "sets" / "one" / f"{split}.jsonl").write_bytes(_jsonl(subject.rows))
    clicks = [{"user": n % 3, "item": n % 7, "time": n, "rating": n % 5} for n in range(60)]
    items = [{"id": n, "title": f"old cat {n}", "category": "x"} for n in range(7)]
    for name, rows in (("clicks.csv", clicks), ("items.csv", items)):
        content = _csv(rows)
        (place / name).write_bytes(bytes_damaged(content, pick) if pick.random() < 0.3 else content)
    few = ["--repetitions", "1", "--threads", "1", "--output", out]
    arguments = pick.choice(
        [
            ["serve", run, "--port", "0"],
            ["serve", f"a={run}", f"b={run}", "--port", "0", "--api-key", "x"],
            ["import-clicks", str(place / "clicks.csv"), str(place / "items.csv"), "--output", made],
            ["import-clicks", str(place / "clicks.csv"), str(place / "items.csv"), "--output", made, "--json"],
            ["bench", "speed", "--lengths", "16", "--tokens", "16", "--mixers", "fastformer", *few],
            ["bench", "complexity", "--length", "16", "--width", "32", "--heads", "2"],
            ["bench", "peers", "--lengths", "16", "--tokens", "16", *few],
            ["bench", "classifiers", "--train", data, "--test", data, "--output", out, "--methods", "commonest"],
            ["bench", "suite", str(place / "sets"), "--output", out, "--methods", "commonest"],
            ["bench", "encoder", str(place / "sets"), "--model", run],
            ["bench", "recommendation", run, subject.train],
            ["reproduce", "table-complexity", "--output", out],
            ["reproduce", "table-datasets", "--data", f"one={data}", "--output", out],
            *(
                ["reproduce", name, "--data", f"one={data}", "--scale", "small", "--so-far", "--output", out]
                for name in ("table-classification", "table-recommendation", "table-summarization", "table-conversion")
            ),
        ]
    )
    names = arguments[: 2 if arguments[0] in ("bench", "reproduce") else 1]
    given = arguments[len(names) - 1 :]  # a group's own name stays
    _damage_arguments(given, options_of(*names), pick, place, [*WORDS, *3 * NUMBERS])
    lasting = names[0] != "import-clicks"
    return Case([*names[:-1], *given], subject=subject, verb=f"{' '.join(names)}?", lasting=lasting)


def options_of(verb: str, what: str = "") -> list[tuple[str, bool]]:
    """The options of a command, and whether they take a value."""
    from .outcomes import command

    found: Any = command.commands[verb]
    found = getattr(found, "commands", {what: found})[what]
    return [(one.opts[0], not one.is_flag) for one in found.params if one.opts[0].startswith("--")]


KINDS: dict[str, Callable[[Random, Subject, Path], Case]] = {
    "inputs": _input,
    "folders": _folder,
    "arguments": _argument,
    "tools": _tool,
}
