"""A classifier beside TF-IDF with logistic regression, its best labels, and the words that decided.

The texts are docstrings of Python libraries installed on this machine; the label is the library.
"""

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fastformer import TextClassifier
from fastformer.data.tables import read_rows

LIBRARIES = ("networkx", "scipy", "sympy", "torch")

train = [row for row in read_rows("builtin:validation") if row.label in LIBRARIES]
test = [row for row in read_rows("builtin:test") if row.label in LIBRARIES]
texts, labels = [row.text for row in train], [row.label for row in train]
unseen, truth = [row.text for row in test], [row.label for row in test]

fastformer = TextClassifier(random_state=0).fit(texts, labels)
tfidf = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=10)).fit(
    texts, labels
)
print(f"trained on {len(train)} docstrings, right on {len(test)} others:")
print(f"  fastformer                    {fastformer.score(unseen, truth):.1%}")
print(f"  TF-IDF + logistic regression  {tfidf.score(unseen, truth):.1%}")

text = "Return the shortest path between two nodes of a weighted graph."
print(f"\n{text}")
for label, chance in fastformer.predict_top([text], 3)[0]:
    print(f"  {label:<10} {chance:.1%}")

print("\nwhy:")
print(fastformer.explain(text))
