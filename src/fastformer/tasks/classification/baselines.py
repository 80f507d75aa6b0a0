"""What a classifier must beat: TF-IDF with logistic regression, and always guessing the commonest class.

`python -m fastformer.tasks.classification.baselines TRAIN TEST` prints both for files with text and label.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fastformer.data.tables import Row, read_rows
from fastformer.machine import peak_memory_gb
from fastformer.tasks.classification.metrics import single_label_scores


def tfidf_baseline(train: Iterable[Row], test: Iterable[Row], C: float = 10.0) -> dict[str, float]:
    """TF-IDF of words and word pairs, then logistic regression: scores on `test` and seconds.

    Of scikit-learn's default C=1 and C=10, the latter had the better macro-F on all our datasets.
    """
    started = time.monotonic()
    texts, labels = zip(*train, strict=True)
    test_texts, test_labels = zip(*test, strict=True)
    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    model = make_pipeline(features, LogisticRegression(C=C, max_iter=1000))
    predicted = model.fit(texts, labels).predict(test_texts)
    scores = single_label_scores(test_labels, predicted, sorted(set(labels)))
    return {**scores, "seconds": round(time.monotonic() - started, 1)}


def majority_baseline(train: Iterable[Row], test: Iterable[Row]) -> dict[str, float]:
    """The commonest training label for every text."""
    counts = Counter(row.label for row in train)
    [(commonest, _)] = counts.most_common(1)
    labels = [row.label for row in test]
    return single_label_scores(labels, [commonest] * len(labels), sorted(counts))


if __name__ == "__main__":
    sources = zip(sys.argv[1:], ("train", "test"), strict=True)
    train, test = (list(read_rows(source, split=split)) for source, split in sources)
    print(json.dumps({"majority": majority_baseline(train, test)}), flush=True)
    for C in (1.0, 10.0):
        scores = tfidf_baseline(train, test, C)
        print(json.dumps({f"tfidf+lr C={C:g}": scores, "peak_memory_gb": peak_memory_gb()}), flush=True)
