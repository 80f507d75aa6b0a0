"""The first command a newcomer runs: train, compare and predict on the built-in corpus, offline."""

from pathlib import Path
from typing import Any

from fastformer.data.tables import Row, read_rows
from fastformer.errors import Interrupted
from fastformer.surroundings.progress import say
from fastformer.tasks import verbs
from fastformer.tasks.classification.baselines import majority, tfidf
from fastformer.tasks.classification.methods import Fit, measure


def quickstart(output: str | Path = "runs/quickstart", seed: int = 0, show_progress: bool = True) -> dict[str, Any]:
    """Train a Fastformer classifier on docstrings of the installed libraries (which library is this from?).

    Returns its test scores beside TF-IDF with logistic regression and a majority guess on the same split, and three
    example predictions. Leaves a run folder at `output`.
    """
    if show_progress:
        say("Which Python library does a docstring come from? Reading the docstrings installed here.")
    try:
        metrics = verbs.train(
            "classification",
            "builtin",
            "builtin",
            "builtin",
            output=output,
            seed=seed,
            overwrite=True,
            show_progress=show_progress,
        )
    except Interrupted:
        raise Interrupted("stopped; run quickstart again to start anew") from None
    train, test = (list(read_rows("builtin", split=split)) for split in ("train", "test"))
    if show_progress:
        say("Training TF-IDF + logistic regression on the same rows for comparison.")
    picked = test[:: len(test) // 3][:3]
    answers = verbs.load(output).predict(picked)
    examples = [{"text": row.text, "true": row.label, **answer} for row, answer in zip(picked, answers, strict=True)]
    return {
        "rows": {**metrics["rows"], "test": len(test)},
        "fastformer": {**metrics["test"], "seconds": metrics["train_seconds"]},
        "tf-idf + logistic regression": _compared(tfidf, train, test),
        "majority class": _compared(majority, train, test),
        "examples": examples,
        "output": str(output),
    }


def _compared(fit: Fit, train: list[Row], test: list[Row]) -> dict[str, float | None]:
    found = measure(fit, train, test)
    return {**found, "seconds": found["train_seconds"]}
