"""What keeping news vectors is worth: scoring with every news encoded once, against encoding per impression."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastformer.bench.measuring import describe_machine, measuring, result_folder
from fastformer.errors import UserError
from fastformer.modeling import NewsRecommender
from fastformer.runs.folder import Run
from fastformer.surroundings.files import writing_text
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks.recommendation.clicks import Clicks
from fastformer.tasks.recommendation.examples import Titles, batch_of
from fastformer.tasks.recommendation.mind import read_mind
from fastformer.tasks.recommendation.predictor import Ensemble, check_task
from fastformer.tasks.recommendation.scoring import score_clicks
from fastformer.tasks.verbs import load


def recommendation(
    run: Run,
    source: str,
    output: str | Path | None = None,
    *,
    impressions: int = 200,
    seed: int = 0,
    threads: int | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Milliseconds per impression of both ways, and how far their scores are apart.

    Scoring with kept vectors is measured on all impressions, with all it does: news, users, products. Encoding for each
    impression, its history and its candidates, is measured on some, drawn by seed. Tokenizing is in neither.
    """
    ranker: Any = load(check_task(run))  # a Ranker
    if isinstance(ranker, Ensemble):
        raise UserError(f"{run.folder}: is an ensemble; give one of its runs")
    clicks = read_mind(source, show_progress=show_progress)
    titles = ranker.titles(clicks.news)
    drawn = np.random.default_rng(seed).permutation(len(clicks))[:impressions]
    with measuring(threads) as used:
        options = (ranker.model, titles, clicks, ranker.settings.history_length)
        started = time.perf_counter()
        kept = score_clicks(*options, show_progress=show_progress)
        cached = (time.perf_counter() - started) / len(clicks)

        found, started = [], time.perf_counter()
        with progress_bar("Encoding each impression", total=len(drawn), show=show_progress) as advance:
            for impression in drawn:
                found.append(score_impression(*options, impression))
                advance(1)
        encoding = (time.perf_counter() - started) / len(drawn)
    same = np.concatenate([kept[slice(*clicks.candidates.offsets[one : one + 2])] for one in drawn])
    result = {
        "machine": describe_machine(used),
        "model": run.record["model"],
        "news": clicks.news.num_rows,
        "impressions": len(clicks),
        "candidates": len(kept),
        "milliseconds_an_impression": {
            "news_encoded_once": round(1000 * cached, 4),
            "news_encoded_each_time": round(1000 * encoding, 3),
        },
        "times_faster": round(encoding / cached, 1),
        "largest_difference": float(np.abs(np.concatenate(found) - same).max()),
        "largest_score": float(np.abs(same).max()),
    }
    if output is not None:
        with writing_text(result_folder(output) / "recommendation.json") as file:
            file.write(json.dumps(result, indent=1))
    return result


@torch.inference_mode()
def score_impression(
    model: NewsRecommender, titles: Titles, clicks: Clicks, max_history: int, impression: int
) -> np.ndarray:
    """Scores of the candidates of one impression, encoding everything for it."""
    history = clicks.histories.row(clicks.history_of[impression])[None, -max_history:]
    candidates = clicks.candidates.row(impression)[None]
    history_mask, candidate_mask = (np.ones(numbers.shape, dtype=bool) for numbers in (history, candidates))
    batch = batch_of(titles, history, history_mask, candidates, candidate_mask)
    return model(**{name: part.to(model.device) for name, part in batch.items()}).logits[0].cpu().numpy()
