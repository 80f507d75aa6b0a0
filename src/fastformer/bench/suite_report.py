"""A suite of datasets in words: methods × sets for each number of training rows, and what that comes to per method.

A result has `sets[NAME][SIZE]["methods"][METHOD]`; SIZE is a number of training rows or `all`.
"""

from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any

from fastformer.bench.comparing import LINEAR, NONE, in_order, notes, number, percent
from fastformer.bench.measuring import machine_line
from fastformer.surroundings.markdown import markdown_table

ALL = "all"
SCORES = ("accuracy", "macro_f")

Entries = dict[str, dict[str, dict[str, Any]]]  # by set, then by method


def called(size: str) -> str:
    """A number of training rows as people write it."""
    return size if size == ALL else f"{int(size):,}"


def sizes_of(sets: dict[str, Any]) -> list[str]:
    """The numbers of training rows that something was measured with, in rising order."""
    found = {size for parts in sets.values() for size, part in parts.items() if part["methods"]}
    return sorted(found, key=lambda size: float("inf") if size == ALL else int(size))


def entries_of(sets: dict[str, Any], size: str) -> Entries:
    """What was measured with this many training rows."""
    return {name: parts[size]["methods"] for name, parts in sets.items() if parts.get(size, {}).get("methods")}


def methods_of(entries: Entries) -> list[str]:
    """The methods that were measured on any set: ours, then the baselines."""
    return in_order({method for methods in entries.values() for method in methods})


def summary(sets: dict[str, Any]) -> dict[str, Any]:
    """Per size and method: means, worst cases and totals over the sets that all methods have."""
    return {size: _summary(entries_of(sets, size)) for size in sizes_of(sets)}


def _summary(entries: Entries) -> dict[str, Any]:
    methods = methods_of(entries)
    common = [name for name, found in entries.items() if all(method in found for method in methods)]
    if not common:
        return {"sets": [], "methods": {}}
    return {
        "sets": common,
        "methods": {method: _one({name: entries[name] for name in common}, method) for method in methods},
    }


def _one(entries: Entries, method: str) -> dict[str, Any]:
    own = [found[method] for found in entries.values()]
    linear = {name: [entry for one, entry in found.items() if one in LINEAR] for name, found in entries.items()}
    everyone = {name: list(found.values()) for name, found in entries.items()}
    return {
        **{score: mean(entry[score] for entry in own) for score in SCORES},
        "to_best_linear": {score: _worst(entries, method, linear, score) for score in SCORES},
        "to_best": {score: _worst(entries, method, everyone, score) for score in SCORES},
        "log_loss": _of_all(mean, [entry["log_loss"] for entry in own]),
        "worst_calibration_error": _of_all(max, [entry["calibration_error"] for entry in own]),
        "train_seconds": sum(entry["train_seconds"] for entry in own),
        "predictions_per_second": median(predictions_per_second(entry) for entry in own),
    }


def _worst(
    entries: Entries, method: str, rivals: dict[str, list[dict[str, Any]]], score: str
) -> dict[str, float | str] | None:
    """How far a method is behind its best rival, on the dataset where that is worst; above zero it is ahead."""
    if not all(rivals.values()):
        return None
    gaps = {name: found[method][score] - max(rival[score] for rival in rivals[name]) for name, found in entries.items()}
    name = min(gaps, key=gaps.__getitem__)
    return {"difference": gaps[name], "set": name}


def _of_all(join: Callable, values: Sequence[float | None]) -> float | None:
    return None if None in values else join(values)


def predictions_per_second(entry: dict[str, Any]) -> float:
    """From the seconds that 1,000 texts took."""
    return 1000 / max(entry["seconds_per_1000"], 1e-9)


def markdown(result: dict[str, Any]) -> str:
    """The result as text."""
    sets, settings = result["sets"], result["settings"]
    parts = [f"{machine_line(result['machine'])}; seed {settings['seed']}\n"]
    if result["missing"]:
        parts.append(notes(result["missing"]))
    for size in sizes_of(sets):
        parts += _section(size, entries_of(sets, size), result["summary"][size], sets)
    parts += ["## Sets\n", _about(sets)]
    return "\n".join(parts)


def _section(size: str, entries: Entries, found: dict[str, Any], sets: dict[str, Any]) -> list[str]:
    parts = [f"## {called(size).capitalize()} training rows\n", _scores(entries)]
    failed = [
        (name, method, why) for name in sets for method, why in sets[name].get(size, {}).get("missing", {}).items()
    ]
    if failed:
        parts.append(notes({f"{method} on {name}": reason for name, method, reason in failed}))
    count, most = len(found["sets"]), len(entries)
    if not count:
        return [*parts, "No set has all methods: there are no means.\n"]
    which = f"all sets ({count})" if count == most else f"the {count} of {most} sets that all methods have"
    parts.append(_summary_table(found["methods"]))
    parts.append(
        f"Over {which}: accuracy, macro-F and log loss are means, ECE is the worst, training the total, predictions "
        "per second the median. Distances are those of accuracy / macro-F, in points, on the set where they are worst: "
        "from the best linear model of n-grams there, and from the best method of all.\n"
    )
    return parts


def _scores(entries: Entries) -> str:
    best = {
        (name, score): max(entry[score] for entry in found.values())
        for name, found in entries.items()
        for score in SCORES
    }

    def cell(name: str, method: str) -> str:
        entry = entries[name].get(method)
        return " / ".join(percent(entry[score], best[name, score]) for score in SCORES) if entry else NONE

    rows = [[method, *(cell(name, method) for name in entries)] for method in methods_of(entries)]
    return markdown_table(["accuracy / macro-F", *entries], rows)


def _summary_table(methods: dict[str, Any]) -> str:
    best = {score: max(one[score] for one in methods.values()) for score in SCORES}
    header = ["", "accuracy", "macro-F", "to best linear", "to best", "log loss", "ECE", "training, s", "predictions/s"]
    rows = [
        [
            method,
            *(percent(one[score], best[score]) for score in SCORES),
            *(_distance(one[to]) for to in ("to_best_linear", "to_best")),
            number(one["log_loss"], 3),
            number(one["worst_calibration_error"], 3),
            number(one["train_seconds"], 1),
            number(one["predictions_per_second"], 0),
        ]
        for method, one in methods.items()
    ]
    return markdown_table(header, rows)


def _distance(found: dict[str, Any]) -> str:
    if None in found.values():
        return NONE
    worst = [found[score] for score in SCORES]
    said = [f"{100 * one['difference']:+.1f} {one['set']}" for one in worst]
    if worst[0]["set"] == worst[1]["set"]:
        said[0] = said[0].split()[0]
    return " / ".join(said)


def _about(sets: dict[str, Any]) -> str:
    rows = []
    for name, parts in sets.items():
        if parts:
            part = max(parts.values(), key=lambda part: part["rows"]["train"])
            rows.append([name, *(f"{count:,}" for count in (part["classes"], *part["rows"].values()))])
    return markdown_table(["", "classes", "training rows, at most", "test rows"], rows)
