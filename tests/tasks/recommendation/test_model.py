"""The recommender as a Python object, and impressions that are dictionaries."""

import json

import numpy as np
import pytest

import fastformer
from fastformer.errors import UserError
from fastformer.tasks.recommendation import Recommender, ensemble, recommend
from fastformer.tasks.verbs import evaluate, load, predict

from .conftest import TINY


@pytest.fixture(scope="module")
def recommender(folders):
    return Recommender(**TINY).fit(str(folders / "train"))


def test_fitted_saved_and_loaded_it_recommends_the_same(recommender, clicks, tmp_path):
    assert fastformer.Recommender is Recommender
    history = clicks["train"].news["id"].to_pylist()[:3]
    best = recommender.recommend(history, top=4)
    assert [set(one) for one in best] == [{"id", "title", "category", "score"}] * 4
    assert not {one["id"] for one in best} & set(history)
    recommender.save(tmp_path / "run")
    assert Recommender.load(tmp_path / "run").recommend(history, top=4) == best
    assert recommend(tmp_path / "run", ",".join(history), top=4, show_progress=False) == best
    Recommender.load(tmp_path / "run").save(tmp_path / "again")  # with its articles
    assert Recommender.load(tmp_path / "again").recommend(history, top=4) == best


def test_an_ensemble_is_loaded_and_saved_too(runs, clicks, tmp_path):
    history = clicks["train"].news["id"].to_pylist()[:3]
    loaded = Recommender.load(ensemble([runs["nrms"], runs["fim"]], tmp_path / "two"))
    loaded.save(tmp_path / "copy")
    assert Recommender.load(tmp_path / "copy").recommend(history, 3) == loaded.recommend(history, 3)
    with pytest.raises(UserError, match="ensemble has no vector of an article"):
        loaded.embed(["a title"])


def test_impressions_of_a_folder_and_as_dictionaries_have_the_same_answers(runs, clicks, tmp_path):
    ranker, train = load(runs["fastformer"]), clicks["train"]
    answers = list(ranker.predict(train))
    assert list(ranker.predict(iter(train))) == answers
    assert ranker.evaluate(list(train)) == pytest.approx(ranker.evaluate(train))
    assert evaluate(runs["fastformer"], train, floors=False, show_progress=False) == pytest.approx(
        ranker.evaluate(train)
    )
    unnamed = [{"history": one["history"], "candidates": one["candidates"]} for one in train]
    assert predict(runs["fastformer"], unnamed[:5], tmp_path / "ranks.jsonl", show_progress=False) == 5
    lines = (tmp_path / "ranks.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"ranks": one["ranks"]} for one in answers[:5]]


def test_scores_stand_beside_ranks_where_they_are_asked_for(runs, clicks, tmp_path):
    train, path = clicks["train"], tmp_path / "scores.jsonl"
    predict(runs["fastformer"], train, path, scores=True, show_progress=False)
    answers = [json.loads(line) for line in path.read_text().splitlines()]
    scores = np.concatenate([one["scores"] for one in answers])
    assert scores == pytest.approx(load(runs["fastformer"]).score(train))
    assert [one["ranks"] for one in answers] == [one["ranks"] for one in load(runs["fastformer"]).predict(train)]


def test_without_candidates_all_articles_with_a_title_are(recommender):
    [answer] = recommender.predict([{"history": []}])
    articles = recommender.predictor.articles
    everything = [articles.table["id"][number].as_py() for number in articles.titled]
    best = [everything[place] for place in np.argsort(answer["ranks"])[:5]]
    assert sorted(answer["ranks"]) == list(range(1, len(everything) + 1))
    assert best == [one["id"] for one in recommender.recommend(top=5)]


def test_articles_are_encoded_once(recommender, monkeypatch):
    recommender.recommend()
    monkeypatch.setattr(type(recommender.predictor), "titles", None)
    assert len(recommender.recommend(top=2)) == 2


def test_vectors_of_titles(recommender, clicks):
    titles = clicks["train"].news["title"].to_pylist()
    np.testing.assert_allclose(recommender.embed(titles[:3]), recommender.embed(clicks["train"])[:3], atol=1e-5)
    assert recommender.embed([]).shape == (0, 16)


def test_mistakes(recommender):
    with pytest.raises(UserError, match="history: X1 not among the articles of model; give ids like N"):
        recommender.predict([{"history": ["X1"]}])
    with pytest.raises(UserError, match="candidates: X1 not among the articles"):
        recommender.predict([{"candidates": ["X1"]}])
    with pytest.raises(UserError, match="an impression is a dictionary such as .*, not 'N1'"):
        recommender.predict(["N1"])
    with pytest.raises(UserError, match="give 0 or 1 for every candidate"):
        recommender.evaluate([{"history": []}])
    with pytest.raises(UserError, match="not trained yet"):
        Recommender().recommend()
