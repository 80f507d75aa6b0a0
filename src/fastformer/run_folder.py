"""The run folder: everything a trained model needs, in files that other tools read.

    run.json            what this is: task, settings, data files, version   <- marks a finished run
    config.json         model configuration                 } read by transformers'
    model.safetensors   weights                             } from_pretrained
    tokenizer.json      tokenizer (and tokenizer_config.json)
    generation_config.json  of a model that writes: beams, lengths
    metrics.json        results
    README.md           model card
    *.parquet, *.png    what else its task keeps
    model.onnx          in an export, in place of model.safetensors
    checkpoints/        only while training: what --resume continues from

Files are written aside and renamed into place, so a full disk or a crash leaves an older run as it was.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from huggingface_hub.errors import StrictDataclassError
from pyarrow import parquet
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from fastformer.data.tokenizers import load_tokenizer
from fastformer.errors import UserError
from fastformer.files import explain_full_disk, write_json, writing_aside, writing_text
from fastformer.modeling import FastformerConfig
from fastformer.onnx_model import MODEL_FILE, OnnxClassifier
from fastformer.progress import quiet_libraries
from fastformer.version import __version__

RUN_FILE = "run.json"
CHECKPOINTS = "checkpoints"
CHECKPOINT_MARK = "settings.json"  # in checkpoints/: says that they are ours
_ASIDE = ".saving"
_OPTIONAL = ("model.safetensors", MODEL_FILE, "generation_config.json")


@dataclass
class Run:
    """An opened run folder. `record` is its run.json."""

    folder: Path
    record: dict[str, Any]

    @property
    def task(self) -> str:
        """The task the run was trained for."""
        return self.record["task"]

    @property
    def is_export(self) -> bool:
        """Whether this is no trained run but what `fastformer export` made of one."""
        return "export" in self.record

    def load_config(self, config_class: type[PreTrainedConfig] = FastformerConfig) -> PreTrainedConfig:
        """The model's configuration, which must be of this class."""
        with self._loading():
            config = AutoConfig.from_pretrained(self.folder, trust_remote_code=False)
            if not isinstance(config, config_class):
                raise ValueError(f"config.json describes a {config.model_type!r} model")
        return config

    def load_model(self, model_class: type[PreTrainedModel]) -> PreTrainedModel | OnnxClassifier:
        """The trained model on the CPU, in float32 whatever it was stored in, ready to predict."""
        config = self.load_config(model_class.config_class)
        if self.is_export:
            return OnnxClassifier(self.folder / MODEL_FILE, config)
        with self._loading(), quiet_libraries():
            model, found = model_class.from_pretrained(
                self.folder, config=config, dtype="float32", use_safetensors=True, output_loading_info=True
            )
            if missing := sorted(found["missing_keys"]):  # transformers would leave them as they are drawn
                raise ValueError(f"model.safetensors has no {', '.join(missing)}")
            if model.can_generate():
                model.generation_config = GenerationConfig.from_pretrained(self.folder)
        return model.eval()

    def load_weights(self) -> dict[str, Tensor]:
        """The weights by name, in float32."""
        with self._loading():
            return {name: weight.float() for name, weight in load_file(self.folder / "model.safetensors").items()}

    def weight_names(self) -> set[str]:
        """What the weights are called, without loading them."""
        with self._loading(), safe_open(self.folder / "model.safetensors", framework="np") as file:
            return set(file.keys())

    @contextmanager
    def _loading(self) -> Iterator[None]:
        """Turn what a damaged folder may raise into one line."""
        try:
            yield
        except UserError:
            raise
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError, StrictDataclassError) as error:
            raise UserError(
                f"{self.folder}: the model cannot be loaded ({_one_line(error)}); train it again"
            ) from error

    def load_metrics(self) -> dict[str, Any]:
        """The results that were written when it was trained."""
        return json.loads((self.folder / "metrics.json").read_text(encoding="utf-8"))

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer the model was trained with."""
        return load_tokenizer(self.folder)


def open_run(folder: str | Path) -> Run:
    """Open a finished run, or say why this folder is none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such run folder; `fastformer train … --output {folder}` makes one")
    try:
        record = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        if not isinstance(record, dict) or not isinstance(record.get("task"), str):
            raise ValueError("it names no task")
    except FileNotFoundError:
        if (folder / CHECKPOINTS).is_dir():
            raise UserError(f"{folder}: training has not finished; run the same command with --resume") from None
        raise UserError(f"{folder}: not a run folder (no {RUN_FILE} in it); give the --output of a training") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / RUN_FILE}: cannot be read ({_one_line(error)}); train the run again") from error
    return Run(folder, record)


