"""Floors: how well conversions can be predicted without a neural network.

`ad`: how often this ad converted in training, (conversions + 10 r) / (events + 10) with r the rate of all ads.
`words`: logistic regression on the words of the ad and, apart from them, of the behaviours; no word meets another.
"""

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MaxAbsScaler

from fastformer.tasks.conversion.data import Events
from fastformer.tasks.conversion.metrics import scores

PRIOR_EVENTS = 10
FLOORS = ("ad", "words")


def floor_scores(events: Events, train: np.ndarray, test: np.ndarray) -> dict[str, dict[str, float]]:
    """Scores on the rows `test` of both floors, learned from the rows `train`."""
    labels = events.labels.astype(np.int64)
    return {
        "ad": scores(ad_rates(events.ads, labels, train)[test], labels[test]),
        "words": scores(_word_model(events, labels, train, test), labels[test]),
    }


def ad_rates(ads: np.ndarray, labels: np.ndarray, train: np.ndarray) -> np.ndarray:
    """For every row the smoothed rate of its ad among the training rows."""
    count = np.bincount(ads[train], minlength=ads.max() + 1)
    converted = np.bincount(ads[train], weights=labels[train], minlength=ads.max() + 1)
    return ((converted + PRIOR_EVENTS * labels[train].mean()) / (count + PRIOR_EVENTS))[ads]


def _word_model(events: Events, labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    words = CountVectorizer(min_df=2, binary=True, dtype=np.float32).fit_transform(events.texts)
    values, offsets = events.behaviors
    shape = (len(events.ads), len(events.texts))
    behaviors = csr_matrix((np.ones(len(values), dtype=np.float32), values, offsets), shape=shape)
    # Logarithms: the fiftieth drama says less than the first.
    rows = hstack([words[events.ads], (behaviors @ words).log1p()], format="csr")
    scaler = MaxAbsScaler().fit(rows[train])
    model = LogisticRegression(C=0.1, max_iter=200).fit(scaler.transform(rows[train]), labels[train])
    return model.predict_proba(scaler.transform(rows[test]))[:, 1].astype(np.float64)
