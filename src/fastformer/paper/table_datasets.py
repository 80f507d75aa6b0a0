"""The paper's three tables of dataset statistics, with the same statistics of any classification data given."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastformer.bench.measuring import result_folder
from fastformer.data.tokenizers import count_nltk_words
from fastformer.paper.comparison import spread
from fastformer.paper.datasets import SPLITS, Dataset, Prepared, parse_data, prepare
from fastformer.paper.recipes import Scale, command, load_recipe, load_scale
from fastformer.paper.report import percent, write_report
from fastformer.surroundings.files import write_json
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import progress_bar

NAME = "table-datasets"


def table_datasets(
    data: Sequence[str],
    *,
    output: str | Path,
    scale: str = "cpu",
    seeds: int | None = None,
    data_seed: int = 0,
    text_column: str | None = None,
    label_column: str | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Rows a split, average length in NLTK words and classes of the data as the runs of `scale` use it.

    The length is the mean of `seeds` draws of the rows, one unless given. Leaves table-datasets.md and .json in
    `output`.
    """
    recipe, size, datasets, folder = load_recipe(NAME), load_scale(scale), parse_data(data), result_folder(output)
    columns = {"text_column": text_column, "label_column": label_column}
    found = {}
    for dataset in datasets:
        draws = draw(dataset, size, folder, seeds or 1, data_seed, **columns, show_progress=show_progress)
        lengths = spread([average_length(one, show_progress) for one in draws])
        found[dataset.name] = {"paper": dataset.paper, "about": draws[0].about, "average_length": lengths}
    report = {
        "what": NAME,
        "title": recipe["title"],
        "source": recipe["source"],
        "command": command(
            NAME, datasets, scale=scale, seeds=seeds, data_seed=data_seed or None, output=output, **columns
        ),
        "scale": scale,
        "reduction": size.says,
        "datasets": found,
        "paper": {part: recipe[part] for part in ("classification", "recommendation", "summarization")},
    }
    write_report(folder, report, markdown(report))
    return report


def draw(
    dataset: Dataset, scale: Scale, folder: Path, seeds: int, data_seed: int = 0, **options: Any
) -> list[Prepared]:
    """The data as drawn with `data_seed` and the seeds after it."""
    return [prepare(dataset, scale, folder, seed=data_seed + number, **options) for number in range(seeds)]


def average_length(one: Prepared, show: bool) -> float:
    """Words a text over all splits, counted once and kept beside the data."""
    file = one.folder / f"words-{one.about['fingerprint']}.json"
    if not file.is_file():
        words = 0
        with progress_bar(f"Words of {one.dataset.name}", total=sum(one.about["rows"].values()), show=show) as advance:
            for split in SPLITS:
                for row in one.rows(split):
                    words += count_nltk_words(row.text)
                    advance(1)
        write_json(file, {"words": words})
    words = json.loads(file.read_text(encoding="utf-8"))["words"]
    return words / sum(one.about["rows"].values())


def _draws(report: dict[str, Any]) -> str:
    lengths = next(iter(report["datasets"].values()))["average_length"]
    return "" if lengths["std"] is None else f", mean of {len(lengths['all'])} draws ± sample standard deviation"


def markdown(report: dict[str, Any]) -> str:
    """Our table with the paper's rows in it, then the paper's other two as printed."""
    rows = []
    for name, one in report["datasets"].items():
        about = one["about"]
        counts = [f"{about['rows'][split]:,}" for split in SPLITS]
        source = f"{sum(about['rows_in_source'].values()):,}"
        rows.append(
            [
                name,
                *counts,
                percent(one["average_length"]["mean"], one["average_length"]["std"]),
                str(about["classes"]),
                source,
            ]
        )
        if one["paper"]:
            title, *numbers = report["paper"]["classification"][one["paper"]]
            rows.append([f"paper's {title}", *numbers, "–"])
    header = ["dataset", "train", "validation", "test", "average length", "classes", "rows in the source"]
    summarization = report["paper"]["summarization"]
    return "\n".join(
        [
            f"# {report['title']}\n",
            f"After {report['source']}. Scale `{report['scale']}`. {report['reduction']} Lengths are NLTK words "
            f"of whole texts{_draws(report)}.\n",
            markdown_table(header, rows),
            "## As the paper prints them\n",
            "Sentiment and news topic classification:\n",
            markdown_table(
                ["dataset", "#train", "#val", "#test", "avg. len.", "#class"],
                list(report["paper"]["classification"].values()),
            ),
            "MIND, news recommendation:\n",
            markdown_table(["", ""], list(map(list, report["paper"]["recommendation"].items()))),
            "Text summarization:\n",
            markdown_table(
                ["dataset", "#train", "#val", "#test", "avg. doc/summary len."],
                summarization["rows"],
            ),
            f"{summarization['note']}\n",
            f"```bash\n{report['command']}\n```\n",
        ]
    )
