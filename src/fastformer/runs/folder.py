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

It is opened here and written in `saving.py`. If a run is replaced while it is loaded, it is loaded again
(`tasks.base.load_run`), so that the weights of one run never meet the tokenizer of another.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from fastformer.data.tokenizers import load_tokenizer
from fastformer.errors import UserError
from fastformer.export.onnx_model import OnnxClassifier
from fastformer.export.session import MODEL_FILE
from fastformer.modeling import FastformerConfig
from fastformer.runs.checking import check_finite, check_generation, check_tokenizer
from fastformer.runs.checkpoints import CHECKPOINTS
from fastformer.runs.record import RUN_FILE, Mark, check_shards, is_replaced, mark_of, read_object, read_record
from fastformer.runs.saving import finish_saving
from fastformer.surroundings.progress import quiet_libraries

MODELS = "fastformer.models"  # the group of entry points by which packages bring runs along
PACKAGES = {"base": "fastformer-base-en"}  # the names that packages of ours bring


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
            check_finite(model)
            if model.can_generate():
                model.generation_config = GenerationConfig.from_pretrained(self.folder)
                check_generation(model.generation_config, self.folder / "generation_config.json", config)
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


def _one_line(error: Exception) -> str:
    kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split())}"[:300]
