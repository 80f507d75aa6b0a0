"""The runs behind the summarization table: trainings, and a training step of every method on one long article.

Each is a job of the grid (`grid.py`): made once, in a process of its own, and kept as a JSON file.
"""

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fastformer.bench.allocations import peak_bytes
from fastformer.bench.measuring import describe_machine, in_turns, timing
from fastformer.data.published import file_stamp
from fastformer.data.tables import Reading
from fastformer.errors import UserError
from fastformer.modeling import FastformerConfig
from fastformer.paper.comparison import chosen
from fastformer.paper.datasets import SPLITS, Dataset, choose_rows, counted, split_of
from fastformer.paper.grid import Job, Metrics, train_or_go_on
from fastformer.paper.recipes import Variant, scale_fields
from fastformer.surroundings.files import content_hash, digest, explain_full_disk, write_json, writing_text
from fastformer.surroundings.machine import tune
from fastformer.surroundings.progress import progress_bar, say
from fastformer.tasks import get_task, verbs
from fastformer.tasks.summarization.declaration import SummarizationSettings
from fastformer.tasks.summarization.documents import Documents
from fastformer.tasks.summarization.metrics import ROUGE
from fastformer.tasks.summarization.objective import SummaryLearner

PAPER_DATASETS = {"cnn-dailymail": "CNN/DailyMail", "pubmed": "PubMed"}
_WITHOUT_PAPER = "cnn-dailymail"  # whose settings a dataset gets that stands for none of the paper's
_MOST_EPOCHS = 15  # however few documents there are
_HOW = "give a folder with train, test and perhaps validation files (or folders of .story files) in it, or builtin"


@dataclass(frozen=True)
class SummarizationScale:
    """How large the experiment is; what is empty is as in the paper's presets."""

    name: str
    says: str
    seeds: int
    step_length: int  # tokens of the article of a measured training step
    steps: int  # measured
    rows: dict[str, int] = field(default_factory=dict)  # at most so many, by split
    preset: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    documents_seen: int | None = None  # as many epochs as have about so many documents in all, but not too many
    show_runs: bool = False

    def settings(
        self, paper: str | None, mixer: str, seed: int = 0, documents: int | None = None
    ) -> SummarizationSettings:
        """The paper's settings for a dataset and a method, reduced to this scale; `documents` is how many it has."""
        preset = get_task("summarization").settings(f"paper-{paper or _WITHOUT_PAPER}", mixer=mixer)
        own = {**self.preset, "max_length": min(preset.max_length, self.preset.get("max_length", preset.max_length))}
        training = replace(preset.training, **self.training, seed=seed)
        if self.documents_seen and documents:
            training = replace(training, epochs=min(_MOST_EPOCHS, max(1, round(self.documents_seen / documents))))
        return replace(preset, **own, training=training, model={**preset.model, **self.model})


@dataclass(frozen=True)
class SummarizationData:
    """A dataset: train.jsonl, validation.jsonl and test.jsonl in `folder`, with the rows that are used."""

    dataset: Dataset
    folder: Path
    about: dict[str, Any]

    @property
    def files(self) -> dict[str, str]:
        """The file of every split."""
        return {split: str((self.folder / f"{split}.jsonl").resolve()) for split in SPLITS}


def summarization_scale(recipe: dict[str, Any], name: str) -> SummarizationScale:
    """The scale called `name`."""
    return SummarizationScale(name=name, **scale_fields(recipe, name))


# ---- data ------------------------------------------------------------------------------------------------------------


def prepare_summarization(
    dataset: Dataset,
    scale: SummarizationScale,
    folder: Path,
    *,
    seed: int = 0,
    article_column: str | None = None,
    summary_column: str | None = None,
    show_progress: bool = True,
) -> SummarizationData:
    """Draw the rows of a scale and write them below `folder`, unless that was done before with the same files."""
    sources, columns = _locate(dataset), (article_column, summary_column)
    stamps = [file_stamp(source) for source in sources.values()]
    place = folder / "data" / f"{dataset.name}-{digest([sources, stamps, scale.rows, seed, columns])}"
    about_file = place / "about.json"
    if None not in stamps and about_file.is_file():
        return SummarizationData(dataset, place, json.loads(about_file.read_text(encoding="utf-8")))
    documents = {split: Documents(source, Reading(*columns, split=split)) for split, source in sources.items()}
    content = hashlib.blake2b(digest_size=16)
    with explain_full_disk(place), progress_bar(f"Reading {dataset.name}", show=show_progress) as advance:
        place.mkdir(parents=True, exist_ok=True)
        counts = {split: sum(1 for _ in counted(found, advance)) for split, found in documents.items()}
        chosen = choose_rows(counts, scale.rows, None, seed, dataset.source)
        for split, parts in chosen.items():
            [(source, rows)] = parts.items()  # without validation documents some of the training ones are
            kept = set(rows.tolist())
            with writing_text(place / f"{split}.jsonl") as file:
                for row, document in enumerate(documents[source]):
                    if row in kept:
                        line = json.dumps(document._asdict(), ensure_ascii=False)
                        content.update(f"{split}\t{line}\n".encode("utf-8", "replace"))
                        file.write(line + "\n")
        for found in documents.values():
            for note in found.notes():
                say(note)
        about = {
            "source": dataset.source,
            "rows_in_source": counts,
            "rows": {split: len(rows) for split, parts in chosen.items() for rows in parts.values()},
            "fingerprint": content.hexdigest(),
        }
        write_json(about_file, about)  # last: it says that the rest is there
    return SummarizationData(dataset, place, about)


