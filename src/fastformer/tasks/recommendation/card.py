"""The model card that a run writes about itself."""

from typing import Any

from fastformer.data.by_time import CHOSEN
from fastformer.markdown import markdown_table


def model_card(record: dict[str, Any], metrics: dict[str, Any], name: str) -> str:
    """README.md of a run folder: what it recommends, how well, and how to use it."""
    settings, scores = record["settings"], metrics["validation"]
    mixers = [f"{place} mixer `{record[key]}`" for place, key in (("news", "news_mixer"), ("user", "user_mixer"))]
    encoders = "".join(f", {text}" for text in mixers if "`None`" not in text)
    source = f" of `{record['data']['train']}`" if record["data"] else ""
    table = markdown_table(
        ["", "impressions", *scores],
        [["validation", f"{metrics['rows']['validation']:,}", *(f"{score:.4f}" for score in scores.values())]],
    )
    return f"""---
library_name: fastformer
tags: [fastformer, recommendation, {record["model"]}]
---

# {name}

A news recommender: it ranks news for a user by what the user clicked before. Trained with `fastformer train
recommendation`.

{table}

Validation: {CHOSEN[metrics["held_out_by"]]}.

Trained on {metrics["rows"]["clicks"]:,} clicks of {metrics["rows"]["train"]:,} impressions{source} \
and {metrics["news"]:,} news in {metrics["train_seconds"]:.0f} s; model `{record["model"]}`{encoders}, preset \
`{record["preset"]}`, seed {settings["training"]["seed"]}, {metrics["parameters"]:,} parameters; \
{settings["title_length"]} tokens of a title and {settings["history_length"]} clicks of a history are read.

```bash
fastformer recommend {name} --history ID,ID --top 10
fastformer predict {name} MINDlarge_test --output prediction.txt
```
"""


def ensemble_card(runs: list[str], name: str) -> str:
    """README.md of an ensemble."""
    return f"""---
library_name: fastformer
tags: [fastformer, recommendation, ensemble]
---

# {name}

An ensemble of {len(runs)} news recommenders: a candidate's score is the average of theirs. Made with
`fastformer ensemble {" ".join(runs)} --output {name}`; the runs are in `members`.

```bash
fastformer recommend {name} --history ID,ID --top 10
```
"""
