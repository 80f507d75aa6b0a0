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
    def clicks(name: str, ids: str, *impressions: tuple[str, str, str]):
        """Impressions as (user, history, candidates); the folder's news in the order of `ids`."""
        (tmp_path / name).mkdir()
        (tmp_path / name / "news.tsv").write_text("".join(f"{one}\tc\ts\ttitle\n" for one in ids.split()))
        lines = (f"{n}\t{user}\tnow\t{history}\t{shown}\n" for n, (user, history, shown) in enumerate(impressions))
        (tmp_path / name / "behaviors.tsv").write_text("".join(lines))
        return read_mind(tmp_path / name)

    return clicks


GROWING = [("U1", "A", "C-1 B-1"), ("U1", "A C B", "D-0 C-1"), ("U2", "", "C-0 A-1"), ("U3", "C D", "A-0 B-1")]


def test_popularity_counts_users(make):
    train = make("train", "A B C D", *GROWING)
    test = make("test", "D C B A", ("U", "A", "A B C D X"))
    # U1's history grows by what was clicked, and C is clicked again. A: U1, U2; B: U1, U3; C: U1, U3; D: U3.
    assert floor_scores("popularity", train, test).tolist() == [2, 2, 2, 1, 0]


def test_co_occurrence_by_hand(make):
    train = make("train", "A B C D", ("U1", "A B", "C-1 D-0"), ("U2", "A D", "B-0 C-0"), ("U1", "", "C-1 D-0"))
    test = make("test", "X C B A D", ("U", "A X", "B C D A X"), ("U", "B C", "D A B X C"), ("U", "", "A B"))
    scores = floor_scores("co-occurrence", train, test)
    # Users {A, B, C} and {A, D}: A is clicked by 2, the others by 1.
    half = 1 / np.sqrt(2)
    assert scores == pytest.approx([half, half, half, 0, 0, 0, 2 * half, 1, 0, 1, 0, 0])


def test_no_click_of_a_long_history_is_lost(make):
    news = [f"N{number}" for number in range(70)]
    train = make("train", " ".join(news), ("U1", " ".join(news[:69]), "N69-1"), ("U1", "N0", "N1-1"))
    test = make("test", " ".join(news), ("U", "N69", "N0 N1 N68"))
    assert floor_scores("popularity", train, test).tolist() == [1, 1, 1]
    assert floor_scores("co-occurrence", train, test) == pytest.approx([1, 1, 1])


def test_who_has_no_id_is_not_everybody(make):
    train = make("train", "A B C", ("", "A", "B-1"), ("", "C", "B-0"), ("U1", "A", "B-0"))
    test = make("test", "A B C", ("U", "B", "A C"))
    assert floor_scores("popularity", train, test).tolist() == [2, 1]
    assert floor_scores("co-occurrence", train, test) == pytest.approx([1 / np.sqrt(2), 0])


@pytest.mark.parametrize("name", ["popularity", "co-occurrence"])
def test_drawn_impressions_know_nothing_of_the_others(make, name):
    train = make("train", "A B C D", *GROWING)
    alone = make("alone", "A B C D", GROWING[3])
    test = make("test", "A B C D", ("U", "D", "A B C D"))
    drawn = floor_scores(name, train.take(np.array([3])), test)
    assert drawn.tolist() == floor_scores(name, alone, test).tolist()
    assert drawn.tolist() != floor_scores(name, train, test).tolist()


def test_random_is_by_seed(make):
    clicks = make("train", "A B C", ("U", "A", "B-1 C-0"))
    assert floor_scores("random", clicks, clicks, 1).tolist() == floor_scores("random", clicks, clicks, 1).tolist()
    assert floor_scores("random", clicks, clicks, 1).tolist() != floor_scores("random", clicks, clicks, 2).tolist()


@pytest.mark.parametrize("name", FLOORS)
def test_labels_of_what_is_ranked_are_not_looked_at(make, name):
    train = make("train", "A B C", ("U1", "A", "B-1 C-0"), ("U2", "B C", "A-1 C-0"))
    shown, reversed_ = make("one", "A B C", ("U", "A", "B-1 C-0")), make("two", "A B C", ("U", "A", "B-0 C-1"))
    unlabelled = make("three", "A B C", ("U", "A", "B C"))
    scores = [floor_scores(name, train, test).tolist() for test in (shown, reversed_, unlabelled)]
    assert scores[0] == scores[1] == scores[2]


def test_mistakes(make):
    unlabelled = make("test", "A B", ("U", "A", "A B"))
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
