"""The paper again: one function a table or figure, one recipe file each, and its numbers beside ours."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastformer.paper.figures import figure_interaction, figure_sharing
from fastformer.paper.table_classification import table_classification
from fastformer.paper.table_complexity import table_complexity
from fastformer.paper.table_conversion import table_conversion
from fastformer.paper.table_datasets import table_datasets
from fastformer.paper.table_recommendation import table_recommendation
from fastformer.paper.table_summarization import table_summarization


def reproduce_all(data: Sequence[str], *, output: str | Path, **options: Any) -> dict[str, Any]:
    """Every table and figure of text classification, by name; `options` are those of `comparison.compare`."""
    of_data = ("scale", "data_seed", "text_column", "label_column", "show_progress")
    reports = {
        "table-complexity": table_complexity(output=output),
        "table-datasets": table_datasets(
            data, output=output, **{name: options[name] for name in of_data if name in options}
        ),
    }
    for name in ("table-classification", "figure-interaction", "figure-sharing"):
        reports[name] = REPRODUCE[name](data, output=output, **options)
    return reports


REPRODUCE: dict[str, Callable[..., dict[str, Any]]] = {
    "table-classification": table_classification,
    "figure-interaction": figure_interaction,
    "figure-sharing": figure_sharing,
    "table-complexity": table_complexity,
    "table-conversion": table_conversion,
    "table-datasets": table_datasets,
    "table-recommendation": table_recommendation,
    "table-summarization": table_summarization,
    "all": reproduce_all,
}

__all__ = [
    "REPRODUCE",
    "figure_interaction",
    "figure_sharing",
    "reproduce_all",
    "table_classification",
    "table_complexity",
    "table_conversion",
    "table_datasets",
    "table_recommendation",
    "table_summarization",
]
