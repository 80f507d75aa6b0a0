"""What the card of a run says about a classifier."""

from fastformer.engine.fit import Trained
from fastformer.tasks.base import Card
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.declaration import ClassificationSettings

_KINDS = {"single": "one label per text", "multi": "any number of labels per text", "number": "a number per text"}
MOST_LABELS = 50


def classifier_card(trained: Trained[ClassificationSettings], name: str) -> Card:
    """What it predicts, how it was trained, and how to use it."""
    space = LabelSpace.of(trained.record["label_kind"], trained.model.config)
    what = f"A text classifier that predicts {_KINDS[space.kind]}."
    if space.names:
        more = ", …" if len(space.names) > MOST_LABELS else ""
        what += f"\n\nLabels: {', '.join(f'`{label}`' for label in space.names[:MOST_LABELS])}{more}."
    notes = [f"Texts are cut at {trained.settings.max_length:,} tokens."]
    if trained.record["data"].get("validation") is None:
        notes.append(
            "The validation rows were held out of the training data. After they had been scored, the n-gram channel, "
            "where there is one, was fitted once more with them; beside it, on few rows, the encoder too."
        )
    return Card(
        what=what,
        pipeline_tag="text-classification",
        tags=[trained.record["mixer"]],
        notes=notes,
        usage=f"""```bash
fastformer predict {name} texts.txt
```

```python
import fastformer  # registers the model with transformers
from transformers import pipeline

classify = pipeline("text-classification", model="{name}", truncation=True)
```""",
    )
