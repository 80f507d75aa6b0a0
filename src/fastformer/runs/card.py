"""The card that a run writes about itself: one template, filled by `huggingface_hub.ModelCard`."""

from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import ModelCard, ModelCardData

from fastformer.surroundings.markdown import markdown_table

if TYPE_CHECKING:
    from fastformer.engine.fit import Trained
    from fastformer.tasks.base import Task

TEMPLATE = Path(__file__).with_name("card.md")


def write_card(task: "Task", trained: "Trained", name: str) -> str:
    """README.md of a run folder: what it predicts, how well, from what, and how to use it."""
    said, record, metrics = task.card(trained, name), trained.record, trained.metrics
    tags = ["fastformer", *(tag for tag in said.tags if tag)]
    data = ModelCardData(library_name="fastformer", pipeline_tag=said.pipeline_tag, tags=list(dict.fromkeys(tags)))
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        name=name,
        what=said.what,
        scores=_scores(metrics).rstrip() if said.scores is None else said.scores,
        trained=" ".join([_trained(task, record, metrics), *said.notes]),
        usage=said.usage.strip(),
    )
    return str(card).rstrip() + "\n"


def _scores(metrics: dict) -> str:
    columns = list(metrics["validation"])
    rows = []
    for part in ("validation", "test"):
        if part in metrics:
            count = metrics["rows"].get(part)
            cells = [_cell(metrics[part].get(column)) for column in columns]
            rows.append([part, "" if count is None else f"{count:,}", *cells])
    return markdown_table(["", "rows", *(column.replace("_", " ") for column in columns)], rows)


def _trained(task: "Task", record: dict, metrics: dict) -> str:
    sources = record["data"].get("train") or ()
    named = ", ".join(f"`{one}`" for one in ([sources] if isinstance(sources, str) else sources))
    rows = f"{metrics['rows']['train']:,} {task.declaration.unit}s{f' of {named}' if named else ''}"
    mixers = [f"{key.replace('_', ' ')} `{record[key]}`" for key in record if key.endswith("mixer") and record[key]]
    how = [*mixers, f"preset `{record.get('preset', 'custom')}`", f"seed {record['settings']['training']['seed']}"]
    how.append(f"{metrics['parameters']:,} parameters")
    took = f"{metrics['train_seconds']:.0f} s"
    said = f"Trained with `fastformer train {task.name}` on {rows} in {took}: {', '.join(how)}."
    return f"{said}{_columns(record['data'])}"


def _columns(data: dict) -> str:
    """Which columns of a table texts and labels were read from, if it has columns."""
    roles = {"texts": data.get("texts_from"), "labels": data.get("labels_from")}
    said = [f"{role} from {' and '.join(f'`{one}`' for one in columns)}" for role, columns in roles.items() if columns]
    return f" It read {' and '.join(said)}." if said else ""


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
