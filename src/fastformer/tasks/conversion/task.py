"""Conversion prediction: from events to a trained model with calibrated probabilities."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from fastformer.data.batches import token_budget_batches
from fastformer.data.by_time import CHOSEN, hold_out_latest
from fastformer.data.opening import Format, reads_once
from fastformer.data.ragged import Ragged
from fastformer.engine.fit import Trained, Workspace, check_mixers, explained_configuration
from fastformer.engine.inference import BATCH_TOKENS
from fastformer.engine.warm_start import check_word_vectors, warm_start
from fastformer.errors import UserError
from fastformer.modeling import FastformerConversionConfig, FastformerForConversion
from fastformer.surroundings.progress import say
from fastformer.tasks.base import Card, Parts, Task
from fastformer.tasks.classification.calibration import cross_calibrated, temperature
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.conversion.data import Events, EventsWriter, Part, collect
from fastformer.tasks.conversion.declaration import ConversionSettings
from fastformer.tasks.conversion.events import RESERVED, Columns, Event, EventSource, Source
from fastformer.tasks.conversion.features import SideFeatures
from fastformer.tasks.conversion.metrics import best_metric, validation_scores
from fastformer.tasks.conversion.scoring import EventPredictor
from fastformer.tasks.texts import encoder_config

SCORES = ("auc", "log_loss", "calibration_error")
_CONVERTED = LabelSpace("multi", ("converted",))  # one sigmoid, for calibration


@dataclass(kw_only=True)
class ConversionParts(Parts[ConversionSettings]):
    """The parts, with the rows that are validated on, and how side features become numbers."""

    held_out: Part
    features: SideFeatures


class Conversion(Task[ConversionSettings, ConversionParts]):
    """Who converts on which ad."""

    def check(self, settings: ConversionSettings) -> ConversionSettings:
        """Refuse what cannot be a side feature or a start; by default the mixer of texts also reads behaviours."""
        settings = replace(
            settings,
            numeric=_names(settings.numeric),
            categorical=_names(settings.categorical),
            user_mixer=settings.user_mixer or settings.mixer,
        )
        check_mixers(settings.mixer, settings.user_mixer)
        check_word_vectors(settings.init)
        names = [*settings.numeric, *settings.categorical]
        for name in names:
            if name in RESERVED:
                raise UserError(f"{name!r} is not a side feature: the model reads it anyway; name another column")
            if names.count(name) > 1:
                raise UserError(
                    f"the side feature {name!r} is named twice; name it once, as --numeric or --categorical"
                )
        return settings

    def read(
        self,
        source: Source,
        split: str,
        settings: ConversionSettings,
        *,
        labelled: bool = True,
        format: Format | None = None,
    ) -> EventSource:
        """The events of a .jsonl or .parquet file, of `builtin`, or of dictionaries."""
        if source == "-":
            if format in ("csv", "tsv"):
                raise UserError("events on standard input are JSON, one object per line; drop --format")
        elif not isinstance(source, str) and not source:
            raise UserError("no rows; give at least one")
        events = EventSource(source, Columns(settings.numeric, settings.categorical), labelled, split, settings.strict)
        if not reads_once(source):
            next(iter(events))
        return events

    def same(self, examples: Iterable[Event]) -> Iterable[str]:
        """Events are the same if all of what is known is."""
        return map(repr, examples)

    def encode(
        self, data: Mapping[str, Iterable[Event]], settings: ConversionSettings, workspace: Workspace
    ) -> ConversionParts:
        """All events in one store, each distinct text once, and the rows of each part."""
        columns = Columns(settings.numeric, settings.categorical)
        events, rows = _gather(data, columns, settings.max_behaviors, workspace)
        held_out_by = None
        if "validation" not in rows:
            rows["train"], rows["validation"], held_out_by = hold_out_latest(events.times, settings.training.seed)
        training, held_out = Part(events, rows["train"]), Part(events, rows["validation"])
        if training.labels.min() == training.labels.max():
            raise UserError(f"all training rows have the label {training.labels[0]}; some must have 0 and some 1")
        features = events.learn_features(columns, rows["train"])
        tokenizer = workspace.tokenizer(
            settings.tokenizer,
            training.texts(most=settings.min_frequency),
            max_length=settings.max_length,
            vocab_size=settings.vocab_size,
            min_frequency=settings.min_frequency,
        )
        texts = len(events.texts)
        encoded = workspace.encode("texts", events.texts, tokenizer, settings.max_length, total=texts)
        events.tokens, events.texts = Ragged(encoded.tokens, encoded.offsets), []  # from here on numbers stand for them
        settings = settings.for_size(len(training))
        most = settings.training.batch_size
        arrays = (*events.behaviors, *events.tokens, events.ads, events.labels, *events.inputs.values())
        return ConversionParts(
            settings=settings,
            tokenizer=tokenizer,
            train=training,
            validation=lambda model: validation_scores(
                logits_of(model, held_out, tokenizer.pad_token_id, most), held_out.labels
            ),
            held_out=held_out,
            features=features,
            collate=lambda rows: events.batch(rows, tokenizer.pad_token_id),
            score=best_metric(held_out.labels),
            scores=SCORES,
            fingerprint={"events": arrays, **{name: (part,) for name, part in rows.items()}},
            rows={name: len(part) for name, part in rows.items()},
            about={"held_out_by": held_out_by, "texts": texts},
            record={"features": asdict(features)},
        )

    def build(self, parts: ConversionParts, workspace: Workspace) -> FastformerForConversion:
        """A model whose words start from --init, if it is given."""
        settings, tokenizer = parts.settings, parts.tokenizer
        model = build_model(settings, tokenizer, parts.features)
        if settings.init is not None and not workspace.resume:  # a checkpoint has all weights
            counts = parts.train.token_counts(model.config.vocab_size) if settings.adapt_init else None
            seed = settings.training.seed
            warm_start(model, tokenizer, settings.init, counts=counts, seed=seed, show_progress=workspace.show)
        return model

    @torch.no_grad()
    def finish(
        self,
        model: FastformerForConversion,
        parts: ConversionParts,
        history: list[dict[str, float]],
        workspace: Workspace,
    ) -> tuple[FastformerForConversion, dict[str, float]]:
        """The model over the temperature that fits the held-out rows best.

        Its scores are those of rows whose temperature other rows gave, so that they do not flatter it.
        """
        held_out, most = parts.held_out, parts.settings.training.batch_size
        logits = logits_of(model.eval(), held_out, parts.tokenizer.pad_token_id, most)[:, None]
        labels = held_out.labels[:, None]
        heat = temperature(_CONVERTED, logits, labels)
        model.head[-1].weight /= heat
        model.head[-1].bias /= heat
        found = validation_scores(cross_calibrated(_CONVERTED, logits, labels)[:, 0], held_out.labels)
        return model, {name: found[name] for name in SCORES if name in found}

    def model_class(self, record: Mapping[str, Any]) -> type[FastformerForConversion]:
        """What a run's weights are weights of."""
        return FastformerForConversion

    def predictor(self, trained: Trained[ConversionSettings]) -> EventPredictor:
        """A model that judges events."""
        return EventPredictor(trained)

    def card(self, trained: Trained[ConversionSettings], name: str) -> Card:
        """What the run's README says of this task."""
        settings, features = trained.settings, trained.record["features"]
        side = [f"`{column}` (number)" for column in features["numeric"]]
        side += [f"`{column}` ({len(values):,} values)" for column, values in features["categorical"].items()]
        chosen = CHOSEN[trained.metrics["held_out_by"]]
        return Card(
            what="The probability that a user converts on an ad, from what the user did before (texts, the latest "
            f"last) and the ad's text. Side features: {', '.join(side) or 'none'}.",
            tags=[trained.record["mixer"], "conversion-prediction"],
            notes=[
                f"The latest {settings.max_behaviors:,} behaviours are read, and texts are cut at "
                f"{settings.max_length:,} tokens.",
                f"The validation rows, {chosen}, chose the epoch, and probabilities are calibrated on them by one "
                "temperature.",
            ],
            usage=f"""```bash
fastformer predict {name} events.jsonl
```

```python
from fastformer.tasks.conversion import BehaviorStore

store = BehaviorStore.open("{name}")
store.add("a user", "what the user just did")
print(store.score("a user", "the text of an ad"))
```""",
        )


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    """Columns, from a list or, as on the command line, with commas between them."""
    return tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else tuple(given)