def _locate(dataset: Dataset) -> dict[str, str]:
    """Split -> source of `read_documents`."""
    if dataset.source == "builtin":
        return {split: f"builtin:{split}" for split in SPLITS}
    folder, found = Path(dataset.source), {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        split = split_of(path)
        if split in found:
            raise UserError(f"--data {dataset}: {found[split]} and {path} are both {split}; leave one of them there")
        if split in SPLITS:
            found[split] = str(path)
    if not {"train", "test"} <= set(found):
        raise UserError(f"--data {dataset}: there is no train and test; {_HOW}")
    return {split: found[split] for split in SPLITS if split in found}


# ---- jobs ------------------------------------------------------------------------------------------------------------


def training_job(
    data: SummarizationData, variant: Variant, scale: SummarizationScale, seed: int, glove: str | None, version: int
) -> Job:
    """Train one method with one seed, and score its summaries of the test rows."""
    preset = scale.settings(data.dataset.paper, variant.mixer, seed, data.about["rows"]["train"])
    return Job(
        f"{data.dataset.name}/summarization-{variant.mixer}-seed{seed}",
        {
            "task": "summarization",
            "kind": "training",
            "recipe_version": version,
            "data": data.about["fingerprint"],
            "mixer": variant.mixer,
            "seed": seed,
            "glove": glove and content_hash(glove),
            "settings": _determining(preset),
        },
        {"preset": preset, "glove": glove, **data.files},
    )


def step_job(mixers: list[str], scale: SummarizationScale, version: int) -> Job:
    """Measure a training step on one article of the paper's length for PubMed, all methods in turns."""
    presets = {mixer: scale.settings("pubmed", mixer) for mixer in mixers}
    for mixer, preset in presets.items():  # the paper's decoder, which does not copy: it would cost all the same
        presets[mixer] = replace(preset, model={**preset.model, "copy_mechanism": False})
    size = {"length": scale.step_length, "steps": scale.steps}
    settings = {mixer: _determining(preset) for mixer, preset in presets.items()}
    return Job(
        f"simulated/summarization-step-{scale.step_length}",
        {"task": "summarization", "kind": "step", "recipe_version": version, **size, "settings": settings},
        {"presets": presets, **size},
    )


def _determining(preset: SummarizationSettings) -> dict[str, Any]:
    """What determines a run, but for the mixer, which every job names beside it."""
    return {name: value for name, value in chosen(preset).items() if name != "mixer"}


def run_job(job: Job, folder: Path, show: bool) -> Metrics:
    """Any of the jobs above, in the process it is called in."""
    found = _train(job, folder, show) if job.settings["kind"] == "training" else measure_steps(**job.inputs)
    return {**found, "machine": describe_machine(torch.get_num_threads())}


def describe(metrics: Metrics) -> str:
    """A result in a few words."""
    if "test" not in metrics:
        return "measured"
    found = metrics["test"]["summaries"]["model"]
    return ", ".join(f"{title} {found[name]:.2f}" for name, title in ROUGE.items())


def _train(job: Job, folder: Path, show: bool) -> Metrics:
    train = partial(
        verbs.train,
        "summarization",
        *(job.inputs[split] for split in SPLITS),
        output=folder,
        mixer=job.settings["mixer"],
        preset=job.inputs["preset"],
        init=job.inputs["glove"],
        seed=job.settings["seed"],
        follow=False,  # a report has no use for the course
        overwrite=True,
        show_progress=show,
    )
    metrics = train_or_go_on(folder, train)
    if "test" not in metrics:  # stopped while it was scored
        metrics["test"] = verbs.evaluate(folder, job.inputs["test"], show_progress=show)
    return metrics


def measure_steps(presets: dict[str, SummarizationSettings], length: int, steps: int) -> dict[str, Any]:
    """Seconds and peak memory of forward and backward through one article of `length` tokens, by method."""
    tune()
    models, random = {}, torch.Generator().manual_seed(0)
    for mixer, preset in presets.items():
        torch.manual_seed(0)
        fields = {**preset.model, "mixer": mixer, "vocab_size": preset.vocab_size, "eos_token_id": 1}
        fields |= {"max_position_embeddings": length, "decoder_positions": preset.max_summary_length}
        models[mixer] = SummaryLearner(FastformerConfig(**fields)).train()
    shortest = min(preset.max_summary_length for preset in presets.values())
    vocab_size = min(preset.vocab_size for preset in presets.values())
    article, summary = (torch.randint(3, vocab_size, (1, size), generator=random) for size in (length, shortest))
    inputs = {"input_ids": article, "attention_mask": torch.ones_like(article), "labels": summary}

    def step(model: SummaryLearner) -> None:
        model.zero_grad(set_to_none=True)
        model(**inputs).loss.backward()

    calls = {mixer: lambda model=model: step(model) for mixer, model in models.items()}
    found = {
        mixer: {"peak_memory_mb": round(peak_bytes(call) / 1e6, 1)} for mixer, call in calls.items()
    }  # and warm-up
    for mixer, times in in_turns(calls, steps).items():
        found[mixer] |= timing(times)
    return {"length": length, "summary_length": shortest, "step": found}
