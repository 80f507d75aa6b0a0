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

A run is first written as a whole beside the old one, becomes the run by one rename, and then its files move into place.
So after a crash at any moment there is either the old run or the new one: `open_run` moves what a crash left unmoved
(`finish_saving`). If a run is replaced while it is loaded, it is loaded again (`tasks.base.load_run`), so that the
weights of one run never meet the tokenizer of another.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import torch
from pyarrow import parquet
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from fastformer.data.tokenizers import load_tokenizer
from fastformer.engine.settings import problem_with
from fastformer.errors import UserError
from fastformer.export.onnx_model import OnnxClassifier
from fastformer.export.session import MODEL_FILE
from fastformer.modeling import FastformerConfig
from fastformer.runs.record import (
    COMPLETE,
    RUN_FILE,
    Mark,
    check_shards,
    is_replaced,
    mark_of,
    read_json,
    read_object,
    read_record,
)
from fastformer.surroundings.files import explain_full_disk, write_json, writing_aside, writing_text
from fastformer.surroundings.progress import quiet_libraries
from fastformer.version import __version__

MODELS = "fastformer.models"  # the group of entry points by which packages bring runs along
PACKAGES = {"base": "fastformer-base-en"}  # the names that packages of ours bring
CHECKPOINTS = "checkpoints"
LARGE_TABLE = 100_000  # numbers of a table that are worth rounding
CHECKPOINT_MARK = "settings.json"  # in checkpoints/: says that they are ours
_ASIDE = ".saving"  # a run that is being written
_NAMES = ".names.json"  # in it: what its files are called
_OPTIONAL = ("model.safetensors", MODEL_FILE, "generation_config.json")


class InUse(UserError):
    """Another command is writing to the folder; it will finish."""

    exit_code = 75  # "temporary failure; try again later" among the codes of sysexits.h


@dataclass
class Run:
    """An opened run folder. `record` is its run.json, and `mark` tells it from a run that replaces it."""

    folder: Path
    record: dict[str, Any]
    mark: Mark | None = None

    @property
    def is_replaced(self) -> bool:
        """Whether another run took its place, or is about to: what was read since may be of both."""
        return is_replaced(self.folder, self.mark)

    @property
    def task(self) -> str:
        """The task the run was trained for."""
        return self.record["task"]

    @property
    def is_export(self) -> bool:
        """Whether this is an export, not a trained run."""
        return "export" in self.record

    def load_config(self, config_class: type[PreTrainedConfig] = FastformerConfig) -> PreTrainedConfig:
        """The model's configuration, which must be of this class."""
        with self.loading():
            check_shards(self.folder)
            config = AutoConfig.from_pretrained(self.folder, trust_remote_code=False)
            if not isinstance(config, config_class):
                raise ValueError(f"config.json describes a {config.model_type!r} model")
        return config

    def load_model(self, model_class: type[PreTrainedModel]) -> PreTrainedModel | OnnxClassifier:
        """The trained model on the CPU, in float32 whatever it was stored in, ready to predict."""
        config = self.load_config(model_class.config_class)
        if self.is_export:
            return OnnxClassifier(self.folder / MODEL_FILE, config)
        with self.loading(), quiet_libraries():
            model, found = model_class.from_pretrained(
                self.folder, config=config, dtype="float32", use_safetensors=True, output_loading_info=True
            )
            if missing := sorted(found["missing_keys"]):  # transformers would leave them as they are drawn
                raise ValueError(f"model.safetensors has no {', '.join(missing)}")
            _check_finite(model)
            if model.can_generate():
                model.generation_config = GenerationConfig.from_pretrained(self.folder)
                _check_generation(model.generation_config, self.folder / "generation_config.json", config)
        return model.eval()

    def load_weights(self) -> dict[str, Tensor]:
        """The weights by name, in float32."""
        with self.loading():
            return {name: weight.float() for name, weight in load_file(self.folder / "model.safetensors").items()}

    def weight_names(self) -> set[str]:
        """What the weights are called, without loading them."""
        with self.loading(), safe_open(self.folder / "model.safetensors", framework="np") as file:
            return set(file.keys())

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Turn what a damaged folder may raise into one line; libraries raise anything at all on one."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"{self.folder}: the model cannot be loaded ({_one_line(error)}); train it again"
            ) from error

    def load_metrics(self) -> dict[str, Any]:
        """The results that were written when it was trained; none if others trained it."""
        if not (self.folder / "metrics.json").is_file() and not (self.folder / RUN_FILE).is_file():
            return {}
        with self.loading():
            return read_object(self.folder / "metrics.json")

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer the model was trained with."""
        with self.loading():
            tokenizer = load_tokenizer(self.folder)
            check_tokenizer(tokenizer, self.folder)
        if (longest := self.record.get("longest")) is not None:
            tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
        return tokenizer


def open_run(folder: str | Path) -> Run:
    """Open a finished run, or one that an installed package brings along, by its name; or say why this is none."""
    folder = Path(folder)
    if not folder.is_dir():
        folder = _brought_along(str(folder))
    finish_saving(folder)
    mark = mark_of(folder)  # before it is read, so that a replacement meanwhile is noticed
    try:
        record = read_record(folder)
    except FileNotFoundError:
        if (folder / CHECKPOINTS).is_dir():
            raise UserError(f"{folder}: training has not finished; run the same command with --resume") from None
        if (saved := _saved_elsewhere(folder)) is not None:
            return saved
        raise UserError(f"{folder}: not a run folder (no {RUN_FILE} in it); give the --output of a training") from None
    return Run(folder, record, mark)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Refuse what tokenizer_config.json may say and nobody can use."""
    fields = {
        "model_max_length": int,
        "model_input_names": list[str],
        "truncation_side": Literal["left", "right"],
        "padding_side": Literal["left", "right"],
        "split_special_tokens": bool,
        "pad_token_id": int,
    }
    for name, kind in fields.items():
        wrong = problem_with(getattr(tokenizer, name), kind)
        if wrong is None and name == "model_max_length" and tokenizer.model_max_length < 1:
            wrong = "is less than 1"
        if wrong is not None:
            raise UserError(f"{folder / 'tokenizer_config.json'}: {name} {wrong}; train the run again")
    tokenizer("a", return_special_tokens_mask=True)  # it does what it is for


