"""What an installation without extras must be able to do: train, predict, save, load, and name the extra it lacks."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np

from fastformer import TextClassifier
from fastformer.data.tables import read_rows

assert "site-packages" in TextClassifier.__module__ or "site-packages" in sys.modules["fastformer"].__file__
vectors = np.load("vectors.npy")  # of the lines of README, by the encoder that the second package brings
assert np.isfinite(vectors).all()
assert len(vectors) > 50

rows = [row for row in read_rows("builtin:validation") if row.label in ("networkx", "sympy", "torch")]
train, test = rows[::2], rows[1::2]
model = TextClassifier(epochs=2).fit([row.text for row in train], [row.label for row in train])
right = model.score([row.text for row in test], [row.label for row in test])
print(f"{len(train)} rows to train on, {len(test)} to test: accuracy {right:.2f}")
assert right > 0.6

model.save("run")
assert list(TextClassifier.load("run").predict([test[0].text])) == list(model.predict([test[0].text]))
command = [str(Path(sys.executable).with_name("fastformer")), "predict", "run", "-", "--top", "1"]
print(
    subprocess.run(command, input="The nodes of a graph.\n", capture_output=True, text=True, check=True).stdout.strip()
)

command = [command[0], "train", "summarization", "--train", "builtin", "--output", "summaries"]
refused = subprocess.run(command, capture_output=True, text=True, check=False)
if importlib.util.find_spec("rouge_score") is None:
    print(refused.stderr.strip())
    assert refused.returncode == 2
    assert refused.stderr.strip().endswith("pip install 'fastformer[summarization]'")
