"""The default classifier against what people use on a CPU: quality, time to train, time to predict."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.benchmark.measuring import describe_machine, machine_line, measuring, result_folder
from fastformer.data.published import file_stamp
from fastformer.data.tables import Row, read_rows
from fastformer.errors import UserError
from fastformer.files import writing_text
from fastformer.markdown import markdown_table
from fastformer.progress import say
from fastformer.tasks.classification.baselines import BASELINES, Fit, FitError, Predict, majority, measure
from fastformer.tasks.classification.estimator import TextClassifier

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
        train, test: labelled data, one label a text.
        output: folder. A method that is there with the same settings, files and threads is not measured again.
        rows: train on so many rows, drawn by `seed`.
        merge: `NAME=LABEL,LABEL,…`: these labels become one.
        init: `NAME=PATH`: also train our classifier from this start (see `train classification --init`).
        methods: names with commas between them (parts of names will do); default all.
        text_column, label_column: columns of both files.
        seed: of the sample and of our training.
        threads: threads of torch.
        show_progress: say what is measured.
    """
    folder = result_folder(output)
    columns = {"text_column": text_column, "label_column": label_column}
    groups = _groups(merge)
    training, testing = (
        [Row(row.text, groups.get(row.label, row.label)) for row in read_rows(source, **columns, split=split)]
        for source, split in ((train, "train"), (test, "test"))
    )
    if rows is not None:
        chosen = np.random.default_rng(seed).permutation(len(training))[:rows]
        training = [training[index] for index in chosen]
    settings = {"train": train, "test": test, "rows": rows, "merge": list(merge), "seed": seed, **columns}
    chosen, missing = _chosen(init, methods, seed)
    with measuring(threads) as used:
        # What a measurement depends on besides: a changed file, another number of threads, another start.
        given = {"files": [file_stamp(source) for source in (train, test)], "threads": used}
        result = {
            "settings": settings,
            "machine": describe_machine(used),
            "rows": {"train": len(training), "test": len(testing)},
            "classes": len({row.label for row in training}),
            "methods": _measured_before(folder / _FILE, settings),
            "missing": missing,
        }
        for name, fit in chosen.items():
            own = given | {"init": getattr(fit, "keywords", {}).get("init")}
            if result["methods"].get(name, {}).get("given") != own:
                if show_progress:
                    say(f"{name} …")
                try:
                    result["methods"][name] = measure(fit, training, testing) | {"given": own}
                except FitError as error:
                    result["missing"][name] = str(error)
                with writing_text(folder / _FILE) as file:
                    file.write(json.dumps(result, indent=1, ensure_ascii=False))
        with writing_text(folder / "classifiers.md") as file:
            file.write(markdown(result))
    return result


def _chosen(init: Sequence[str], methods: str | None, seed: int) -> tuple[dict[str, Fit], dict[str, str]]:
    """Methods to measure, and why others cannot be."""
    starts = dict(_pair(given, "--init") for given in init)
    found: dict[str, Fit] = {
        "Fastformer": partial(_ours, seed=seed),
        "Fastformer, encoder alone": partial(_ours, preset="encoder", seed=seed),
        **{f"Fastformer from {name}": partial(_ours, init=path, seed=seed) for name, path in starts.items()},
        "commonest class": majority,
    }
    missing = {}
    for baseline in BASELINES:
        if (reason := baseline.missing()) is None:
            found[baseline.name] = baseline.fit
        else:
            missing[baseline.name] = reason
    if methods is not None:
        wanted = [part.strip().lower() for part in methods.split(",")]
        found = {name: fit for name, fit in found.items() if any(part in name.lower() for part in wanted)}
        if not found:
            raise UserError(f"--methods {methods}: names no method; there are Fastformer, TF-IDF, fastText and MiniLM")
    return found, missing


def _ours(texts: Sequence[str], labels: Sequence[str], **settings: Any) -> Predict:
    seed = settings.pop("seed")
    return TextClassifier(**settings, random_state=seed).fit(texts, labels).predict


def _pair(given: str, option: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not (name and equals and value):
        raise UserError(f"{option} {given}: give NAME=VALUE")
    return name, value


def _groups(merge: Sequence[str]) -> dict[str, str]:
    pairs = (_pair(given, "--merge") for given in merge)
    return {label.strip(): name for name, labels in pairs for label in labels.split(",")}


def _measured_before(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        return before["methods"] if before["settings"] == settings else {}
    except (OSError, ValueError, KeyError):
        return {}


def markdown(result: dict[str, Any]) -> str:
    """The result as text: best accuracy and macro-F in bold."""
    methods = result["methods"]
    best = {score: max((one[score] for one in methods.values()), default=None) for score in ("accuracy", "macro_f")}

    def share(entry: dict[str, float], score: str) -> str:
        return f"**{100 * entry[score]:.1f}**" if entry[score] == best[score] else f"{100 * entry[score]:.1f}"

    table = markdown_table(
        ["", "accuracy", "macro-F", "training, s", "1,000 predictions, s"],
        [
            [
                name,
                share(entry, "accuracy"),
                share(entry, "macro_f"),
                f"{entry['train_seconds']:,}",
                f"{entry['seconds_per_1000']:.2f}",
            ]
            for name, entry in methods.items()
        ],
    )
    rows = result["rows"]
    notes = "".join(f"- {name}: {reason}\n" for name, reason in result["missing"].items())
    return (
        f"{machine_line(result['machine'])}; {rows['train']:,} training and {rows['test']:,} test rows, "
        f"{result['classes']} classes, seed {result['settings']['seed']}\n\n{table}" + (f"\n{notes}" if notes else "")
    )
