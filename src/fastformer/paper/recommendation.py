"""News recommendation: models, rankers that read no text, and ensembles, which average the scores of several runs."""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from fastformer.data.opening import decode
from fastformer.errors import UserError
from fastformer.paper.datasets import Dataset, Examples, Prepared, need_train_and_test, splits_in
from fastformer.paper.grid import Grid, Metrics, read_answers
from fastformer.paper.recipes import Variant
from fastformer.paper.study import Entry, Study
from fastformer.paper.verdicts import Resampled, mean_of_rows
from fastformer.tasks.recommendation.clicks import Clicks
from fastformer.tasks.recommendation.floors import Floor, floor_scores
from fastformer.tasks.recommendation.metrics import impression_metrics, metrics_of_each
from fastformer.tasks.recommendation.mind import content_key, format_quirks, has_labels, read_mind
from fastformer.tasks.recommendation.simulate import builtin_folder

_SPLIT = re.compile(r"(?:.*[_-])?(?:(train)|(dev|valid|validation)|(test))", re.IGNORECASE)  # MINDlarge_train too


class Impressions(Examples):
    """Lines of behaviors.tsv. If validation is missing, the last by time of the training impressions validate."""

    validates_at_random = False

    def locate(self, dataset: Dataset) -> dict[str, str]:
        """Train, test, and validation if both dev and test have labels."""
        if dataset.source == "builtin":
            return {split: str(builtin_folder(called)) for split, called in (("train", "train"), ("test", "dev"))}
        if not Path(dataset.source).is_dir():
            raise UserError(f"--data {dataset}: no such folder; give one with MIND's train and dev folders in it")
        found = splits_in(dataset.source, lambda path: (path / "behaviors.tsv").is_file(), _split_of)
        if "test" in found and not has_labels(found["test"]):
            del found["test"]  # the leaderboard has its labels
        if "test" not in found and "validation" in found:
            found["test"] = found.pop("validation")
        return need_train_and_test(dataset, found, "it needs folders train and dev, with news.tsv and behaviors.tsv")

    def read(self, source: str, split: str) -> Iterator[str]:
        """Lines with an impression."""
        path = Path(source) / "behaviors.tsv"
        with path.open("rb") as file:
            yield from (line.rstrip("\r\n") for line in decode(file, str(path)) if line.strip())

    def line(self, example: str) -> str:
        """The line itself."""
        return example

    def place(self, folder: Path, split: str) -> tuple[Path, Path]:
        """A folder of MIND."""
        return folder / split, folder / split / "behaviors.tsv"

    def finish(self, dataset: Dataset, sources: Mapping[str, str], written: Mapping[str, Path]) -> dict[str, Any]:
        """The articles, beside the impressions; what is odd about them."""
        for split, folder in written.items():
            shutil.copyfile(Path(sources[split]) / "news.tsv", folder / "news.tsv")
        clicks = {split: read_mind(folder, labels="required") for split, folder in written.items()}
        if "auc" not in impression_metrics(np.zeros(clicks["test"].candidates.offsets[-1]), *_truth(clicks["test"])):
            raise UserError("no test impression has both a clicked and an unclicked candidate, and the table needs AUC")
        says = [f"There are {clicks['train'].news.num_rows:,} articles."]
        if "validation" not in written:
            says.append("The latest tenth of the training impressions is set aside to pick the epoch.")
        says += [f"In {split}: {format_quirks(part.quirks)}." for split, part in clicks.items() if part.quirks]
        return {"says": says, "fingerprint": [content_key(folder) for folder in written.values()]}


def _split_of(name: str) -> str:
    matched = _SPLIT.match(name)
    return ("train", "validation", "test")[(matched.lastindex or 1) - 1] if matched else ""


class Recommendation(Study):
    """Recommenders, floors and ensembles."""

    examples = Impressions

    def resampled(self, data: Prepared, answers: list[Any]) -> Resampled:
        """Means over the impressions that have the metric."""
        test = read_mind(data.files["test"], labels="required")
        return mean_of_rows(metrics_of_each(np.concatenate(answers), *_truth(test)))

    def runs_of(self, variant: Variant) -> range:
        """As many as an ensemble has members, if one is made of it."""
        averaged = any(one.average == variant.name for one in self.variants)
        return range(max(self.seeds, self.scale.own["ensemble"] if averaged else 0))

    def other_rows(self, data: Prepared, grid: Grid, measured: dict[str, Metrics]) -> Iterator[tuple[str, Entry]]:
        """Floors, and ensembles whose runs are all there."""
        train, test = (read_mind(data.files[split], labels="required") for split in ("train", "test"))
        for variant in self.variants:
            if variant.floor is not None:
                seeds = range(self.seeds if variant.floor == "random" else 1)
                scores = [
                    self._scored(floor_scores(cast(Floor, variant.floor), train, test, seed), test) for seed in seeds
                ]
                yield variant.name, {**self.spreads(scores), "floor": True}
            if variant.average is not None:
                [of] = [one for one in self.variants if one.name == variant.average]
                runs = [self.training(data, of, seed) for seed in range(self.scale.own["ensemble"])]
                if all(run.name in grid.found for run in runs):
                    average = np.mean([answered_scores(run.answers(self.folder)) for run in runs], axis=0)
                    yield variant.name, {**self.spreads([self._scored(average, test)]), "ensemble": len(runs)}

    def _scored(self, scores: np.ndarray, test: Clicks) -> dict[str, float]:
        return self.scores({"test": impression_metrics(scores, *_truth(test))})

    def add(self, report: dict[str, Any], grid: Grid, measured: dict[str, Metrics]) -> None:
        """Which methods are above the rankers that read no text, by AUC."""
        report["says"] = [
            f"The pre-trained encoder is `{Path(self.options.plm).name}` (the paper's is UniLM)."
            if self.options.plm
            else "Methods with a pre-trained encoder are left out: `--plm FOLDER` gives one.",
            "A * is the ensemble of several runs, which averages their scores.",
        ]
        for dataset in report["datasets"].values():
            dataset["says"] = above_floors(dataset["variants"])


def above_floors(variants: dict[str, Entry]) -> list[str]:
    """Which methods are above the best row without a model, by AUC."""
    means = {name: one["auc"]["mean"] for name, one in variants.items() if "auc" in one}
    floors = [name for name in means if variants[name].get("floor")]
    best = max(floors, key=means.__getitem__)
    sides: dict[str, list[str]] = {"Above": [], "Not above": []}
    for name in means.keys() - set(floors):
        sides["Above" if means[name] > means[best] else "Not above"].append(name)
    order = list(means)
    said = [f"{side} it: {', '.join(sorted(names, key=order.index))}." for side, names in sides.items() if names]
    return [f"The best ranker without text is {best}, with AUC {means[best]:.2f}.", *said]


def _truth(clicks: Clicks) -> tuple[np.ndarray, np.ndarray]:
    """Labels of all candidates, and where those of each impression begin."""
    assert clicks.labels is not None  # it was read so
    return clicks.labels, clicks.candidates.offsets


def answered_scores(answers: Path) -> np.ndarray:
    """The scores of all candidates, flat, in the order of the impressions."""
    return np.concatenate(read_answers(answers, "scores"))