def _gather(
    data: Mapping[str, Iterable[Event]], columns: Columns, max_behaviors: int, workspace: Workspace
) -> tuple[Events, dict[str, np.ndarray]]:
    """All events in one store, and the rows of each part that was given."""
    with EventsWriter(workspace.folder, columns, max_behaviors) as writer:
        rows = {
            name: collect(workspace.watched(data[name]), writer) for name in ("train", "validation") if name in data
        }
        events = writer.finish()
    if writer.cut:
        say(f"{writer.cut:,} of {len(writer):,} rows: only the latest {max_behaviors:,} behaviours are read.")
    return events, rows


def build_model(
    settings: ConversionSettings, tokenizer: PreTrainedTokenizerBase, features: SideFeatures
) -> FastformerForConversion:
    """The model that the settings describe, with random weights."""
    with explained_configuration():
        config = FastformerConversionConfig(
            **encoder_config(
                settings,
                tokenizer,
                user_mixer=settings.user_mixer,
                max_behaviors=settings.max_behaviors,
                num_numeric=len(features.numeric),
                category_sizes=[1 + len(values) for values in features.categorical.values()],
            )
        )
        return FastformerForConversion(config)


@torch.inference_mode()
def logits_of(model: FastformerForConversion, part: Part, pad_token_id: int, most: int) -> np.ndarray:
    """Logits of all rows, at most `most` at once, because a batch encodes all of its texts, however many."""
    logits = np.zeros(len(part), dtype=np.float32)
    for similar in token_budget_batches(part.lengths, BATCH_TOKENS):
        for batch in np.array_split(similar, -(-len(similar) // most)):
            inputs = part.events.batch(part.rows[batch], pad_token_id)
            logits[batch] = model(**{name: one.to(model.device) for name, one in inputs.items()}).logits.cpu().numpy()
    return logits
