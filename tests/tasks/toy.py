"""A sixth task, written as a user of the package would: how loud a text is, a number learned from its words."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.data.batches import PadCollator, Subset
from fastformer.data.hold_out import hold_out
from fastformer.data.objects import read_objects
from fastformer.engine.fit import Trained, Workspace, check_mixers
from fastformer.engine.inference import TextRunner
from fastformer.engine.settings import TaskSettings, option
from fastformer.modeling import FastformerConfig, FastformerForSequenceClassification
from fastformer.tasks.base import Card, Declaration, Parts, Predictor, Task
from fastformer.tasks.texts import encoder_config


@dataclass(frozen=True, kw_only=True)
class LoudnessSettings(TaskSettings):
    mixer: str = option("fastformer", "The method.", place="record")
    max_length: int = option(32, "Cut texts after this many tokens.", least=1)


def quietness(true, found) -> dict[str, float]:
    return {"quietness": -float(np.square(np.reshape(true, -1) - np.reshape(found, -1)).mean())}


class Loudness(Task):
    def check(self, settings):
        check_mixers(settings.mixer)
        return settings

    def read(self, source, split, settings, *, labelled=True, format=None) -> list[dict[str, Any]]:
        return [record for _, record in read_objects(source, ["text", "loud"] if labelled else ["text"])]

    def encode(self, data: Mapping[str, list], settings: LoudnessSettings, workspace: Workspace) -> Parts:
        rows = list(workspace.watched(data["train"]))
        texts = [row["text"] for row in rows]
        options = {"max_length": settings.max_length, "vocab_size": 500, "min_frequency": 1}
        tokenizer = workspace.tokenizer("word", texts, **options)
        encoded = workspace.encode("train", texts, tokenizer, settings.max_length)
        encoded.labels = np.array([row["loud"] for row in rows], dtype=np.float32)
        training, validating = (Subset(encoded, some) for some in hold_out(len(rows), settings.training.seed, most=100))
        return Parts(
            settings=settings.with_options(epochs=settings.training.epochs or 2, batch_size=16, learning_rate=1e-2),
            tokenizer=tokenizer,
            train=training,
            validation=validating,
            collate=PadCollator(tokenizer.pad_token_id),
            compute_metrics=lambda result: quietness(result.label_ids, result.predictions),
            score="quietness",
            scores=("quietness",),
            fingerprint={"train": training.arrays, "validation": validating.arrays},
            rows={"train": len(training), "validation": len(validating)},
        )

    def build(self, parts, workspace):
        small = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "num_labels": 1}
        config = FastformerConfig(**encoder_config(parts.settings, parts.tokenizer, problem_type="regression", **small))
        return FastformerForSequenceClassification(config)

    def model_class(self, record):
        return FastformerForSequenceClassification

    def predictor(self, trained: Trained) -> "Meter":
        return Meter(trained)

    def card(self, trained, name) -> Card:
        return Card(what="How loud a text is.", usage=f"`fastformer predict {name} texts.jsonl`")


class Meter(Predictor):
    def predict(self, examples: Iterable[dict[str, Any]], options=None) -> Iterator[dict[str, Any]]:
        runner = TextRunner(self.model, self.tokenizer, self.tokenizer.model_max_length)
        texts = (example["text"] for example in examples)
        yield from ({"loud": float(row[0])} for row in runner(texts, lambda **inputs: self.model(**inputs).logits))

    def evaluate(self, examples: Iterable[dict[str, Any]], options=None) -> dict[str, Any]:
        true = [example["loud"] for example in examples]
        found = [answer["loud"] for answer in self.predict(examples)]
        return {"rows": len(true), **quietness(true, found)}


LOUDNESS = Declaration(
    name="loudness",
    help="Tell how loud a text is.",
    settings=LoudnessSettings,
    task="tests.tasks.toy:Loudness",
    presets_file=Path("nowhere"),
    data_help="JSON lines with text and loud.",
    held_out="a tenth",
)