def claim_output(folder: str | Path, *, resume: bool, overwrite: bool) -> Path:
    """Check that a training may write to `folder`, before any work is done; nothing there is changed yet.

    A folder with anything in it must be a run of ours. With `resume` an interrupted training is continued, whatever
    else is there.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; give --output a folder")
    finished, checkpoints = _holds(folder / RUN_FILE, "task"), folder / CHECKPOINTS
    ours = _is_ours(checkpoints) if checkpoints.exists() else finished
    if folder.exists() and any(folder.iterdir()) and not ours:
        raise UserError(f"{folder}: is not empty and not a run folder; give --output another place")
    interrupted = last_complete_checkpoint(checkpoints) is not None
    if not overwrite and not (resume and interrupted):
        if finished:
            raise UserError(f"{folder}: holds a finished run; give another --output, or --overwrite to replace it")
        if interrupted:
            raise UserError(f"{folder}: holds an interrupted run; --resume continues it, --overwrite starts anew")
    return folder


def _is_ours(checkpoints: Path) -> bool:
    return _holds(checkpoints / CHECKPOINT_MARK, "fastformer")


def _holds(path: Path, key: str) -> bool:
    """Whether a JSON file is there and has a key that marks it as ours."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and key in content


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end (the trainer's state is written last)."""
    states = folder.glob("steps/checkpoint-*/trainer_state.json")
    complete = [path.parent for path in states if _holds(path, "best_model_checkpoint")]
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


@contextmanager
def unharmed(folder: Path) -> Iterator[None]:
    """Make `folder`, for this process alone; if training fails before its first checkpoint, leave it as it was."""
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); give --output another place") from None
    with _locked(folder):
        try:
            yield
        except BaseException:
            if last_complete_checkpoint(folder / CHECKPOINTS) is None:
                shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
                if made:
                    with suppress(OSError):  # what was saved before it failed stays
                        folder.rmdir()
            raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Refuse a folder that another process writes to; where the system has no such locks, nothing is refused."""
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):  # Windows
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another command is writing there; wait for it, or give another place") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def save_run(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    record: dict[str, Any],
    metrics: dict[str, Any],
    card: str,
    tables: Mapping[str, pa.Table] | None = None,
) -> None:
    """Write a finished run; `tables` are kept as NAME.parquet. Checkpoints have then served."""
    with writing_run(folder, {"fastformer": __version__, **record}) as aside:
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        (aside / "README.md").write_text(card, encoding="utf-8")
        write_json(aside / "metrics.json", metrics)
        for name, table in (tables or {}).items():
            parquet.write_table(table, aside / f"{name}.parquet")
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def save_results(folder: Path, metrics: dict[str, Any], card: str) -> None:
    """Replace metrics.json and README.md of a finished run."""
    with writing_aside(folder / "metrics.json") as aside:
        write_json(aside, metrics)
    with writing_text(folder / "README.md") as file:
        file.write(card)


@contextmanager
def writing_run(folder: Path, record: dict[str, Any]) -> Iterator[Path]:
    """A place to write a run's files to; when all are there, each is renamed into `folder`, run.json last."""
    aside = folder / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    with explain_full_disk(folder), quiet_libraries():
        try:
            aside.mkdir(parents=True)
            yield aside
            files = sorted({*record.get("files", ()), *(path.name for path in aside.iterdir() if path.is_file())})
            write_json(aside / RUN_FILE, {**record, "files": files})
            for path in filter(Path.is_file, aside.iterdir()):  # safetensors keeps its file to the owner; share it
                path.chmod((aside / RUN_FILE).stat().st_mode)
            # Without run.json it is no run: a crash between two renames cannot leave half of each.
            earlier = _files_of(folder)
            (folder / RUN_FILE).unlink(missing_ok=True)
            for name in earlier:  # what this run has of these comes now
                (folder / name).unlink(missing_ok=True)
            for path in sorted(aside.iterdir(), key=lambda path: path.name == RUN_FILE):
                os.replace(path, folder / path.name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _files_of(folder: Path) -> set[str]:
    """Files of the run that is in `folder`, as its run.json tells; those of somebody else are none of them."""
    try:
        told = json.loads((folder / RUN_FILE).read_text(encoding="utf-8")).get("files", [])
    except (OSError, ValueError):
        told = []
    return {*_OPTIONAL, *(name for name in told if Path(name).name == name)}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
