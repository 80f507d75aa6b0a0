"""Text classification: an encoder and, beside it, an n-gram channel; one label, several labels or a number per text."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedConfig, PreTrainedModel, set_seed

from fastformer.data.opening import Format
from fastformer.data.tables import Row, Source
from fastformer.engine.fit import Trained, Workspace, check_mixers, explained_configuration
from fastformer.engine.settings import settled
from fastformer.engine.warm_start import kind_of, tokenizer_of, warm_start
from fastformer.errors import UserError
from fastformer.modeling import FastformerConfig, FastformerForSequenceClassification
from fastformer.runs.saving import round_tables
from fastformer.tasks.base import Card, Shown, Task
from fastformer.tasks.classification.calibration import cross_calibrated, divide_logits, temperature
from fastformer.tasks.classification.card import classifier_card
from fastformer.tasks.classification.channel import fit_channel, outputs_of
from fastformer.tasks.classification.data import Rows, Table
from fastformer.tasks.classification.declaration import ClassificationSettings
from fastformer.tasks.classification.encoding import FEW_TEXTS, ClassificationParts, crops, encode
from fastformer.tasks.classification.metrics import scores
from fastformer.tasks.classification.predictor import Classifier
from fastformer.tasks.classification.report import DETAILS, SCORES
from fastformer.tasks.classification.stacking import class_weights
from fastformer.tasks.classification.thresholds import cross_answers, label_thresholds
from fastformer.tasks.texts import encoder_config, say_other_columns

FEW_CLASSES = 20  # are printed one by one


class Classification(Task[ClassificationSettings, ClassificationParts]):
    """Learning labels of texts."""

    def settings(self, preset: str | ClassificationSettings = "default", **given: Any) -> ClassificationSettings:
        """The settings of a preset; a run to start from brings its tokenizer, unless one is given.

        `init="none"` starts from nothing at all, not even from pre-trained word vectors.
        """
        if given.get("init") == "none":
            given |= {"init": None, "meanings": False}
        if given.get("tokenizer") is None:
            given["tokenizer"] = tokenizer_of(given.get("init"))
        return super().settings(preset, **given)

    def check(self, settings: ClassificationSettings) -> ClassificationSettings:
        """Refuse what nobody knows, before anything is read."""
        check_mixers(settings.mixer)
        if settings.class_weight not in (None, "balanced"):
            raise UserError(f"class weight {settings.class_weight!r}: there is only 'balanced'; give that, or none")
        if settings.init is not None:
            kind_of(settings.init)
        return settings

    def read(
        self,
        source: Source,
        split: str,
        settings: ClassificationSettings,
        *,
        labelled: bool = True,
        format: Format | None = None,
    ) -> Table:
        """The rows of a file or of a list of dictionaries. The training data decides what kind of labels they are."""
        source = source if isinstance(source, str | Path) else list(source)
        reading = settings.reading("train" if split == "unlabelled" else split, format)
        if not labelled or split == "unlabelled":
            table = Table(source, reading, "none", every_row=not labelled).check()
        else:
            table = Table(source, reading, "number" if settings.regression else None).check()
        say_other_columns(settings, table, self.show)
        return table

    def same(self, examples: Iterable[Row]) -> Iterable[str]:
        """Rows are the same if their texts are."""
        return (row.text for row in (examples.of_kind("none") if isinstance(examples, Table) else examples))

    def encode(
        self, data: Mapping[str, Table | Rows], settings: ClassificationSettings, workspace: Workspace
    ) -> ClassificationParts:
        """Token ids and labels of all texts."""
        return encode(data, settings, workspace)

    # ---- build and finish ------------------------------------------------------------------------------------------

    def build(self, parts: ClassificationParts, workspace: Workspace) -> FastformerForSequenceClassification:
        """A classifier with random weights, or those to start from."""
        settings, space = parts.settings, parts.space
        labels = {} if space.kind == "number" else {"id2label": dict(enumerate(space.names))}
        own = {"num_labels": space.size, "problem_type": space.problem_type, **labels}
        with explained_configuration():
            config = FastformerConfig(**encoder_config(settings, parts.tokenizer, **own))
            model = FastformerForSequenceClassification(config)
        if settings.class_weight == "balanced":
            weights = class_weights(parts.training.labels, space.size, 1.0)
            model.class_weights = costs = torch.from_numpy(weights.astype(np.float32))
            parts.counted = lambda batch: costs[batch["labels"]].sum()
        if parts.known is not None:  # words that no text has: silence is better than noise
            with torch.no_grad():
                unseen = parts.training.texts.counts(config.vocab_size) == 0
                model.get_input_embeddings().weight[torch.from_numpy(unseen)] = 0
        if settings.init is not None:
            counts = parts.training.texts.counts(config.vocab_size) if settings.adapt_init else None
            seed = settings.training.seed
            warm_start(model, parts.tokenizer, settings.init, counts=counts, seed=seed, show_progress=workspace.show)
        return model

    def finish(
        self,
        model: FastformerForSequenceClassification,
        parts: ClassificationParts,
        history: list[dict[str, float]],
        workspace: Workspace,
    ) -> tuple[FastformerForSequenceClassification, dict[str, float]]:
        """Put the n-gram channel beside the encoder, or calibrate it alone; choose thresholds; score what comes out.

        What is fitted on the held-out texts is scored on them crosswise: each half with what the other gave.
        """
        space = parts.space
        parts.scale.fold_into(model)
        round_tables(model)
        labels = parts.scale.undo(parts.validating.labels)
        logits = outputs_of(
            parts.validating, parts.tokenizer.pad_token_id, lambda **inputs: model.eval()(**inputs).logits
        )
        if parts.stacking:
            model, logits = self._stack(model, logits, parts, history, workspace)
        elif space.kind != "number":
            weights = parts.validating.weights
            divide_logits(model, temperature(space, logits, labels, weights))
            logits = cross_calibrated(space, logits, labels, weights)
        answers = None
        if space.kind == "multi":
            model.config.label_thresholds = label_thresholds(logits, labels).round(4).tolist()
            answers = cross_answers(logits, labels)
        model.class_weights = None
        return model, scores(space, logits, labels, answers)

    def _stack(
        self,
        model: FastformerForSequenceClassification,
        logits: np.ndarray,
        parts: ClassificationParts,
        history: list[dict[str, float]],
        workspace: Workspace,
    ) -> tuple[FastformerForSequenceClassification, np.ndarray]:
        """A model with an n-gram channel beside its encoder, and the logits of the held-out texts by both.

        If there are few texts and the encoder is used, it is trained once more, on the held-out texts too.
        """
        stacked = fit_channel(
            tokenizer=parts.tokenizer,
            vocab_size=model.config.vocab_size,
            space=parts.space,
            training=parts.training,
            held_out=parts.validating,
            everything=parts.everything,
            unlabelled=parts.unlabelled,
            encoder=logits,
            seed=parts.settings.training.seed,
            show_progress=workspace.show,
            balanced=parts.settings.class_weight == "balanced",
            known=parts.known,
        )
        parts.about["ngrams"] = stacked.told
        if parts.everything is not None and len(parts.everything) < FEW_TEXTS and stacked.blend.encoder:
            model = self._train_again(parts, history, workspace)
        stacked.add_to(model)
        round_tables(model)
        return model, stacked.logits

    def _train_again(
        self, parts: ClassificationParts, history: list[dict[str, float]], workspace: Workspace
    ) -> FastformerForSequenceClassification:
        """Train anew on all texts, the held-out ones too, for as long as was best without them."""
        epochs = 1 + max(range(len(history)), key=lambda epoch: history[epoch][parts.score])
        set_seed(parts.settings.training.seed)
        model = self.build(parts, workspace)
        workspace.train(
            model,
            parts,
            part="again",
            train=crops(settled(parts.everything), parts.settings, epochs * parts.settings.passes),  # one long epoch:
            settings=replace(parts.settings.training, epochs=1),  # there is nothing to choose by
            validation=lambda model: {"done": 1.0},
            best_metric="done",
            shown=None,
        )
        round_tables(model)
        return model

    # ---- a trained model -------------------------------------------------------------------------------------------

    def record_of(self, config: PreTrainedConfig) -> dict[str, Any]:
        """What kind of labels it learned, as transformers has it, or else by their number."""
        kinds = {"multi_label_classification": "multi", "regression": "number", "single_label_classification": "single"}
        return {"label_kind": kinds.get(config.problem_type, "number" if config.num_labels == 1 else "single")}

    def model_class(self, record: Mapping[str, Any]) -> type[PreTrainedModel]:
        """What a run's weights are weights of."""
        return FastformerForSequenceClassification

    def predictor(self, trained: Trained[ClassificationSettings]) -> Classifier:
        """A model that answers."""
        return Classifier(trained)

    def card(self, trained: Trained[ClassificationSettings], name: str) -> Card:
        """What the run's README says of this task."""
        return classifier_card(trained, name)

    def evaluated_tables(self, result: Mapping[str, Any], title: str) -> Iterator[Shown]:
        """The scores, and those of each class if they are few."""
        numbers = {name: value for name, value in result.items() if name not in DETAILS}
        yield Shown(title, {"": numbers}, tuple(numbers))
        if 0 < len(result.get("classes", ())) <= FEW_CLASSES:
            yield Shown("By class", result["classes"], (*SCORES, "support"))
