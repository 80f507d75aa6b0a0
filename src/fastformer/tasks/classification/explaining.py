"""`fastformer explain` and `TextClassifier.explain`: why a classifier answers as it does on one text.

What is explained is the log-odds of a label, log(p / (1 - p)): for one label per text z_c - log Σ_{j≠c} exp z_j, for
several labels z_c alone, with z the logits. Unlike a logit it does not move when all logits move alike, which changes
no prediction; unlike a probability it has no ceiling; and it weighs the other classes by how near they are, so that
the explanation is about the choice that was made. For a number it is the number.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fastformer.data.spans import place_tokens
from fastformer.data.standard_input import standard_input
from fastformer.engine.inference import TextRunner
from fastformer.errors import UserError
from fastformer.explain import Explanation
from fastformer.explain.attribution import (
    Removals,
    Score,
    compare,
    places_to_remove,
    removal_logits,
    token_effects,
    token_weights,
)
from fastformer.explain.cards import MOST_LABELS
from fastformer.modeling import FastformerForSequenceClassification
from fastformer.runs.folder import Run
from fastformer.runs.record import RUN_FILE
from fastformer.surroundings.files import check_apart, writing_text
from fastformer.tasks.base import Service
from fastformer.tasks.classification.answers import describe, falling
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.declaration import Explaining
from fastformer.tasks.classification.predictor import Classifier
from fastformer.tasks.verbs import load

LONGEST_SERVED = 100_000  # characters: gradients take many times the memory of an answer


def explain(
    run: Run,
    text: str | None,
    output: str | Path,
    *,
    file: str | Path | None = None,
    label: str | None = None,
    baseline: str = "zero",
) -> Explanation:
    """Explain a run's answer on one text and write the page; the text is given itself, as `-` or in a file.

    `label` is the label to explain, by default the most probable one; `baseline` as in `token_effects`.
    """
    if run.task != "classification":
        raise UserError(f"{run.folder}: only classifiers can be explained; this run is for {run.task}")
    if run.is_export:
        raise UserError(
            f"{run.folder}: is an export, which has no gradients; give the run it was made from{_source(run)}"
        )
    check_apart(output, file)
    text = read_text(text, file)
    with writing_text(output) as page:  # a place that cannot be written to fails here, before any work
        loaded: Any = load(run)  # a Classifier
        name = run.folder.resolve().name
        parts = loaded.model, loaded.runner.tokenizer, loaded.space
        explanation = explain_text(*parts, text, label=label, baseline=baseline, name=name)
        page.write(explanation.to_html())
    return explanation


def _source(export: Run) -> str:
    """The run beside an export, where its name tells: `fastformer export` calls an export RUN-onnx or RUN-onnx-int8."""
    name = export.folder.name.removesuffix("-int8").removesuffix("-onnx")
    if name in ("", export.folder.name):
        return ""
    source = export.folder.with_name(name)
    return f", {source}" if (source / RUN_FILE).is_file() else ""


def explain_service(classifier: Classifier) -> Service:
    """`POST /explain` of a server."""

    def explained(request: Explaining, others: bool = False) -> Explanation:
        if len(request.text) > LONGEST_SERVED:
            raise UserError(
                f"the text has {len(request.text):,} characters, and a server explains {LONGEST_SERVED:,}; "
                "`fastformer explain` takes longer ones"
            )
        name = Path(classifier.trained.name).resolve().name
        model: Any = classifier.model  # of a run, not of an export, which has no gradients
        parts = model, classifier.tokenizer, classifier.space
        asked: dict[str, Any] = {"label": request.label, "baseline": request.baseline, "others": others}
        return explain_text(*parts, request.text, **asked, name=name)

    def answer(request: Explaining) -> dict[str, Any]:
        explanation = explained(request)
        return {**explanation.summary(), "pieces": explanation.pieces()}

    return Service(
        name="explain",
        help="Why a text gets its label: the effect of every token on the label's log-odds.\n\n`pieces` has the tokens "
        "as `[start, end, effect]`, places in the text's characters; tokens that share characters are one piece.",
        request=Explaining,
        answer=answer,
        example={"text": classifier.sample()},
        page=lambda request: explained(request, others=True).to_html(),
        panel="shade",
    )


def explain_text(
    model: FastformerForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    space: LabelSpace,
    text: str,
    *,
    label: str | None = None,
    baseline: str = "zero",
    name: str = "",
    others: bool = True,
) -> Explanation:
    """Explain the answer of a loaded classifier, which is called `name`, on one text; other likely labels too."""
    placed = place_tokens(tokenizer, text, tokenizer.model_max_length)
    runner = TextRunner(model, tokenizer, tokenizer.model_max_length)
    [logits] = runner([text], lambda **inputs: model(**inputs).logits)
    if not np.isfinite(logits).all():
        raise UserError("the model's answer to this text is not a number: its training went wrong; train it again")
    target = _target(space, logits, label)
    weights = token_weights(model, placed.ids)
    effects = token_effects(model, placed.ids, log_odds(space, target), baseline)
    in_text = np.flatnonzero(placed.spans[:, 0] < placed.spans[:, 1])
    places = places_to_remove(effects, in_text)
    whole, without = removal_logits(model, placed.ids, places)  # once, for all labels

    def removals(score: Score, effects: np.ndarray) -> Removals:
        return compare(places, effects, (score(whole) - score(without)).numpy())

    answer = describe(space, logits)
    [nothing] = runner([""], lambda **inputs: model(**inputs).logits)
    explanation = Explanation(
        text=text,
        tokens=placed.names,
        spans=placed.spans,
        unknown=placed.ids == (-1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id),
        cut=placed.cut,
        effect=effects,
        baseline=baseline,
        pooling=weights.pooling,
        global_query=weights.global_query,
        global_key=weights.global_key,
        removals=removals(log_odds(space, target), effects),
        label=space.names[target] if space.names else None,
        score=_score(space, target, logits),
        score_of_nothing=_score(space, target, nothing),
        prediction=next(iter(answer.values())),
        probabilities=answer.get("probabilities", {}),
        model=name,
        mixer=model.config.mixer,
    )

    def of_label(other: int) -> Explanation:
        score = log_odds(space, other)
        effects = token_effects(model, placed.ids, score, baseline)
        return replace(
            explanation,
            effect=effects,
            removals=removals(score, effects),
            label=space.names[other],
            score=_score(space, other, logits),
            score_of_nothing=_score(space, other, nothing),
        )

    likely = falling(logits)[: MOST_LABELS if space.names and others else 0].tolist()
    return replace(explanation, others={space.names[other]: of_label(other) for other in likely if other != target})


def _score(space: LabelSpace, target: int, logits: np.ndarray) -> float:
    return float(log_odds(space, target)(torch.from_numpy(logits)[None]))


def log_odds(space: LabelSpace, target: int) -> Score:
    """The score of the class number `target` (or of the number that a regression predicts)."""

    def score(logits: Tensor) -> Tensor:
        if space.kind != "single":
            return logits[:, target]
        others = torch.cat([logits[:, :target], logits[:, target + 1 :]], dim=1)
        return logits[:, target] - others.logsumexp(dim=1)

    return score


def _target(space: LabelSpace, logits: np.ndarray, label: str | None) -> int:
    """The class to explain: the one that is asked for, or the most probable."""
    if label is None:
        return int(logits.argmax())
    if label not in space.names:
        known = ", ".join(space.names[:10]) + (", …" if len(space.names) > 10 else "")
        raise UserError(f"the model has no label {label!r}; choose from {known or 'none: it predicts a number'}")
    return space.names.index(label)


def read_text(text: str | None, file: str | Path | None = None) -> str:
    """The text of a command: given itself, as `-` (standard input), or in a file."""
    if (text is None) == (file is None):
        raise UserError("give either the text (- reads standard input) or --file PATH")
    if text is not None and text != "-":
        return text
    if file is not None and not Path(file).is_file():
        raise UserError(f"{file}: no such file; check the path")
    content = standard_input().read() if file is None else Path(file).read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file or 'standard input'}: not UTF-8 at byte {error.start:,}; save it as UTF-8") from None
