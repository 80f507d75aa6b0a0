"""Many files to a folder of answers: `predict`, `embed` and `evaluate` over everything that a source has.

One process finds the files, knows from the manifest which are done, and writes the manifest; an engine has the others
answered. Nothing is kept in memory but the list of files.
"""

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastformer.errors import Interrupted, UserError
from fastformer.runs.folder import Run, open_run
from fastformer.runs.saving import locked
from fastformer.scale.manifest import Manifest
from fastformer.scale.on_ray import on_ray
from fastformer.scale.processes import on_this_machine
from fastformer.scale.shards import Place, Shard, find_shards
from fastformer.scale.work import Job, Outcome, ShardWorker
from fastformer.surroundings.files import content_hash, digest
from fastformer.surroundings.progress import how_many, progress_bar, say
from fastformer.tasks.answering import check_one_source, options_for
from fastformer.version import __version__

ENGINES = ("ray",)
TITLES = {"predict": "Predicting", "embed": "Embedding", "evaluate": "Evaluating"}
OPTIONS_OF = {"predict": "predicting", "evaluate": "evaluating"}  # what a task's declaration calls them
PLACE = ("device", "dtype")
READING = ("text_column", "label_column", "separator", "header", "format", "keep", "keep_all", *PLACE)
DEFAULTS = {"keep": (), "keep_all": False}  # given or not, the same is asked
SHOWN = 10  # lines of messages about files; the rest is in the manifest
_WEIGHTS = (".json", ".safetensors", ".onnx", ".data", ".parquet")  # what answers depend on, of a run's files
_RESULTS = "metrics.json"


@dataclass(frozen=True)
class Scored:
    """What was done. `scores` are means over the files, each by its rows."""

    output: str
    files: int
    before: int  # of them were done by an earlier command
    rows: int
    scores: dict[str, float] = field(default_factory=dict)


def score_files(
    verb: str,
    run: Run | str | Path,
    source: str | Path,
    output: str | Path,
    *,
    engine: str | None = None,
    address: str | None = None,
    workers: int | None = None,
    strict: bool | None = None,
    show_progress: bool = True,
    **options: Any,
) -> Scored:
    """Answer every file of `source` to a file of its own in `output`; called again, do what is missing or has changed.

    `verb` is `predict`, `embed` or `evaluate`, and `options` are those of the verb for one file. A file that cannot be
    answered is reported, the others are answered, and at the end there is an error; `strict` stops at the first.
    Without an `engine`, `workers` processes of this machine share the files. In a script of your own, call it below `if
    __name__ == "__main__":`, as Python requires of programs that start processes.
    """
    run = run if isinstance(run, Run) else open_run(run)
    check_one_source(source, options.get("document"), options.get("text"))
    options = {name: value for name, value in options.items() if value is not None and value != DEFAULTS.get(name)}
    for name in PLACE:  # a process per core: a GPU must be asked for
        if options.get(name) == "auto":
            del options[name]
    _check(verb, run, engine, address, options)
    shards = find_shards(verb, source, output, any_name="format" in options)
    job = Job(verb, str(run.folder.resolve()), options if strict is None else {**options, "strict": strict})
    target = Place(output)
    _make(target)
    with locked(Path(target.path), wait=False) if target.is_local else nullcontext():
        base = shards[0].source.removesuffix(shards[0].name)
        asked = {"verb": verb, "source": base, "options": _plain(options), "model": _identity(run)}
        manifest = Manifest(target, asked, {"fastformer": __version__, "run": job.run})
        left = manifest.left(shards)
        with progress_bar(TITLES[verb], len(shards), show_progress) as advance:
            advance(len(shards) - len(left))
            outcomes = _engine(engine, job, left, workers, address)
            try:
                bad = _watch(outcomes, manifest, advance, strict)
            except KeyboardInterrupt:
                done = len(shards) - len(manifest.left(shards))
                raise Interrupted(
                    f"stopped; {how_many(done, 'files', 'are', len(shards))} done, and the same command continues"
                ) from None
            finally:
                outcomes.close()  # ends workers that are still at work
                manifest.close()
    if bad:
        listed = ", ".join(bad[:3]) + (", …" if len(bad) > 3 else "")
        raise UserError(
            f"{how_many(len(bad), 'files', '', len(shards))} could not be answered: {listed}; the others are in "
            f"{output}. Correct what is wrong, and the same command does the rest"
        )
    entries = [manifest.entries[shard.name] for shard in shards]
    rows = sum(entry["rows"] or 0 for entry in entries)
    return Scored(str(output), len(shards), len(shards) - len(left), rows, _means(entries))


