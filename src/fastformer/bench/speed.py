"""The paper's efficiency experiment: time and memory of every method as texts grow longer, at equal tokens per batch.

Time is the median of steps measured in turns with the other methods at the same length (`measuring.py`), memory the
peak of a step in a fresh process (`memory.py`); `steps.py` says what a step is. A method stops at the first length that
it is predicted, or seen, to exceed a budget at. Files are written after every length, so that nothing is lost.
"""

import json
import math
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fastformer.bench.measuring import (
    describe_machine,
    in_turns,
    machine_line,
    measuring,
    numbers,
    result_folder,
    timing,
)
from fastformer.bench.memory import MemoryProbe
from fastformer.bench.plots import plot_speed
from fastformer.bench.steps import MODES, PRESET, batch_size, build_model, build_step, configuration
from fastformer.errors import Interrupted, UserError
from fastformer.mixers import available_mixers, build_mixer
from fastformer.surroundings.files import writing_aside, writing_text
from fastformer.surroundings.machine import physical_memory
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import progress_bar

LENGTHS = tuple(2**power for power in range(7, 17))  # 128 … 65,536
_FILE = "speed.json"
Result = dict[str, Any]


def speed(
    output: str | Path,
    *,
    lengths: str | Sequence[int] = LENGTHS,
    mixers: str | Sequence[str] | None = None,
    tokens: int = 65_536,
    repetitions: int = 5,
    time_budget: float = 30.0,
    memory_budget: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    resume: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Measure every method at every length, in inference and in training.

    Args:
        output: folder for speed.json, speed.md, speed-training.png and speed-inference.png.
        lengths: tokens per text, as a list or `128,256`.
        mixers: methods, as a list or `fastformer,linear`; default all that are registered.
        tokens: tokens per batch: texts in it times their length (at least one text).
        repetitions: measured steps, of which the median counts.
        time_budget: seconds that one step may take.
        memory_budget: gigabytes that one step may take; default half of the machine's memory.
        seed: of weights and tokens.
        threads: torch threads; default as torch chooses.
        resume: continue what an earlier call left in `output`; measured lengths are not measured again.
        show_progress: show a progress bar.

    Returns what speed.json holds. Ctrl-C raises `Interrupted`; files hold all complete lengths.
    """
    lengths, mixers = numbers(lengths, "--lengths"), _mixers(mixers)
    if memory_budget is None:  # two processes, this one and the probe, may each hold as much
        memory_budget = round(physical_memory() / 2e9, 1)
    settings = {
        "lengths": lengths,
        "mixers": mixers,
        "tokens": tokens,
        "repetitions": repetitions,
        "time_budget": time_budget,
        "memory_budget": memory_budget,
        "seed": seed,
    }
    output = result_folder(output)
    with measuring(threads) as used_threads:
        report: dict[str, Any] = {
            "command": _command(settings, used_threads),
            "machine": describe_machine(used_threads),
            "preset": PRESET,
            "settings": settings,
            "results": [],
        }
        report["results"] = _earlier_results(output / _FILE, report, resume)
        steps = len(lengths) * len(MODES) * len(mixers) * (repetitions + 1)
        try:
            with MemoryProbe() as probe, progress_bar("Measuring", steps, show_progress) as advance:
                for length in lengths:
                    for mode in MODES:
                        report["results"] += _measure_length(length, mode, report, probe, advance)
                    _write(output, report)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped; what is measured is in {output}, and the same command with --resume continues"
            ) from None
    return report


def _mixers(given: str | Sequence[str] | None) -> list[str]:
    known = available_mixers()
    if given is None:
        return known
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
    for name in names:
        if name not in known:
            raise UserError(f"--mixers: unknown mixer {name!r}; choose from {', '.join(known)}")
    return [name for name in known if name in names]


def _command(settings: dict[str, Any], threads: int) -> str:
    """The command that repeats this measurement."""
    words = ["fastformer", "bench", "speed"]
    for name, value in {**settings, "threads": threads}.items():
        words += [f"--{name.replace('_', '-')}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def _earlier_results(path: Path, report: dict[str, Any], resume: bool) -> list[Result]:
    """What an earlier run measured. What it skipped is decided anew: the budgets may be others now."""
    if not path.exists():
        return []
    if not resume:
        raise UserError(f"{path}: holds results already; --resume continues them, or give another --output")
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        results, machine, settings = earlier["results"], earlier["machine"], earlier["settings"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: was not written by `fastformer bench speed`; give another --output") from None
    ours = report["settings"]
    differing = [name for name in ("tokens", "repetitions", "seed") if settings.get(name) != ours[name]]
    differing += [name for name, value in report["machine"].items() if machine.get(name) != value]
    if differing:
        raise UserError(
            f"{path}: was measured with another {', '.join(differing)}, and cannot be continued with this one; "
            "use the same, or give another --output"
        )
    return [
        result
        for result in results
        if "skipped" not in result or result["length"] not in ours["lengths"] or result["mixer"] not in ours["mixers"]
    ]


def _measure_length(
    length: int, mode: str, report: dict[str, Any], probe: MemoryProbe, advance: Callable[..., None]
) -> list[Result]:
    """Results of all mixers at one length that are not in `report` yet."""
    settings, threads = report["settings"], report["machine"]["threads"]
    batch, seed = batch_size(length, settings["tokens"]), settings["seed"]
    results, steps = {}, {}
    for mixer in settings["mixers"]:
        before = [one for one in report["results"] if (one["mixer"], one["mode"]) == (mixer, mode)]
        if any(one["length"] == length and "skipped" not in one for one in before):
            advance(settings["repetitions"] + 1, note="")
            continue
        result = results[mixer] = {"length": length, "batch": batch, "mode": mode, "mixer": mixer}
        advance(note=f"{mixer}, {mode}, {length:,} tokens: memory")
        reason = _foreseen(before, length, batch * length, settings)
        if reason is None:
            module = type(build_mixer(mixer, configuration(mixer, length))).__module__
            job = {"mixer": mixer, "module": module, "length": length, "batch": batch, "mode": mode, "seed": seed}
            probed = probe.measure(**job, threads=threads)
            result["peak_memory_mb"] = probed.get("peak_memory_mb")
            reason = _exceeded(probed, settings)
        if reason is None:
            steps[mixer] = build_step(build_model(mixer, length, seed), mode, batch, length, seed)
            steps[mixer]()  # warm-up
        else:
            result["skipped"] = f"skipped: {reason}"
            advance(settings["repetitions"])

    for mixer, times in in_turns(steps, settings["repetitions"], advance).items():
        results[mixer] |= timing(times)
        results[mixer]["microseconds_per_token"] = results[mixer]["seconds"] / (batch * length) * 1e6
    return list(results.values())


def _foreseen(before: list[Result], length: int, tokens: int, settings: dict[str, Any]) -> str | None:
    """Why a length is not even tried: a shorter one exceeded a budget, or this one is predicted to."""
    shorter = sorted((one for one in before if one["length"] < length), key=lambda one: one["length"])
    stopped = [one for one in shorter if "skipped" in one]
    if stopped:
        return f"already {stopped[0]['length']:,} tokens were too much"
    seconds = _predict(shorter, "seconds", length, tokens)
    if seconds > settings["time_budget"]:
        return f"would take longer than the time budget ({_about(seconds)} s of {settings['time_budget']:g} s)"
    gigabytes = _predict(shorter, "peak_memory_mb", length, tokens) / 1000
    if gigabytes > settings["memory_budget"]:
        return f"would need more than the memory budget ({_about(gigabytes)} GB of {settings['memory_budget']:g} GB)"
    return None


def _predict(shorter: list[Result], field: str, length: int, tokens: int) -> float:
    """A cost at `length` from those at the two lengths before, as a power law of the cost of a token.

    The exponent is kept between 0 (linear methods) and 1 (quadratic ones). 0 when nothing is known.
    """
    known = [(one["length"], one[field] / (one["length"] * one["batch"])) for one in shorter if one.get(field)]
    if not known:
        return 0.0
    (before, cost_before), (last, cost) = ([known[0], *known])[-2:]
    exponent = math.log(cost / cost_before) / math.log(last / before) if last > before else 0.0
    return cost * (length / last) ** min(1.0, max(0.0, exponent)) * tokens


def _exceeded(probed: dict[str, Any], settings: dict[str, Any]) -> str | None:
    """Why one real step rules out more of them. It ran in cold memory, so up to twice the time budget is forgiven."""
    if "error" in probed:
        return probed["error"]
    seconds, gigabytes = probed.get("seconds", 0), (probed.get("peak_memory_mb") or 0) / 1000
    if gigabytes > settings["memory_budget"]:
        return f"needs more than the memory budget ({_about(gigabytes)} GB of {settings['memory_budget']:g} GB)"
    if seconds > 2 * settings["time_budget"]:
        return f"takes longer than the time budget ({_about(seconds)} s of {settings['time_budget']:g} s)"
    return None


def _about(value: float) -> str:
    return f"about {value:.3g}" if value < 100 else f"about {value:,.0f}"


def _write(output: Path, report: dict[str, Any]) -> None:
    order = {name: place for place, name in enumerate([*MODES, *available_mixers()])}
    report["results"].sort(key=lambda one: (one["length"], order[one["mode"]], order.get(one["mixer"], len(order))))
    with writing_text(output / _FILE) as file:
        json.dump(report, file, indent=2, ensure_ascii=False)
    with writing_text(output / "speed.md") as file:
        file.write(markdown(report))
    for mode in MODES:
        with writing_aside(output / f"speed-{mode}.png") as aside:
            plot_speed(report, mode, aside)


def markdown(report: dict[str, Any]) -> str:
    """The report as Markdown: time and memory tables of both modes, and what was skipped and why."""
    settings = report["settings"]
    parts = [
        "# Speed and memory by length\n",
        f"{machine_line(report['machine'])}. The `{report['preset']}` classifier with random tokens and a fixed word "
        f"embedding; batches of {settings['tokens']:,} tokens (at least one text); medians of "
        f"{settings['repetitions']} steps measured in turns. Training is forward and backward, without an "
        "optimizer step. Memory is the peak of one step beyond the model and its input.\n",
        f"```bash\n{report['command']}\n```\n",
    ]
    for mode in MODES:
        results = [one for one in report["results"] if one["mode"] == mode]
        base = {one["length"]: one for one in results if one["mixer"] == "fastformer"}
        parts.append(f"## {mode.capitalize()}: microseconds per token (and times that of fastformer)\n")
        parts.append(_grid(results, partial(_time_cell, base)))
        parts.append(f"## {mode.capitalize()}: peak memory in MB\n")
        parts.append(_grid(results, lambda one: _number(one.get("peak_memory_mb"))))
    skipped = [
        f"- {one['mixer']}, {one['mode']}, {one['length']:,} tokens: {one['skipped']}"
        for one in report["results"]
        if "skipped" in one and "already" not in one["skipped"]
    ]
    if skipped:
        parts.append("Skipped (–), and so were longer texts:\n\n" + "\n".join(skipped) + "\n")
    return "\n".join(parts)


def _grid(results: list[Result], cell: Callable[[Result], str]) -> str:
    lengths = sorted({one["length"] for one in results})
    cells: dict[str, dict[int, str]] = {}
    for one in results:
        cells.setdefault(one["mixer"], {})[one["length"]] = cell(one)
    rows = [[mixer, *(row.get(length, "") for length in lengths)] for mixer, row in cells.items()]
    return markdown_table(["tokens", *(f"{length:,}" for length in lengths)], rows)


def _time_cell(by_length: dict[int, Result], one: Result) -> str:
    if "seconds" not in one:
        return "–"
    base = by_length.get(one["length"], {})
    ratio = f" ({one['seconds'] / base['seconds']:.2f}×)" if "seconds" in base else ""
    return _number(one["microseconds_per_token"]) + ratio


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"
