"""The model card that a run writes about itself."""

from typing import Any


def model_card(record: dict[str, Any], metrics: dict[str, Any], name: str) -> str:
    """README.md of a run folder: what it learned from, how well, and how to use it."""
    settings, scores = record["settings"], metrics["validation"]
    sources = ", ".join(f"`{source}`" for source in record["data"]["train"])
    return f"""---
library_name: fastformer
pipeline_tag: fill-mask
tags: [fastformer, {record["mixer"]}]
---

# {name}

A model that fills in hidden words, trained on text without labels with `fastformer train masked-words`: a start for
models that are trained on few labels.

| | rows | {" | ".join(scores)} |
|---|---|{"---|" * len(scores)}
| validation | {metrics["rows"]["validation"]:,} | {" | ".join(f"{score:.4g}" for score in scores.values())} |

Trained on {metrics["rows"]["train"]:,} texts of {sources} in {metrics["train_seconds"]:.0f} s; mixer \
`{record["mixer"]}`, preset `{record["preset"]}`, seed {settings["training"]["seed"]}, \
{metrics["parameters"]:,} parameters; texts are cut at {settings["max_length"]:,} tokens.

```bash
fastformer train classification --train labelled.csv --init {name} --output runs/classifier
echo "A wonderful [MASK], the best this year." | fastformer predict {name} -
```
"""
