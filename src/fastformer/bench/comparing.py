"""What `bench classifiers` and `bench suite` share: which methods there are, measuring each once, and their numbers."""

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.data.tables import Row
from fastformer.errors import UserError
from fastformer.surroundings.files import writing_text
from fastformer.tasks.classification.baselines import BASELINES
from fastformer.tasks.classification.estimator import TextClassifier
from fastformer.tasks.classification.methods import Fitted, Method, measure

NONE = "–"  # in a table: not measured, or not available
LINEAR = frozenset(method.name for method in BASELINES if method.linear)


def ours(name: str = "Fastformer", init: str | None = None, **settings: Any) -> Method:
    """`TextClassifier` with these settings, as a method."""
    return Method(name, partial(_fit_ours, init=init, **settings), init=init)


def _fit_ours(texts: Sequence[str], labels: Sequence[str], **settings: Any) -> Fitted:
    model = TextClassifier(**settings).fit(texts, labels)
    return Fitted(model.classes_.tolist(), model.predict_proba)


def choose_methods(own: Iterable[Method], wanted: str | None) -> tuple[list[Method], dict[str, str]]:
    """Methods to measure, our own and the baselines, and why others cannot be.

    `wanted` has parts of names with commas between them; None is all.
    """
    methods = [*own, *BASELINES]
    if wanted is not None:
        parts = [part.strip().lower() for part in wanted.split(",") if part.strip()]
        chosen = [method for method in methods if any(part in method.name.lower() for part in parts)]
        if not chosen:
            names = "; ".join(method.name for method in methods)
            raise UserError(f"--methods {wanted}: names no method; give parts of these: {names}")
        methods = chosen
    missing = {method.name: reason for method in methods if (reason := method.missing()) is not None}
    return [method for method in methods if method.name not in missing], missing


def in_order(names: Iterable[str]) -> list[str]:
    """Ours first, then the baselines in their order."""
    places = {method.name: place for place, method in enumerate(BASELINES)}
    return sorted(names, key=lambda name: (places.get(name, -1), name))


def drawn(rows: list[Row], count: int | None, seed: int) -> list[Row]:
    """Draw `count` rows by seed; None is all rows, in their order."""
    if count is None:
        return rows
    return [rows[index] for index in np.random.default_rng(seed).permutation(len(rows))[:count]]


def measured_before(path: Path, settings: dict[str, Any], what: str) -> dict[str, Any]:
    """`what` an earlier result has. One with other settings is not overwritten: it may have taken hours.

    The file is called like the command that writes it.
    """
    if not path.exists():
        return {}
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        other = [name for name, value in settings.items() if before["settings"][name] != value]
        found = before[what]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{path}: was not written by `bench {path.stem}`; move it away, or give another --output"
        ) from None
    if other:
        listed = ", ".join(name.replace("_", "-") for name in other)
        raise UserError(f"{path}: was measured with another {listed}; give another --output")
    return found


def still_true(measured: dict[str, dict], given: dict[str, Any]) -> dict[str, dict]:
    """The earlier measurements, by name, that had the same files and the same number of threads."""
    return {name: entry for name, entry in measured.items() if given.items() <= entry.get("given", {}).items()}


def pending(methods: Sequence[Method], found: dict[str, Any], given: dict[str, Any]) -> list[Method]:
    """The methods that `found["methods"]` does not have, or has from another start."""
    return [
        method
        for method in methods
        if found["methods"].get(method.name, {}).get("given") != given | {"init": method.init}
    ]


def compare(
    methods: Sequence[Method],
    train: list[Row],
    test: list[Row],
    found: dict[str, Any],
    given: dict[str, Any],
    tell: Callable[[str], None],
    save: Callable[[], None],
) -> None:
    """Measure each pending method into `found["methods"]`; what fails is in `found["missing"]` with its reason.

    `given` is what a measurement depends on besides the settings; `save` is called after each.
    """
    for method in pending(methods, found, given):
        tell(f"{method.name} …")
        try:
            if method.prepare is not None:
                method.prepare()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The number of unique classes")  # scikit-learn, of many labels
                measured = measure(method.fit, train, test)
        except Exception as error:  # an error of one method, often of another library, must not stop the others
            if method.init is not None and isinstance(error, UserError):
                raise  # the start that the user gave is wrong
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            tell(f"{method.name} failed: {reason}")
            found["methods"].pop(method.name, None)
            found["missing"][method.name] = reason
        else:
            found["methods"][method.name] = measured | {"given": given | {"init": method.init}}
            found["missing"].pop(method.name, None)
        save()


def write_json_aside(path: Path, result: dict[str, Any]) -> None:
    """Write a result; the file is never half there."""
    with writing_text(path) as file:
        file.write(json.dumps(result, indent=1, ensure_ascii=False))


def percent(score: float, best: float | None) -> str:
    """A share in percent, in bold if it is the best to the digits shown."""
    shown = f"{100 * score:.1f}"
    return f"**{shown}**" if best is not None and shown == f"{100 * best:.1f}" else shown


def number(value: float | None, digits: int) -> str:
    """A number with this many digits, or a dash if there is none."""
    return NONE if value is None else f"{value:,.{digits}f}"


def notes(missing: dict[str, str]) -> str:
    """What is missing and why, one line for each."""
    return "".join(f"- {name}: {reason}\n" for name, reason in missing.items())
