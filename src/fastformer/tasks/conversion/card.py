"""The model card that a run writes about itself."""

from typing import Any

from fastformer.data.by_time import CHOSEN


def model_card(record: dict[str, Any], metrics: dict[str, Any], name: str) -> str:
    """README.md of a run folder: what it predicts, from what, how well, and how to use it."""
    settings, features = record["settings"], record["features"]
    side = [*(f"`{column}` (number)" for column in features["numeric"])]
    side += [f"`{column}` ({len(values):,} values)" for column, values in features["categorical"].items()]
    columns = list(metrics["validation"])
    rows = [
        f"| {part} | {metrics['rows'][part]:,} | {' | '.join(_cell(metrics[part].get(column)) for column in columns)} |"
        for part in ("validation", "test")
        if part in metrics
    ]
    chosen = CHOSEN[metrics["held_out_by"]]
    return f"""---
library_name: fastformer
tags: [fastformer, {record["mixer"]}, conversion-prediction]
---

# {name}

The probability that a user converts on an ad, from what the user did before (texts, the latest last) and the ad's text,
trained with `fastformer train conversion`. Side features: {", ".join(side) or "none"}.

| | rows | {" | ".join(column.replace("_", " ") for column in columns)} |
|---|---|{"---|" * len(columns)}
{chr(10).join(rows)}

Trained on {metrics["rows"]["train"]:,} rows of `{record["data"]["train"]}` in {metrics["train_seconds"]:.0f} s; text
mixer `{record["mixer"]}`, user mixer `{record["user_mixer"]}`, preset `{record["preset"]}`, seed
{settings["training"]["seed"]}, {metrics["parameters"]:,} parameters. The latest {settings["max_behaviors"]:,}
behaviours are read, texts are cut at {settings["max_length"]:,} tokens. The validation rows, {chosen}, chose the epoch,
and probabilities are calibrated on them by one temperature.

```bash
fastformer predict {name} events.jsonl
```

```python
from fastformer.tasks.conversion import BehaviorStore

store = BehaviorStore.open("{name}")
store.add("a user", "what the user just did")
print(store.score("a user", "the text of an ad"))
```
"""


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
