"""Any number of labels per text: which libraries a docstring is about, and whether it documents arguments or errors."""

from fastformer import TextClassifier
from fastformer.data.tables import Row, read_rows

LIBRARIES = ("networkx", "scipy", "sympy")


def labels_of(row: Row) -> list[str]:
    """The library, and what the docstring tells beside its first line."""
    found = [row.label]
    if "Parameters" in row.text or "Args:" in row.text:
        found.append("arguments")
    if "Raises" in row.text:
        found.append("errors")
    return found


train = [row for row in read_rows("builtin:validation") if row.label in LIBRARIES]
test = [row for row in read_rows("builtin:test") if row.label in LIBRARIES]
model = TextClassifier(random_state=0).fit([row.text for row in train], [labels_of(row) for row in train])

thresholds = getattr(model.model_.config, "label_thresholds", None) or {}
print(f"labels: {', '.join(model.classes_)}")
print(f"thresholds, chosen on held-out texts: {thresholds}")

predicted = model.predict([row.text for row in test])
right = sum(sorted(found) == sorted(labels_of(row)) for found, row in zip(predicted, test, strict=True))
print(f"all labels right for {right} of {len(test)} docstrings; the first five:")
for found, row in list(zip(predicted, test, strict=True))[:5]:
    print(f"  {' '.join(row.text.split())[:60]:<60}  predicted {found}, really {labels_of(row)}")