def _check_generation(settings: GenerationConfig, path: Path, config: FastformerConfig) -> None:
    """Refuse what generation_config.json may say and no beam search can use; transformers checks little of it."""
    settings.validate()
    fields = {
        **dict.fromkeys(("bos_token_id", "pad_token_id", "decoder_start_token_id"), int | None),
        "eos_token_id": int | list[int] | None,
        **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens"), list[int] | None),
        **dict.fromkeys(("num_beams", "max_length", "max_new_tokens", "min_length", "min_new_tokens"), int | None),
        "no_repeat_ngram_size": int | None,
        "length_penalty": float | None,
        "repetition_penalty": float | None,
        "early_stopping": bool | str | None,
        "do_sample": bool | None,
        "use_cache": bool | None,
        "forced_bos_token_id": int | None,
        "forced_eos_token_id": int | list[int] | None,
    }
    for name, kind in fields.items():
        value = getattr(settings, name, None)
        if wrong := problem_with(value, kind):
            raise UserError(f"{path}: {name} {wrong}; train the run again")
        numbers = value if isinstance(value, list) else [value] if isinstance(value, int) else []
        is_token = name.endswith(("_id", "_tokens")) and "new" not in name
        if is_token and any(not 0 <= one < config.vocab_size for one in numbers):
            raise UserError(f"{path}: {name} names a token that the model does not have; train the run again")
    if settings.decoder_start_token_id is None and settings.bos_token_id is None:
        raise UserError(f"{path}: decoder_start_token_id is missing; train the run again")
    if settings.max_new_tokens is None:  # transformers would stop at twenty
        raise UserError(f"{path}: max_new_tokens is missing; train the run again")
    if config.position_embedding_type == "learned":
        most = config.decoder_positions or config.max_position_embeddings
        if settings.max_new_tokens > most:
            raise UserError(f"{path}: max_new_tokens is more than the {most} that were learned; train the run again")
    if not 1 <= (settings.num_beams or 1) <= 1000:
        raise UserError(f"{path}: num_beams is {settings.num_beams}; train the run again")


def _check_finite(model: PreTrainedModel) -> None:
    """Refuse weights that are not finite numbers."""
    for name, weight in model.state_dict().items():
        if weight.is_floating_point() and not torch.isfinite(weight).all():
            raise ValueError(f"{name} in model.safetensors has numbers that are not finite")


def installed_run(name: str) -> Path | None:
    """The run that an installed package has under this name: an entry point of `fastformer.models`, giving its path."""
    known = {one.name: one for one in entry_points(group=MODELS)}
    return Path(known[name].load()()) if name in known else None


