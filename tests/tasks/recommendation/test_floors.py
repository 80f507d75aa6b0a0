"""Rankers without text, on clicks small enough to count, and on simulated ones."""

import numpy as np
import pytest

from fastformer.errors import UserError
from fastformer.tasks.recommendation.floors import FLOORS, floor_scores
from fastformer.tasks.recommendation.metrics import impression_metrics
from fastformer.tasks.recommendation.mind import read_mind


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path_factory.getbasetemp() / "floors"))


@pytest.fixture
def make(tmp_path):
    def clicks(name: str, ids: str, *impressions: tuple[str, str]):
        """Impressions as (history, candidates); the folder's news in the order of `ids`."""
        (tmp_path / name).mkdir()
        (tmp_path / name / "news.tsv").write_text("".join(f"{one}\tc\ts\ttitle\n" for one in ids.split()))
        lines = (f"{n}\tU\tnow\t{history}\t{shown}\n" for n, (history, shown) in enumerate(impressions))
        (tmp_path / name / "behaviors.tsv").write_text("".join(lines))
        return read_mind(tmp_path / name)

    return clicks


def test_popularity_counts_clicks_by_id(make):
    train = make("train", "A B C D", ("A B", "C-1 D-0"), ("A", "C-1 B-1"), ("", "C-0 A-1"), ("C D", "A-0 B-1"))
    test = make("test", "D C B A", ("A", "A B C D X"))
    # "A" begins "A B": the same user earlier, whose history is not counted twice. A 1 + 1, B 1 + 2, C 1 + 2, D 1.
    assert floor_scores("popularity", train, test).tolist() == [2, 3, 3, 1, 0]


def test_co_occurrence_by_hand(make):
    train = make("train", "A B C D", ("A B", "C-1 D-0"), ("A D", "B-0 C-0"), ("", "D-1 C-1"))
    test = make("test", "X C B A D", ("A X", "B C D A X"), ("B C", "D A B X C"), ("", "A B"))
    scores = floor_scores("co-occurrence", train, test)
    # Users {A, B, C} and {A, D}: A is clicked by 2, the others by 1. Those without a history are no user.
    half = 1 / np.sqrt(2)
    assert scores == pytest.approx([half, half, half, 0, 0, 0, 2 * half, 1, 0, 1, 0, 0])


def test_random_is_by_seed(make):
    clicks = make("train", "A B C", ("A", "B-1 C-0"))
    assert floor_scores("random", clicks, clicks, 1).tolist() == floor_scores("random", clicks, clicks, 1).tolist()
    assert floor_scores("random", clicks, clicks, 1).tolist() != floor_scores("random", clicks, clicks, 2).tolist()


@pytest.mark.parametrize("name", FLOORS)
def test_labels_of_what_is_ranked_are_not_looked_at(make, name):
    train = make("train", "A B C", ("A", "B-1 C-0"), ("B C", "A-1 C-0"))
    shown, reversed_ = make("one", "A B C", ("A", "B-1 C-0")), make("two", "A B C", ("A", "B-0 C-1"))
    unlabelled = make("three", "A B C", ("A", "B C"))
    scores = [floor_scores(name, train, test).tolist() for test in (shown, reversed_, unlabelled)]
    assert scores[0] == scores[1] == scores[2]


def test_mistakes(make):
    unlabelled = make("test", "A B", ("A", "A B"))
    with pytest.raises(UserError, match="no labels"):
        floor_scores("popularity", unlabelled, unlabelled)
    with pytest.raises(UserError, match="choose from random, popularity, co-occurrence"):
        floor_scores("oracle", unlabelled, unlabelled)


def test_simulated_clicks_follow_interests_and_not_popularity():
    train, dev = read_mind("builtin:train"), read_mind("builtin:dev", labels="required")

    def auc(scores: np.ndarray) -> float:
        return impression_metrics(scores, dev.labels, dev.candidates.offsets)["auc"]

    assert auc(floor_scores("random", train, dev)) < 0.56
    assert auc(floor_scores("popularity", train, dev)) < 0.56
    assert 0.55 < auc(floor_scores("co-occurrence", train, dev)) < 0.7
    category = np.unique(dev.news["category"].to_pylist(), return_inverse=True)[1]
    taste = np.zeros((len(dev.histories.offsets) - 1, category.max() + 1))
    rows = np.repeat(np.arange(len(taste)), dev.histories.lengths)
    np.add.at(taste, (rows, category[dev.histories.values]), 1)
    users = np.repeat(dev.history_of, dev.candidates.lengths)
    assert auc(taste[users, category[dev.candidates.values]]) > 0.8  # what a reader who tells categories can have
