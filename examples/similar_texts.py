"""Text vectors: train a classifier, turn texts into vectors, and find the nearest neighbours of a query."""

import torch

from fastformer import TextClassifier
from fastformer.data.tables import read_rows

QUERIES = (
    "Solve a system of linear equations.",
    "Draw the edges of a graph.",
    "The derivative of an expression.",
)

rows = [row for row in read_rows("builtin:validation") if row.label in ("networkx", "scipy", "sympy", "torch")]
texts = [row.text for row in rows]
model = TextClassifier(preset="encoder", random_state=0).fit(texts, [row.label for row in rows])


@torch.inference_mode()
def vectors(texts: list[str]) -> torch.Tensor:
    """Unit vectors (texts, width) of the trained encoder."""
    found = []
    for text in texts:
        inputs = model.tokenizer_(text, return_tensors="pt")
        output = model.model_.base_model(inputs["input_ids"], inputs["attention_mask"])
        found.append(torch.nn.functional.normalize(output.pooler_output[0], dim=-1))
    return torch.stack(found)


known, asked = vectors(texts), vectors(list(QUERIES))
for query, scores in zip(QUERIES, asked @ known.T, strict=True):
    print(query)
    best = scores.topk(3)
    for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        print(f"  {score:.2f}  {rows[place].label:<9} {' '.join(rows[place].text.split())[:80]}")
