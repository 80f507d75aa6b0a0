"""Scores: of every model the same whether news are encoded once or for each impression; ensembles are averages."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fastformer.bench.recommendation import recommendation, score_impression
from fastformer.data.ragged import Ragged
from fastformer.errors import UserError
from fastformer.modeling import FastformerForRecommendation, FimForRecommendation
from fastformer.runs.folder import open_run
from fastformer.tasks.recommendation import ensemble, scoring
from fastformer.tasks.recommendation.clicks import Clicks
from fastformer.tasks.verbs import load

from .conftest import MODELS

every_model = pytest.mark.parametrize("model", MODELS)


def score(run, clicks: Clicks) -> np.ndarray:
    return load(run).score(clicks)


def with_new_users(clicks: Clicks) -> Clicks:
    """The same, but every fifth history is empty."""
    histories = Ragged.from_lengths(clicks.histories.values, np.append(clicks.histories.lengths, 0))
    nobody = np.arange(len(clicks)) % 5 == 0
    return replace(
        clicks, histories=histories, history_of=np.where(nobody, len(histories.lengths) - 1, clicks.history_of)
    )


@every_model
def test_keeping_what_is_known_of_news_changes_no_score(runs, clicks, model):
    dev, ranker = with_new_users(clicks["dev"]), load(runs[model])
    titles = ranker.titles(dev.news)
    kept = score(runs[model], dev)
    assert kept.dtype == np.float32
    one_by_one = [
        score_impression(ranker.model, titles, dev, ranker.settings.history_length, number)
        for number in range(len(dev))
    ]
    np.testing.assert_allclose(kept, np.concatenate(one_by_one), atol=1e-5)
    assert np.std(kept) > 0


@every_model
def test_an_impression_is_scored_the_same_in_any_company(runs, clicks, model):
    dev = clicks["dev"]
    some = np.array([7, 3, 20])
    whole = score(runs[model], dev)
    expected = np.concatenate([whole[slice(*dev.candidates.offsets[one : one + 2])] for one in some])
    np.testing.assert_allclose(score(runs[model], dev.take(some)), expected, atol=1e-5)


@pytest.mark.parametrize("model", ["nrms", "fim"])
def test_titles_and_histories_are_encoded_once(runs, clicks, monkeypatch, model):
    kind = FimForRecommendation if model == "fim" else FastformerForRecommendation
    titles, histories, encode_news, encode_users = [], [], kind.encode_news, FastformerForRecommendation.encode_users

    def counting_titles(self, input_ids, attention_mask):
        titles.append(len(input_ids))
        return encode_news(self, input_ids, attention_mask)

    def counting_histories(self, clicked, mask):
        histories.append(len(clicked))
        return encode_users(self, clicked, mask)

    monkeypatch.setattr(kind, "encode_news", counting_titles)
    monkeypatch.setattr(FastformerForRecommendation, "encode_users", counting_histories)
    some = clicks["train"].take(np.arange(0, len(clicks["train"]), 2))
    score(runs[model], some)
    assert sum(titles) == some.news.num_rows
    assert sum(histories) == (0 if model == "fim" else len(np.unique(some.history_of)))
    assert len(np.unique(some.history_of)) < len(some)


def test_many_candidates_are_scored_in_pieces(runs, clicks, monkeypatch):
    dev, whole = clicks["dev"], score(runs["fim"], clicks["dev"])
    sizes, match = [], FimForRecommendation.match

    def counted(self, news, history, mask, candidates):
        sizes.append(candidates.numel())
        return match(self, news, history, mask, candidates)

    monkeypatch.setattr(FimForRecommendation, "match", counted)
    monkeypatch.setattr(scoring, "_CUBES_AT_ONCE", 4)  # impressions have fifteen candidates
    np.testing.assert_allclose(score(runs["fim"], dev), whole, atol=1e-5)
    assert max(sizes) == 4
    pieces, row_of = scoring._pieces(Ragged.from_lengths(np.arange(9), np.array([5, 0, 4])), 2)
    assert [pieces.row(row).tolist() for row in range(len(row_of))] == [[0, 1], [2, 3], [4], [], [5, 6], [7, 8]]
    assert row_of.tolist() == [0, 0, 0, 1, 2, 2]


def test_an_ensemble_is_the_average_of_its_runs(runs, clicks, tmp_path):
    parts = [runs["fastformer"], runs["nrms"], runs["fim"]]
    folder = ensemble(parts, tmp_path / "three")
    expected = np.mean([score(part, clicks["dev"]) for part in parts], axis=0)
    np.testing.assert_allclose(score(folder, clicks["dev"]), expected, atol=1e-6)
    with pytest.raises(UserError, match="is an ensemble already"):
        ensemble([folder, parts[0]], tmp_path / "nested")
    with pytest.raises(UserError, match="at least two"):
        ensemble(parts[:1], tmp_path / "one")
    with pytest.raises(UserError, match="is given twice"):
        ensemble([parts[0], parts[1], parts[0].parent / "." / parts[0].name], tmp_path / "twice")
    with pytest.raises(UserError, match="holds a finished run"):
        ensemble(parts, folder)


def test_the_measurement_of_it(runs, folders, tmp_path):
    threads = torch.get_num_threads()
    result = recommendation(
        open_run(runs["fastformer"]), str(folders / "dev"), tmp_path, impressions=5, threads=1, show_progress=False
    )
    assert torch.get_num_threads() == threads
    assert result["largest_difference"] < 1e-5
    assert (result["impressions"], result["candidates"]) == (30, 30 * 15)
    assert (tmp_path / "recommendation.json").is_file()