def _brought_along(name: str) -> Path:
    if (found := installed_run(name)) is not None:
        return found
    if os.path.isfile(name):
        raise UserError(f"{name}: is a file, not a run folder; give the folder that `fastformer train` wrote")
    known = [one.name for one in entry_points(group=MODELS)]
    if (package := PACKAGES.get(name)) is not None:
        where = f"pip install {package}, or in a clone: pip install ./packages/{package}"
        raise UserError(f"{name}: comes with the package {package}, which is not installed; run: {where}")
    others = f", or name one that is installed: {', '.join(sorted(known))}" if known else ""
    raise UserError(f"{name}: no such run folder; `fastformer train … --output {name}` makes one{others}")


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, or a model that transformers saved and that can be one."""
    return (folder / RUN_FILE).is_file() or _saved_elsewhere(folder) is not None


def _saved_elsewhere(folder: Path) -> Run | None:
    """A folder that `save_pretrained` or a Trainer left, as a run, where its architecture says of which task."""
    from fastformer.tasks.base import declared

    try:
        told = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        [architecture] = told["architectures"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    for declaration in declared().values():
        if architecture in declaration.architectures:
            run = Run(folder, {"task": declaration.name})
            config = run.load_config()
            settings = declaration.presets.get_settings("default", mixer=config.mixer)
            limited = config.position_embedding_type == "learned" or config.mixer == "linformer"
            longest = config.max_position_embeddings if limited else None  # what a foreign tokenizer does not know
            run.record |= {**settings.record(), "preset": "custom", "longest": longest}
            run.record |= declaration.load().record_of(config)
            return run
    return None


def claim_output(folder: str | Path, *, resume: bool, overwrite: bool) -> Path:
    """Check that a training may write to `folder`, before any work is done; no run there is changed yet.

    A folder with anything in it must be a run of ours. With `resume` an interrupted training is continued, whatever
    else is there.
    """
    folder = Path(folder)
    if any("\ud800" <= one <= "\udfff" for one in str(folder)):
        raise UserError(f"{folder}: a name that is not UTF-8, which tokenizers cannot write to; give --output another")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; give --output a folder")
    finish_saving(folder)
    finished, checkpoints = _holds(folder / RUN_FILE, "task"), folder / CHECKPOINTS
    ours = _is_ours(checkpoints) if checkpoints.exists() else finished
    if holds_anything(folder) and not ours:
        raise UserError(f"{folder}: is not empty and not a run folder; give --output another place")
    interrupted = last_complete_checkpoint(checkpoints) is not None
    if not overwrite and not (resume and interrupted):
        if finished:
            raise UserError(f"{folder}: holds a finished run; give another --output, or --overwrite to replace it")
        if interrupted:
            raise UserError(f"{folder}: holds an interrupted run; --resume continues it, --overwrite starts anew")
    return folder


def holds_anything(folder: Path) -> bool:
    """Whether there is anything in a folder but what a command that was killed had not written to its end."""
    return folder.is_dir() and any(path.name != _ASIDE for path in folder.iterdir())


def remove_checkpoints(checkpoints: Path) -> None:
    """Delete the folder. What says that it is ours goes last: a process that is killed leaves nothing in the way."""
    with suppress(OSError):
        for path in checkpoints.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != CHECKPOINT_MARK:
                path.unlink()
    shutil.rmtree(checkpoints, ignore_errors=True)


def _is_ours(checkpoints: Path) -> bool:
    """Whether a training made this folder: it says so, or it was killed before it could say anything."""
    if _holds(checkpoints / CHECKPOINT_MARK, "fastformer"):
        return True
    mark = f".{CHECKPOINT_MARK}."
    inside = checkpoints.iterdir() if checkpoints.is_dir() else [checkpoints]
    return all(
        path.name.startswith(mark) or (path.name == CHECKPOINT_MARK and not path.stat().st_size) for path in inside
    )


def _holds(path: Path, key: str) -> bool:
    """Whether a JSON file is there and has a key that marks it as ours."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and key in content


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end and has all its parts."""
    return next((path for path in checkpoints_of(folder) if what_is_missing(path) is None), None)


def checkpoints_of(folder: Path) -> list[Path]:
    """All checkpoints, complete or not, the newest first."""
    found = {path: path.name.rpartition("-")[2] for path in folder.glob("steps/checkpoint-*")}
    return sorted((path for path, step in found.items() if step.isdecimal()), key=lambda path: -int(found[path]))


def what_is_missing(checkpoint: Path) -> str | None:
    """A file without which a checkpoint cannot be continued to the same weights; None if all are there."""
    if not _holds(checkpoint / "trainer_state.json", "best_model_checkpoint"):  # the trainer writes it last
        return "trainer_state.json"
    states = [path.name for path in checkpoint.glob("rng_state*.pth")]  # of each process, if there were several
    parts = ("model.safetensors", "optimizer.pt", "scheduler.pt", *(states or ["rng_state.pth"]))
    missing = (name for name in parts if not (checkpoint / name).is_file() or not (checkpoint / name).stat().st_size)
    return next(missing, None)


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
    with locked(folder, wait=False):
        try:
            yield
        except BaseException:
            if last_complete_checkpoint(folder / CHECKPOINTS) is None:
                remove_checkpoints(folder / CHECKPOINTS)
                if made:
                    with suppress(OSError):  # what was saved before it failed stays
                        folder.rmdir()
            raise


@contextmanager
def locked(folder: Path, wait: bool) -> Iterator[None]:
    """Wait for a folder that another process writes to, or refuse it; if the system has no such locks, go on."""
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):  # Windows
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InUse(f"{folder}: another command is writing there; wait for it, or give another place") from None
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
        model.save_pretrained(aside, state_dict=_in_half_where_exact(model.state_dict()))
        tokenizer.save_pretrained(aside)
        (aside / "README.md").write_text(card, encoding="utf-8")
        write_json(aside / "metrics.json", metrics)
        for name, table in (tables or {}).items():
            parquet.write_table(table, aside / f"{name}.parquet")
    remove_checkpoints(folder / CHECKPOINTS)


def _in_half_where_exact(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose numbers are all exact in half precision, stored so; loading them gives the same numbers."""
    halves: dict[int, Tensor] = {}  # by their place in memory: tied weights stay one tensor
    kept = dict(weights)
    for name, weight in weights.items():
        if weight.dtype == torch.float32:
            half = halves.setdefault(weight.data_ptr(), weight.half())
            kept[name] = half if torch.equal(half.float(), weight) else weight
    return kept


