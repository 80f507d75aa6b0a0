"""The course of a training: a few validation documents, summarized after every epoch, and a picture of how well."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.errors import extra
from fastformer.surroundings.files import writing_aside
from fastformer.surroundings.plotting import COLORS, OURS, name_lines, style
from fastformer.tasks.summarization.baselines import baseline_summaries
from fastformer.tasks.summarization.data import Pairs
from fastformer.tasks.summarization.documents import Document, Documents
from fastformer.tasks.summarization.metrics import rouge_of_each
from fastformer.tasks.summarization.objective import SummaryLearner
from fastformer.tasks.summarization.writing import Writer

COURSE_FILE = "course.png"
_SAMPLE = 100  # documents
_SECONDS = {"hours": 3600, "minutes": 60, "seconds": 1}


@dataclass
class Sample:
    """A few of the validation documents, to be summarized now and then: perplexity does not tell how well it writes."""

    documents: list[Document]
    language: str

    @classmethod
    def of(cls, documents: Documents, validating: Pairs, language: str) -> "Sample":
        """Draw it evenly from the `documents` that `validating` has."""
        places = np.linspace(0, len(validating) - 1, min(_SAMPLE, len(validating)), dtype=int)
        rows = set(validating.indices[places].tolist())
        drawn = [document for row, document in enumerate(islice(documents, 1 + max(rows))) if row in rows]
        return cls(drawn, language)

    def score(self, writer: Writer, learner: SummaryLearner) -> float:
        """ROUGE-1 of what `writer` writes with the weights that the learner has by now."""
        writer.model.to(learner.device).load_state_dict(learner.state_dict())
        return self._rouge1([one.summary for one in writer(document.article for document in self.documents)])

    def about(self, seed: int) -> dict[str, Any]:
        """How many documents it has, and ROUGE-1 of sentences of their articles."""
        found = [baseline_summaries(document.article, (seed, row)) for row, document in enumerate(self.documents)]
        baselines = {name: self._rouge1([one[name] for one in found]) for name in found[0]}
        return {"documents": len(self.documents), "baselines": baselines}

    def _rouge1(self, summaries: list[str]) -> float:
        scores = rouge_of_each(summaries, [document.summary for document in self.documents], self.language)
        return round(100 * float(scores[:, 0].mean()), 2)


def plot_course(metrics: dict[str, Any], path: str | Path, title: str) -> None:
    """Write a PNG of a run's metrics: ROUGE-1 of the sample, and of sentences of its articles; perplexity below."""
    with extra("summarization"):
        from matplotlib.figure import Figure

    epochs, sample = metrics["epochs"], metrics["sample"]
    unit, seconds = next(
        (unit, size) for unit, size in _SECONDS.items() if epochs[-1]["seconds"] > 2 * size or size == 1
    )
    times = [epoch["seconds"] / seconds for epoch in epochs]

    figure = Figure(figsize=(8, 6), dpi=150, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    axes, below = figure.subplots(2, 1, height_ratios=(3, 2), sharex=True)
    line = {"color": OURS, "marker": "o", "markersize": 5, "linewidth": 2.2}
    axes.plot(times, [epoch["rouge1"] for epoch in epochs], **line)
    names = [(epochs[-1]["rouge1"], "the model", OURS)]
    for place, (name, rouge1) in enumerate(sample["baselines"].items()):
        axes.axhline(rouge1, color=COLORS[place], linewidth=1.3, linestyle="-." if "random" in name else "--")
        names.append((rouge1, name, COLORS[place]))
    axes.set_ylabel("ROUGE-1 (%)")
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=24, parse_math=False)
    caption = f"after every epoch; ROUGE-1 of {sample['documents']:,} validation documents, written without beams"
    axes.text(0, 1.025, caption, transform=axes.transAxes, fontsize=8.5, color="#555555")
    below.plot(times, [epoch["perplexity"] for epoch in epochs], **line)
    below.set_ylabel("perplexity")
    below.set_xlabel(f"time of training ({unit})")
    for panel in (axes, below):
        panel.margins(x=0.03, y=0.08)
        panel.set_xlim(left=0)
        style(panel)
    name_lines(axes, names)
    with writing_aside(path) as aside:
        figure.savefig(aside, format="png")
