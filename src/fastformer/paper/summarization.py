"""Summarization: ROUGE of the seven methods, sentences of the articles beside them, and what a long article costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fastformer.data.tables import Reading
from fastformer.engine.settings import TaskSettings
from fastformer.paper.datasets import SPLITS, Dataset, Examples, Prepared, need_train_and_test, splits_in
from fastformer.paper.grid import Grid, Job, Measurement, Metrics
from fastformer.paper.recipes import Variant
from fastformer.paper.study import Entry, Study, chosen, spread
from fastformer.paper.verdicts import Resampled, mean_of_rows
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import say
from fastformer.tasks.summarization.documents import Document, Documents
from fastformer.tasks.summarization.metrics import ENGLISH, ROUGE, LanguageDetector, rouge_of_each

_MOST_EPOCHS = 15  # however few documents there are
_HOW = "give a folder with train, test and perhaps validation files (or folders of .story files) in it, or builtin"
WHICH_L = (
    "The paper does not say which L its R-L is; it is about nine tenths of its R-1, as Lsum is, which goes sentence by "
    "sentence (L over a whole text is about two thirds), so it stands beside Lsum."
)


class Articles(Examples):
    """Articles with summaries."""

    def __init__(self, text_column: str | None = None, label_column: str | None = None):
        super().__init__(text_column, label_column)
        self.documents: dict[str, Documents] = {}
        self.detector = LanguageDetector()

    def locate(self, dataset: Dataset) -> dict[str, str]:
        """Splits may be folders."""
        if dataset.source == "builtin":
            return {split: f"builtin:{split}" for split in SPLITS}
        found = splits_in(dataset.source, lambda path: True) if Path(dataset.source).is_dir() else {}
        return need_train_and_test(dataset, found, _HOW)

    def read(self, source: str, split: str) -> Documents:
        """Those that have both an article and a summary."""
        self.documents[source] = Documents(source, Reading(*self.columns, split=split))
        return self.documents[source]

    def keep(self, split: str, example: Document) -> bool:
        """All of them; what language the summaries are in shows on the way."""
        if split == "train":
            self.detector.read(example.summary)
        return True

    def line(self, example: Document) -> str:
        """A JSON object."""
        return super().line(example._asdict())

    def finish(self, dataset: Dataset, sources: Mapping[str, str], written: Mapping[str, Path]) -> dict[str, Any]:
        """The language, and how many were left out."""
        for documents in self.documents.values():
            for note in documents.notes():
                say(note)
        language = self.detector.language()
        words = "stemmed English words" if language == ENGLISH else "words as they are, not stemmed"
        return {"language": language, "says": [f"ROUGE is of {words}."]}


class Summarization(Study):
    """Seven methods, and sentences of the articles."""

    examples = Articles

    def settings(self, variant: Variant, data: Prepared, seed: int) -> TaskSettings:
        """`documents_seen` settles the epochs: about that many documents in all of them, with an upper limit."""
        found = super().settings(variant, data, seed).with_options(language=data.about["language"])
        if (seen := self.scale.own.get("documents_seen")) is None:
            return found
        epochs = min(_MOST_EPOCHS, max(1, round(seen / data.about["rows"]["train"])))
        return found.with_options(epochs=epochs)

    def resampled(self, data: Prepared, answers: list[Any]) -> Resampled:
        """Means over the documents."""
        references = [one.summary for one in Documents(data.files["test"], Reading("article", "summary", split="test"))]
        found = rouge_of_each(answers, references, data.about["language"])
        return mean_of_rows({score: 100 * found[:, place] for place, score in enumerate(ROUGE)})

    def measurements(self, prepared: Sequence[Prepared]) -> dict[str, Job]:
        """A training step of every method on one article of the paper's length for PubMed.

        The decoder is the paper's, which does not copy: that would cost all of them the same.
        """
        like = replace(prepared[0], dataset=Dataset("simulated", "pubmed", ""))
        settings = {
            one.settings["mixer"]: super(Summarization, self)
            .settings(one, like, 0)
            .with_options(model={"copy_mechanism": False})
            for one in self.variants
        }
        size = {"length": self.scale.own["step_length"], "steps": self.scale.own["steps"]}
        determined_by = {
            "task": "summarization",
            "measured": "step",
            "version": self.recipe.version,
            **size,
            "settings": {mixer: {**chosen(one), "init": None} for mixer, one in settings.items()},
        }
        arguments = {**size, "settings": {mixer: asdict(one) for mixer, one in settings.items()}}
        name = f"simulated/summarization-step-{size['length']}"
        return {"step": Measurement(name, determined_by, "summarization-step", arguments)}

    def other_rows(self, data: Prepared, grid: Grid, measured: dict[str, Metrics]) -> Iterator[tuple[str, Entry]]:
        """Sentences of the articles: the same in every run."""
        for variant in self.variants:
            run = grid.found.get(self.training(data, variant, 0).name)
            if run is not None:
                for name, found in run["metrics"]["test"]["summaries"].items():
                    if name != "model":
                        scores = {score: spread([found[score]]) for score in self.recipe.scores}
                        yield name, {**scores, "floor": True}
                return

    def entry(self, metrics: Sequence[Metrics], variant: Variant) -> Entry:
        """The interval over the documents, of the first seed."""
        return {"intervals": metrics[0]["test"]["summaries"]["model"]["intervals"]}

    def add(self, report: dict[str, Any], grid: Grid, measured: dict[str, Metrics]) -> None:
        """The measured step, and what there is to say."""
        if found := measured.get("step"):
            of_each = {one.name: found["step"][one.settings["mixer"]] for one in self.variants}
            report["step"] = {**found, "step": None, "variants": of_each}
        papers = any(dataset["paper"] for dataset in report["datasets"].values())
        report["says"] = [WHICH_L] if papers else []
        for dataset in report["datasets"].values():
            dataset["says"] = []
            for name, one in dataset["variants"].items():
                if one.get("is_fastformer") and "intervals" in one:
                    low, high = one["intervals"]["rouge1"]
                    over = f"The 95% interval of {name}'s ROUGE-1 over the documents is {low:.2f} to {high:.2f}"
                    dataset["says"].append(f"{over} (first seed).")


def step(report: dict[str, Any]) -> list[str]:
    """What a long article costs, in words."""
    if (found := report.get("step")) is None:
        return []
    rows = [
        [name, f"{1000 * one['seconds']:,.0f} ms", f"{one['peak_memory_mb']:,.0f} MB"]
        for name, one in found["variants"].items()
    ]
    return [
        f"## What {found['length']:,} tokens cost\n",
        f"A training step, forward and backward, on one article of {found['length']:,} tokens with a summary of "
        f"{found['summary_length']:,}, the Transformer uncut; the methods in turns, median. Memory is the most bytes "
        "of tensors alive at once.\n",
        markdown_table(["method", "time", "memory"], rows),
    ]
