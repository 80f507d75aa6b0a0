"""The tables that train nothing: statistics of datasets, and complexity."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

from fastformer.bench.complexity import complexity, counted
from fastformer.data.nltk_words import count_nltk_words
from fastformer.data.tables import read_rows
from fastformer.paper.classification import Classification
from fastformer.paper.datasets import SPLITS, Dataset, Prepared
from fastformer.paper.report import number, write_files
from fastformer.paper.study import spread
from fastformer.surroundings.files import write_json
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import progress_bar


class Counting(Classification):
    """A table of classification data. `--seeds` draws the rows several times."""

    def run(self) -> dict[str, Any]:
        """Count, and leave NAME.md and NAME.json."""
        report = {
            "what": self.recipe.name,
            "title": self.recipe.title,
            "source": self.recipe.source,
            "scale": self.scale.name,
            "reduction": self.scale.says,
            **self.count(),
            "command": self.options.command(self.recipe.name, self.recipe.options()),
        }
        parts = [f"# {report['title']}\n", *self.markdown(report), f"```bash\n{report['command']}\n```\n"]
        write_files(self.folder, report, "\n".join(parts))
        return report

    def count(self) -> dict[str, Any]:
        """What is the table's own."""
        raise NotImplementedError

    def markdown(self, report: dict[str, Any]) -> list[str]:
        """The table in words."""
        raise NotImplementedError

    def draws(self, dataset: Dataset) -> list[Prepared]:
        """The data as drawn with `--data-seed` and the seeds after it."""
        return [self.prepare(dataset, self.options.data_seed + number) for number in range(self.options.seeds or 1)]

    def average_length(self, data: Prepared) -> float:
        """NLTK words per text over all splits, counted once and kept beside the data."""
        words, rows = 0, sum(data.about["rows"].values())
        kept = Path(data.files["train"]).with_name(f"words-{data.about['fingerprint']}.json")
        if kept.is_file():
            return json.loads(kept.read_text(encoding="utf-8"))["words"] / rows
        with progress_bar(f"Words of {data.dataset.name}", total=rows, show=self.show) as advance:
            for split in SPLITS:
                for row in read_rows(data.files[split], text_column="text", label_column="label"):
                    words += count_nltk_words(row.text)
                    advance(1)
        write_json(kept, {"words": words})
        return words / rows


class Statistics(Counting):
    """Rows per split, average length and classes of the data as the runs of a scale use it."""

    def count(self) -> dict[str, Any]:
        """The statistics of every dataset."""
        found = {}
        for dataset in self.datasets:
            draws = self.draws(dataset)
            lengths = spread([self.average_length(one) for one in draws])
            found[dataset.name] = {"paper": dataset.paper, "about": draws[0].about, "average_length": lengths}
        return {"datasets": found, "paper": self.recipe.own}

    def markdown(self, report: dict[str, Any]) -> list[str]:
        """Our table with the paper's rows in it, then the paper's other two as printed."""
        rows, paper, draws = [], report["paper"], ""
        for name, one in report["datasets"].items():
            about, length = one["about"], one["average_length"]
            counts = [f"{about['rows'][split]:,}" for split in SPLITS]
            source = f"{sum(about['rows_in_source'].values()):,}"
            rows.append([name, *counts, number(length), str(about["classes"]), source])
            if length["std"] is not None:
                draws = f", mean of {len(length['all'])} draws ± sample standard deviation"
            if one["paper"]:
                title, *numbers = paper["classification"][one["paper"]]
                rows.append([f"paper's {title}", *numbers, "–"])
        header = ["dataset", "train", "validation", "test", "average length", "classes", "rows in the source"]
        printed = ["dataset", "#train", "#val", "#test"]
        return [
            f"After {report['source']}. Scale `{report['scale']}`. {report['reduction']} Lengths are NLTK words "
            f"of whole texts{draws}.\n",
            markdown_table(header, rows),
            "## As the paper prints them\n",
            "Sentiment and news topic classification:\n",
            markdown_table([*printed, "avg. len.", "#class"], list(paper["classification"].values())),
            "MIND, news recommendation:\n",
            markdown_table(["", ""], list(map(list, paper["recommendation"].items()))),
            "Text summarization:\n",
            markdown_table([*printed, "avg. doc/summary len."], paper["summarization"]["rows"]),
            f"{paper['summarization']['note']}\n",
        ]


class Complexity(Counting):
    """Parameters and multiply-adds of every method; with data, also of a text as long as its average one."""

    def _datasets(self) -> list[Dataset]:
        return super()._datasets() if self.options.data else []

    def count(self) -> dict[str, Any]:
        """The counts, as `fastformer bench complexity` has them."""
        own, of_data = self.recipe.own, {}
        sizes = {"width": own["width"], "heads": own["heads"]}
        for dataset in self.datasets:
            length = max(1, round(mean(self.average_length(one) for one in self.draws(dataset))))
            counts = complexity(**sizes, length=length)["methods"]
            of_data[dataset.name] = {"length": length, "multiply_adds": {n: counts[n]["multiply_adds"] for n in counts}}
        said = {name: own[name] for name in ("symbols", "quote")}
        return {**said, **complexity(**sizes, length=own["length"]), "datasets": of_data}

    def markdown(self, report: dict[str, Any]) -> list[str]:
        """The counted table with the paper's orders in it, its sentence, and whether the counts say the same."""
        methods, datasets = report["methods"], report["datasets"]
        ranked = sorted(methods, key=lambda name: methods[name]["multiply_adds"])
        counts = [f"{name} {methods[name]['multiply_adds'] / 1e6:,.0f} M" for name in ranked]
        of_data = []
        if datasets:
            header = ["mixer", *(f"{name}, {one['length']:,} words" for name, one in datasets.items())]
            rows = [
                [name, *(f"{one['multiply_adds'][name] / 1e6:,.1f} M" for one in datasets.values())] for name in methods
            ]
            of_data = [
                "## A text of average length\n",
                "Multiply-adds of one text as long as the average of the data.\n",
            ]
            of_data.append(markdown_table(header, rows))
        return [
            f"After {report['source']}. {report['symbols']} Here: one text of {report['length']:,} tokens, width "
            f"{report['width']}, {report['heads']} heads.\n",
            counted(report),
            *of_data,
            "## What the paper says, and these counts\n",
            f"> {report['quote']}\n",
            f"- Multiply-adds from the fewest: {', '.join(counts)}: "
            f"{'confirmed' if ranked[0] == 'fastformer' else 'refuted'}.\n",
        ]
