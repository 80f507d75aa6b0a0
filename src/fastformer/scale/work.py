"""One file answered: what every engine calls, in whichever process and on whichever machine.

A `Job` says what is asked, in plain values that travel. A `ShardWorker` loads the run once and then answers file after
file by the same verbs that answer one file, so that many files have the same answers.
"""

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from fastformer.errors import UserError
from fastformer.scale.manifest import SAVING
from fastformer.scale.shards import Place, Shard
from fastformer.surroundings.files import FullDisk, content_hash, writing_text
from fastformer.surroundings.progress import heard

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Job:
    """What is asked of every file: a verb, the folder of a run, and the options of the verb."""

    verb: str
    run: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of a file: its line of the manifest, and whether the others would fare no better."""

    entry: dict[str, Any]
    hopeless: bool = False

    @property
    def error(self) -> str | None:
        """What is wrong with the file, if it could not be answered."""
        return self.entry.get("error")


def failed(shard: Shard, error: str, hopeless: bool = False) -> Outcome:
    """The outcome of a file that could not be answered."""
    return Outcome({"input": shard.name, "error": error}, hopeless)


class ShardWorker:
    """A loaded run that answers files, on one core."""

    def __init__(self, job: Job):
        from fastformer.tasks.answering import light_predictor
        from fastformer.tasks.verbs import load

        self.job = job
        place = {name: job.options[name] for name in ("device", "dtype") if name in job.options}
        light = light_predictor(job.run) if job.verb == "predict" and not place else None
        self.predictor = light or load(job.run, **place)

    def __call__(self, shard: Shard) -> Outcome:
        """Answer a file; whatever is wrong with it is in the outcome, and its output is whole or as it was."""
        source = shard.source
        try:
            with heard() as notes, _at_hand(shard) as (source, output):
                started = perf_counter()
                about = {"input": shard.name, "bytes": shard.bytes, "checksum": content_hash(source)}
                about |= {"changed": shard.changed, "output": shard.output_name}
                if about["checksum"] == shard.known:
                    return Outcome({**about, "unchanged": True})
                found = self._answer(source, output)
                about |= {"output_bytes": output.stat().st_size, "output_checksum": content_hash(output), **found}
                about |= {"seconds": round(perf_counter() - started, 3), "notes": notes}
            return Outcome(about)
        except FullDisk as error:
            return failed(shard, _about(error, shard, source), hopeless=True)
        except UserError as error:
            return failed(shard, _about(error, shard, source))
        except Exception as error:  # one bad file ends nothing
            if os.environ.get("FASTFORMER_DEBUG"):
                raise
            reason = " ".join(str(error).split())[:300]
            return failed(shard, f"{shard.source}: {type(error).__name__}: {reason}")

    def _answer(self, source: str, output: Path) -> dict[str, Any]:
        """Call the verb; give what it counted."""
        import json

        from fastformer.tasks import answering, verbs

        how: dict[str, Any] = {**self.job.options, "show_progress": False}
        if self.job.verb == "predict":
            return {"rows": answering.predict(self.predictor, source, output, **how)}
        if self.job.verb == "embed":
            return {"rows": verbs.embed(self.predictor, source, output, **how)[0]}
        result = verbs.evaluate(self.predictor, source, **how)
        with writing_text(output) as file:
            file.write(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
        return {"rows": result.get("rows"), "scores": self.predictor.scores_of(result)}


def _about(error: Exception, shard: Shard, source: str) -> str:
    """What an error says, of the file under its own name."""
    return str(error).replace(source, shard.source)


@contextmanager
def _at_hand(shard: Shard) -> Iterator[tuple[str, Path]]:
    """A file to read and one to write, both here. Those elsewhere are fetched, and results brought back whole."""
    place, target = Place(shard.source), Place(shard.output)
    with tempfile.TemporaryDirectory(prefix="fastformer-", ignore_cleanup_errors=True) as folder:
        source, output = place.path, Path(target.path)
        if not place.is_local:
            source = os.path.join(folder, Path(place.path).name)
            place.system.get_file(place.path, source)
        if target.is_local:
            output.parent.mkdir(parents=True, exist_ok=True)
        else:
            output = Path(folder) / "answers" / output.name
            output.parent.mkdir()
        yield source, output
        if not target.is_local and output.exists():
            _bring(output, target)


def _bring(output: Path, target: Place) -> None:
    """Put a file where it belongs on another file system: aside, then renamed."""
    parent, _, name = target.path.rpartition("/")
    aside = f"{parent}/.{name}.{socket.gethostname()}-{os.getpid()}{SAVING}"
    target.system.makedirs(parent, exist_ok=True)
    try:
        target.system.put_file(str(output), aside)
        target.system.mv(aside, target.path)
    except BaseException:
        with suppress(Exception):
            target.system.rm_file(aside)
        raise


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for everything in this process, and in those that it starts: cores are shared out by files."""
    torch: Any = sys.modules.get("torch")  # if nobody has imported it, the environment is enough
    before, threads = {name: os.environ.get(name) for name in _ONE_THREAD}, torch and torch.get_num_threads()
    os.environ.update(_ONE_THREAD)
    if torch:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if torch:
            torch.set_num_threads(threads)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
