"""The model card that a run writes about itself."""

from typing import Any

from fastformer.tasks.classification.data import LabelSpace

_KINDS = {"single": "one label per text", "multi": "any number of labels per text", "number": "a number per text"}


def model_card(record: dict[str, Any], metrics: dict[str, Any], space: LabelSpace, name: str) -> str:
    """README.md of a run folder: what it predicts, from what, how well, and how to use it."""
    data, settings = record["data"], record["settings"]
    labels = ", ".join(f"`{label}`" for label in space.names[:50]) + (", …" if len(space.names) > 50 else "")
    lines = [
        "---",
        "library_name: fastformer",
        "pipeline_tag: text-classification",
        f"tags: [fastformer, {record['mixer']}]",
        "---",
        "",
        f"# {name}",
        "",
        f"A text classifier that predicts {_KINDS[space.kind]}, trained with `fastformer train classification`.",
        "",
    ]
    if labels:
        lines += [f"Labels: {labels}.", ""]
    scores = list(metrics["validation"])
    lines += [f"| | rows | {' | '.join(scores)} |", "|---" * (2 + len(scores)) + "|"]
    for part, rows in (
        ("validation", metrics["rows"]["validation"]),
        ("test", metrics.get("test", {}).get("rows")),
    ):
        if part in metrics:
            values = " | ".join(f"{metrics[part][score]:.4f}" for score in scores)
            lines.append(f"| {part} | {rows:,} | {values} |")
    if data.get("validation") is None:
        lines += ["", "The validation rows were held out of the training file. After they had been scored, the n-gram"]
        lines += [
            "channel, where there is one, was fitted once more with them; beside it, on few rows, the encoder too."
        ]
    lines += [
        "",
        f"Trained on {metrics['rows']['train']:,} rows of `{data['train']}` in {metrics['train_seconds']:.0f} s; mixer "
        f"`{record['mixer']}`, preset `{record['preset']}`, seed {settings['training']['seed']}, "
        f"{metrics['parameters']:,} parameters; texts are cut at {settings['max_length']:,} tokens.",
        "",
        "```bash",
        f"fastformer predict {name} texts.txt",
        "```",
        "",
        "```python",
        "import fastformer  # registers the model with transformers",
        "from transformers import pipeline",
        "",
        f'classify = pipeline("text-classification", model="{name}", truncation=True)',
        "```",
        "",
    ]
    return "\n".join(lines)


def comparison_table(rows: dict[str, dict[str, float]]) -> list[str]:
    """Lines of a Markdown table: one row per model, one column per number."""
    columns = list(next(iter(rows.values())))
    lines = [f"| | {' | '.join(column.replace('_', ' ') for column in columns)} |", "|---" * (1 + len(columns)) + "|"]
    return lines + [
        f"| {name} | {' | '.join(f'{row[column]:.4g}' for column in columns)} |" for name, row in rows.items()
    ]
