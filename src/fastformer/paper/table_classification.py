"""The paper's main table: accuracy and macro-F of the seven methods, its numbers beside ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastformer.paper.comparison import compare
from fastformer.paper.report import about_dataset, claims, introduction, scores_table, write_report

NAME = "table-classification"


def table_classification(data: Sequence[str], *, output: str | Path, **options: Any) -> dict[str, Any]:
    """Train the seven methods on every dataset of `data`; leave table-classification.md and .json in `output`.

    `options` are those of `fastformer.paper.comparison.compare`.
    """
    report = compare(NAME, data, output=output, **options)
    write_report(output, report, markdown(report))
    return report


def markdown(report: dict[str, Any]) -> str:
    """The report as people read it: one table a dataset."""
    parts = introduction(report)
    for name, dataset in report["datasets"].items():
        parts += [about_dataset(name, dataset), scores_table(dataset, "method")]
    return "\n".join([*parts, claims(report), f"```bash\n{report['command']}\n```\n"])
