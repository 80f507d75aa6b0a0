"""Several runs in one run folder, whose scores are the average of theirs."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from fastformer.errors import UserError
from fastformer.runs.claiming import claim_output, unharmed
from fastformer.runs.saving import writing_run
from fastformer.surroundings.files import write_json
from fastformer.tasks.recommendation.predictor import check_task
from fastformer.version import __version__

MEMBERS = "members"  # folder of an ensemble's runs


def ensemble(runs: Sequence[str | Path], output: str | Path) -> Path:
    """Make one run folder of several runs: its scores are the average of theirs. Copies of the runs are in it."""
    opened = [check_task(run) for run in runs]
    if len(opened) < 2:
        raise UserError("an ensemble needs at least two runs; give more run folders")
    places = [run.folder.resolve() for run in opened]
    if twice := [str(run.folder) for run, place in zip(opened, places, strict=True) if places.count(place) > 1]:
        raise UserError(f"{twice[-1]}: is given twice, which would count it twice; give each run once")
    nested = [str(run.folder) for run in opened if "members" in run.record]
    if nested:
        raise UserError(f"{nested[0]}: is an ensemble already; give the runs that it was made of")
    folder = claim_output(output, resume=False, overwrite=False)
    record = {
        "fastformer": __version__,
        "task": "recommendation",
        "model": "ensemble",
        "members": len(opened),
        "data": {"runs": [str(run.folder) for run in opened]},
    }
    with unharmed(folder), writing_run(folder, record) as aside:
        for number, run in enumerate(opened):
            shutil.copytree(run.folder, aside / MEMBERS / str(number))
        card = _card([run.folder.name for run in opened], folder.resolve().name)
        (aside / "README.md").write_text(card, encoding="utf-8")
        write_json(aside / "metrics.json", {"members": [run.load_metrics()["validation"] for run in opened]})
    return folder


def _card(runs: list[str], name: str) -> str:
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