def round_tables(model: PreTrainedModel) -> None:
    """Round large embeddings and buffers to half precision, in place: on disk they take half the room (`save_run`)."""
    embeddings = (module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding))
    with torch.no_grad():
        for table in (*embeddings, *model.buffers()):
            if table.numel() >= LARGE_TABLE and table.dtype == torch.float32:
                half = table.half().float()
                if torch.isfinite(half).all():  # else it has numbers too large for that
                    table.copy_(half)


def save_results(folder: Path, metrics: dict[str, Any], card: str) -> None:
    """Replace metrics.json and README.md of a finished run."""
    with writing_aside(folder / "metrics.json") as aside:
        write_json(aside, metrics)
    with writing_text(folder / "README.md") as file:
        file.write(card)


@contextmanager
def writing_run(folder: Path, record: dict[str, Any]) -> Iterator[Path]:
    """A place to write a run's files to; when all are there, they become the run in `folder`."""
    finish_saving(folder)
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
            names = sorted((path.name for path in aside.iterdir()), key=lambda name: name == RUN_FILE)
            write_json(aside / _NAMES, names)
            aside.rename(folder / COMPLETE)  # from here on it is the run, even if we are killed
            finish_saving(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def finish_saving(folder: Path) -> None:
    """Move those files of a complete run into place that its writer, perhaps killed, has not moved."""
    complete = folder / COMPLETE
    if not complete.is_dir():
        return
    try:
        with locked(complete, wait=True):  # two would get in each other's way
            with suppress(FileNotFoundError):  # all is in place
                _move_into_place(complete, read_json(complete / _NAMES, "save the run again"), folder)
            with suppress(FileNotFoundError):  # somebody else was here
                complete.rmdir()
    except PermissionError as error:
        raise UserError(
            f"{folder}: a run was saved, but its files are not all in place, and cannot be moved ({error.strerror}); "
            "open it once as a user who may write there"
        ) from error


def _move_into_place(complete: Path, names: list[str], folder: Path) -> None:
    for name in _files_of(folder) - set(names):  # of the run before
        (folder / name).unlink(missing_ok=True)
    for name in names:
        if (complete / name).exists():  # else it is in place
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
            os.replace(complete / name, folder / name)
    (complete / _NAMES).unlink()


def _files_of(folder: Path) -> set[str]:
    """Files of the run that is in `folder`, as its run.json tells; those of somebody else are none of them."""
    try:
        told = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        told = []
    told = told if isinstance(told, list) else []
    return {*_OPTIONAL, *(name for name in told if isinstance(name, str) and Path(name).name == name)}


def _one_line(error: Exception) -> str:
    kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split())}"[:300]
