"""The verbs of the command line for news recommendation, as functions on MIND folders and run folders."""

import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import torch

from fastformer.data.ragged import Ragged
from fastformer.errors import UserError
from fastformer.files import write_json, writing_aside
from fastformer.progress import progress_bar, say
from fastformer.run_folder import Run, claim_output, open_run, writing_run
from fastformer.tasks.recommendation.card import ensemble_card
from fastformer.tasks.recommendation.clicks import Clicks
from fastformer.tasks.recommendation.fit import fit_recommender
from fastformer.tasks.recommendation.metrics import METRICS, impression_metrics, ranks
from fastformer.tasks.recommendation.mind import format_quirks, read_mind
from fastformer.tasks.recommendation.scoring import (
    MEMBERS,
    Recommender,
    check_task,
    encode_news,
    load_news,
    members_of,
    score,
)
from fastformer.vectors import write_vectors
from fastformer.version import __version__


def train(
    train: str,
    validation: str | None = None,
    *,
    output: str | Path,
    show_progress: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Train on a folder of MIND and leave a run folder; return its metrics. `options` are `fit_recommender`'s."""
    claims = {name: options.get(name, False) for name in ("resume", "overwrite")}
    claim_output(output, **claims)  # reading millions of lines takes a while: a mistake shows before
    clicks = _read(train, "required", show_progress)
    held_out = None if validation is None else _read(validation, "required", show_progress)
    sources = {"train": train, "validation": validation}
    return fit_recommender(clicks, held_out, Path(output), sources=sources, show_progress=show_progress, **options)


def evaluate(
    run: Run,
    source: str,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    show_progress: bool = True,
) -> dict[str, float]:
    """AUC, MRR, nDCG@5 and nDCG@10 of a run on a folder with labels, averaged over impressions.

    Impressions without a click count in none of them, those with clicks only not in AUC: `without_positive` says how
    many have no click, `one_class` how many have one class only, these among them.
    """
    _no_columns(text_column, label_column)
    clicks = _read(source, "required", show_progress)
    metrics = impression_metrics(
        score(run, clicks, show_progress=show_progress), clicks.labels, clicks.candidates.offsets
    )
    counts = ("impressions", "without_positive", "one_class")
    if metrics["one_class"] and show_progress:
        say(
            f"{metrics['one_class']:,} of {len(clicks):,} impressions have one class only and no AUC; "
            f"{metrics['without_positive']:,} of them have no click and no score at all."
        )
    return {name: metrics[name] for name in (*counts, *METRICS) if name in metrics}  # AUC may be missing


def predict(
    run: Run,
    source: str,
    out: TextIO,
    *,
    text_column: str | None = None,
    format: str | None = None,
    show_progress: bool = True,
) -> int:
    """Write MIND's leaderboard file: `ImpressionID [r1,r2,…]` per line, the ranks in the order of the candidates."""
    _no_columns(text_column)
    clicks = _read(source, "optional", show_progress)
    scores = score(run, clicks, show_progress=show_progress)
    placed = Ragged(ranks(scores, clicks.candidates.offsets), clicks.candidates.offsets)
    for number, impression in enumerate(clicks.impression_ids):
        out.write(f"{impression} [{','.join(map(str, placed.row(number).tolist()))}]\n")
    return len(clicks)


def zip_prediction(path: str | Path) -> Path:
    """Put a leaderboard file into a .zip beside it, under the name that the leaderboard wants; return its path."""
    path = Path(path)
    with writing_aside(path.with_suffix(".zip")) as aside, zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, "prediction.txt")
    return path.with_suffix(".zip")


def embed(
    run: Run,
    source: str,
    output: str | Path,
    *,
    text_column: str | None = None,
    format: str | None = None,
    show_progress: bool = True,
) -> tuple[int, int]:
    """Write the vectors of all news of a folder, in the order of news.tsv; return number and width.

    Their ids are the column `id` of `.parquet`; beside NAME.npy they are in NAME.ids.txt, one per line.
    """
    _no_columns(text_column)
    if members_of(check_task(run)) or run.record["model"] == "fim":
        raise UserError(f"{run.folder}: {run.record['model']} makes no article vectors; use a run of another --model")
    recommender = Recommender(run)
    news = _read(source, "optional", show_progress).news
    titles = recommender.titles(news, show_progress)
    with progress_bar("Embedding", total=len(titles.lengths), show=show_progress) as advance, torch.inference_mode():
        vectors = encode_news(recommender.model, titles, advance).numpy()
    return write_vectors(output, iter(vectors), vectors.shape[1], ids=news["id"].to_pylist()), vectors.shape[1]