def _check(verb: str, run: Run, engine: str | None, address: str | None, options: dict[str, Any]) -> None:
    """Refuse what can be seen to be wrong before anything is read."""
    if engine is not None and engine not in ENGINES:
        raise UserError(f"--engine {engine}: not known; give {' or '.join(ENGINES)}, or leave it out for this machine")
    if address is not None and engine is None:
        raise UserError("--address: is that of a cluster; give --engine ray too, or leave it out")
    own = {name: value for name, value in options.items() if name not in READING}
    for name, value in own.items():
        if isinstance(value, Path):
            raise UserError(f"--{name.replace('_', '-')}: is for one file, and there are many; leave it out")
    if verb in OPTIONS_OF:
        chosen = options_for(run.task, OPTIONS_OF[verb], own)
        if verb == "predict" and own:  # whether their values make sense, the run says, asked for nothing
            predictor = ShardWorker(Job(verb, str(run.folder.resolve()))).predictor
            deque(predictor.predict([], chosen), maxlen=0)


def _make(folder: Place) -> None:
    try:
        folder.system.makedirs(folder.path, exist_ok=True)
    except Exception as error:  # every file system has its own
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{folder.named}: cannot be written ({reason}); give --output another place") from error


def _identity(run: Run) -> str:
    """What tells a run from others, also from one that is trained anew in the same folder."""
    files = (path for path in sorted(run.folder.iterdir()) if path.suffix in _WEIGHTS and path.name != _RESULTS)
    return digest({path.name: content_hash(path) for path in files if path.is_file()})


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options as JSON has them."""
    return {name: list(one) if isinstance(one, tuple) else one for name, one in options.items()}


def _engine(
    engine: str | None, job: Job, shards: Sequence[Shard], workers: int | None, address: str | None
) -> Generator[Outcome]:
    return on_this_machine(job, shards, workers) if engine is None else on_ray(job, shards, workers, address)


def _watch(outcomes: Generator[Outcome], manifest: Manifest, advance: Any, strict: bool | None) -> list[str]:
    """Write down what becomes of every file and say what there is to say; the names of those that failed."""
    bad: list[str] = []
    rows = said = 0
    for outcome in outcomes:
        entry, error = outcome.entry, outcome.error
        if entry.pop("unchanged", False):
            entry = {**manifest.entries[entry["input"]], **entry}
        manifest.add(entry)
        if error is not None and (strict or outcome.hopeless):
            raise UserError(error)
        if error is not None:
            bad.append(entry["input"])
        rows += entry.get("rows") or 0
        for line in [error] if error is not None else _named(entry):
            said += 1
            if said <= SHOWN:
                say(line)
            elif said == SHOWN + 1:
                say(f"There are messages about further files: see {manifest.place.named}.")
        advance(1, note=f"{rows:,} rows")
    return bad


def _named(entry: dict[str, Any]) -> list[str]:
    """The messages about a file, with its name."""
    return [note if entry["input"] in note else f"{entry['input']}: {note}" for note in entry.get("notes", ())]


def _means(entries: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Scores over all files, each by its rows, if every file has them."""
    counted = [(entry["rows"] or 0, entry.get("scores") or {}) for entry in entries]
    total = sum(rows for rows, _ in counted)
    names = [name for name in counted[0][1] if all(name in scores for _, scores in counted)] if total else []
    return {name: sum(rows * scores[name] for rows, scores in counted) / total for name in names}
