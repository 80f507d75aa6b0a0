"""The default classifier against what people use on a CPU: quality, time to train, time to predict."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastformer.bench.comparing import (
    choose_methods,
    compare,
    drawn,
    measured_before,
    notes,
    number,
    ours,
    percent,
    still_true,
    write_json_aside,
)
from fastformer.bench.measuring import describe_machine, machine_line, measuring, result_folder
from fastformer.data.published import file_stamp
from fastformer.data.tables import Row, read_rows
from fastformer.errors import Interrupted, UserError
from fastformer.surroundings.files import writing_text
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import say
from fastformer.tasks.classification.methods import Method

_FILE = "classifiers.json"


def classifiers(
    train: str,
    test: str,
    output: str | Path,
    *,
    rows: int | None = None,
    merge: Sequence[str] = (),
    init: Sequence[str] = (),
    methods: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    seed: int = 0,
    threads: int | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train every method on `train`, score it on `test`; writes classifiers.json and .md to `output` after each.

    Args:
        train, test: labelled data, one label per text.
        output: folder. A method that is there with the same settings, files and threads is not measured again.
        rows: train on this many rows, drawn by `seed`.
        merge: `NAME=LABEL,LABEL,…`: these labels become one.
        init: `NAME=PATH`: also train our classifier from this start (see `train classification --init`).
        methods: names with commas between them (parts of names will do); default all.
        text_column, label_column: columns of both files.
        seed: of the sample and of our training.
        threads: threads of torch.
        show_progress: say what is measured.
    """
    folder = result_folder(output)
    columns: dict[str, Any] = {"text_column": text_column, "label_column": label_column}
    settings = {"train": train, "test": test, "rows": rows, "merge": list(merge), "seed": seed, **columns}
    before = measured_before(folder / _FILE, settings, "methods")
    groups = _groups(merge)
    training, testing = (
        [Row(row.text, groups.get(str(row.label), row.label)) for row in read_rows(source, **columns, split=split)]
        for source, split in ((train, "train"), (test, "test"))
    )
    training = drawn(training, rows, seed)
    chosen, missing = choose_methods(_ours(init, seed), methods)
    with measuring(threads) as used:
        # What a measurement depends on besides: a changed file, another number of threads.
        given = {"files": [file_stamp(source) for source in (train, test)], "threads": used}
        result = {
            "settings": settings,
            "machine": describe_machine(used),
            "rows": {"train": len(training), "test": len(testing)},
            "classes": len({row.label for row in training}),
            "methods": still_true(before, given),
            "missing": missing,
        }

        def tell(line: str) -> None:
            if show_progress:
                say(line)

        def save() -> None:
            write_json_aside(folder / _FILE, result)
            with writing_text(folder / "classifiers.md") as file:
                file.write(markdown(result))

        try:
            compare(chosen, training, testing, result, given, tell, save)
        except KeyboardInterrupt:
            raise Interrupted(f"stopped; what is measured is in {folder}, and the same command continues") from None
        save()
    return result


def _ours(init: Sequence[str], seed: int) -> list[Method]:
    starts = dict(_pair(given, "--init") for given in init)
    return [
        ours(random_state=seed),
        ours("Fastformer, encoder alone", preset="encoder", random_state=seed),
        *(ours(f"Fastformer from {name}", init=path, random_state=seed) for name, path in starts.items()),
    ]


def _pair(given: str, option: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not (name and equals and value):
        raise UserError(f"{option} {given}: give NAME=VALUE")
    return name, value


def _groups(merge: Sequence[str]) -> dict[str, str]:
    pairs = (_pair(given, "--merge") for given in merge)
    return {label.strip(): name for name, labels in pairs for label in labels.split(",")}


def markdown(result: dict[str, Any]) -> str:
    """The result as text: best accuracy and macro-F in bold."""
    methods = result["methods"]
    best = {score: max((one[score] for one in methods.values()), default=None) for score in ("accuracy", "macro_f")}
    table = markdown_table(
        ["", "accuracy", "macro-F", "log loss", "ECE", "training, s", "1,000 predictions, s"],
        [
            [
                name,
                percent(entry["accuracy"], best["accuracy"]),
                percent(entry["macro_f"], best["macro_f"]),
                number(entry.get("log_loss"), 3),
                number(entry.get("calibration_error"), 3),
                number(entry["train_seconds"], 1),
                number(entry["seconds_per_1000"], 2),
            ]
            for name, entry in methods.items()
        ],
    )
    rows = result["rows"]
    missing = f"\n{notes(result['missing'])}" if result["missing"] else ""
    return (
        f"{machine_line(result['machine'])}; {rows['train']:,} training and {rows['test']:,} test rows, "
        f"{result['classes']} classes, seed {result['settings']['seed']}\n\n{table}"
        + (f"\n{missing}" if missing else "")
    )