def recommend(
    run: Run, history: str | Sequence[str], *, top: int = 10, news: str | None = None, show_progress: bool = True
) -> list[dict[str, Any]]:
    """The best news for somebody who clicked `history` (ids, oldest first, or one text with commas): best first.

    Chosen from `news`, a folder of MIND, or from what the run was trained on; what was clicked already is left out, and
    what has no title.
    """
    check_task(run)
    table = load_news(run) if news is None else _read(news, "optional", show_progress).news
    ids = [part.strip() for part in (history.split(",") if isinstance(history, str) else history)]
    clicked = _numbers([one for one in ids if one], table["id"].to_pylist(), run if news is None else news)
    titled = np.array([bool(title.strip()) for title in table["title"].to_pylist()])
    others = np.setdiff1d(np.flatnonzero(titled).astype(np.int32), clicked)
    scores = score(run, _one_impression(table, clicked, others), show_progress=show_progress)
    best = np.argsort(-scores, kind="stable")[:top]
    rows = table.take(pa.array(others[best])).select(["id", "title", "category"]).to_pylist()
    return [{**row, "score": round(float(scores[place]), 4)} for row, place in zip(rows, best, strict=True)]


def ensemble(runs: Sequence[str | Path], output: str | Path) -> Path:
    """Make one run folder of several runs: its scores are the average of theirs. Copies of the runs are in it."""
    opened = [check_task(open_run(run)) for run in runs]
    if len(opened) < 2:
        raise UserError("an ensemble needs at least two runs; give more run folders")
    nested = [str(run.folder) for run in opened if members_of(run)]
    if nested:
        raise UserError(f"{nested[0]}: is an ensemble already; give the runs that it was made of")
    folder = claim_output(output, resume=False, overwrite=False)
    record = {
        "fastformer": __version__,
        "task": "recommendation",
        "model": "ensemble",
        "members": len(opened),
        "data": {"runs": [str(run.folder) for run in opened]},
    }
    with writing_run(folder, record) as aside:
        for number, run in enumerate(opened):
            shutil.copytree(run.folder, aside / MEMBERS / str(number))
        card = ensemble_card([run.folder.name for run in opened], folder.resolve().name)
        (aside / "README.md").write_text(card, encoding="utf-8")
        write_json(aside / "metrics.json", {"members": [run.load_metrics()["validation"] for run in opened]})
    return folder


def _read(folder: str, labels: str, show_progress: bool) -> Clicks:
    clicks = read_mind(folder, labels=labels, show_progress=show_progress)
    if clicks.quirks and show_progress:
        say(f"{folder}: {format_quirks(clicks.quirks)}.")
    return clicks


def _no_columns(*columns: str | None) -> None:
    if any(column is not None for column in columns):
        raise UserError("a folder of MIND has fixed columns; leave --text-column and --label-column out")


def _numbers(ids: list[str], known: list[str], place: Run | str) -> np.ndarray:
    number_of = {name: number for number, name in enumerate(known)}
    unknown = [name for name in ids if name not in number_of]
    if unknown:
        where = f"the news of {place.folder}" if isinstance(place, Run) else place
        raise UserError(f"--history: {', '.join(unknown)} not among {where}; give ids like {known[0]}")
    return np.array([number_of[name] for name in ids], dtype=np.int32)


def _one_impression(news: pa.Table, clicked: np.ndarray, candidates: np.ndarray) -> Clicks:
    return Clicks(
        news=news,
        impression_ids=np.array([1]),
        users=np.zeros(1, np.int32),
        times=np.full(1, np.nan),
        histories=Ragged.from_lengths(clicked, np.array([len(clicked)])),
        history_of=np.zeros(1, np.int32),
        candidates=Ragged.from_lengths(candidates, np.array([len(candidates)])),
        labels=None,
        quirks={},
    )
