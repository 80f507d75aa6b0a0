"""Vectors of single words from a folder with any transformers or sentence-transformers encoder, for a warm start.

Every word goes through the encoder once, by itself. Its vector is the mean of its tokens' vectors; a
sentence-transformers folder (`modules.json`) may ask for the first token's instead, and for vectors of length 1. A
`Dense` module behind the pooling is left out: the width is reduced to the model's own anyway.

The vectors are kept in a cache folder, `$FASTFORMER_CACHE` or `~/.cache/fastformer`, under a name made from the
contents of the encoder's files and the words: the second training with both takes a second. The folder may be deleted
at any time.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, AutoModel, PreTrainedModel

from fastformer.data.tokenizers import encode_batch, load_tokenizer
from fastformer.errors import UserError
from fastformer.runs.record import check_shards
from fastformer.surroundings.files import cache_folder, content_hash, writing_aside
from fastformer.surroundings.machine import tune
from fastformer.surroundings.progress import progress_bar, quiet_libraries, say

_READ = (".safetensors", ".json", ".txt", ".model")  # the files that decide what the vectors are
_BATCH_TOKENS = 2048
_LONGEST = 64  # tokens of a word that are read; a vocabulary may hold a line of dashes
Pooling = Literal["mean", "first"]
_POOLINGS: dict[str, Pooling] = {"mean": "mean", "mean_tokens": "mean", "cls": "first", "cls_token": "first"}


@dataclass(frozen=True)
class EncoderFolder:
    """Where an encoder's configuration and weights are, and how it makes one vector of a text."""

    folder: Path
    pooling: Pooling = "mean"
    normalize: bool = False


def open_encoder(folder: Path) -> EncoderFolder:
    """Look at a folder without loading the model, and say what is missing."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give one with a transformers encoder that save_pretrained wrote")
    pooling: Pooling = "mean"
    normalize, home = False, folder
    if (folder / "modules.json").is_file():
        for module in _read_json(folder / "modules.json"):
            kind = str(module.get("type", "")).rpartition(".")[2]
            if kind == "Transformer":
                home = folder / module.get("path", "")
            elif kind == "Pooling":
                pooling = _pooling(folder / module.get("path", "") / "config.json")
            normalize |= kind == "Normalize"
    if not (home / "config.json").is_file():
        raise UserError(
            f"{folder}: holds no model (no config.json in {home}); give a folder that save_pretrained wrote (or "
            "--init a GloVe file or an earlier run)"
        )
    if not any(home.glob("*.safetensors")):
        pickled = any(home.glob("*.bin")) or any(home.glob("*.pt"))
        reason = "only pickled weights, which can run code" if pickled else "no weights (*.safetensors)"
        raise UserError(f"{folder}: holds {reason}; if you trust it, load it and save it again with save_pretrained")
    check_shards(home)
    return EncoderFolder(home, pooling, normalize)


def word_vectors(encoder: EncoderFolder, words: list[str], show_progress: bool = True) -> np.ndarray:
    """Vectors (words, the encoder's width), from the cache if they are there."""

    def make() -> np.ndarray:
        ids, _ = encode_batch(load_tokenizer(encoder.folder), words, _LONGEST)
        return encode_ids(encoder, ids, show_progress)

    return kept_vectors(f"words-{_key(encoder, words)}", len(words), make)


def kept_vectors(name: str, count: int, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Vectors from the cache if they are there under `name`; otherwise they are made, and kept there."""
    cached = cache_folder() / f"{name}.safetensors"
    with suppress(OSError, SafetensorError, KeyError):  # none there, or a broken one: made anew
        vectors = load_file(cached)["vectors"]
        if len(vectors) == count and np.isfinite(vectors).all():
            return vectors
    vectors = make()
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with writing_aside(cached) as aside:
            save_file({"vectors": vectors}, aside)
    except (OSError, UserError, SafetensorError) as error:  # a cache is a convenience
        say(f"The word vectors are not kept for the next time: {error}")
    return vectors


def encode_ids(encoder: EncoderFolder, ids: list[np.ndarray], show_progress: bool) -> np.ndarray:
    """The encoder's vector of each sequence of token ids; zeros for an empty one."""
    model = load_encoder(encoder.folder)
    tune()
    vectors: np.ndarray | None = None
    with progress_bar("Encoding words", total=len(ids), show=show_progress) as advance, torch.inference_mode():
        for batch in _equal_lengths(ids):
            inputs = torch.from_numpy(np.stack([ids[index] for index in batch]).astype(np.int64))
            try:
                states = model(input_ids=inputs, attention_mask=torch.ones_like(inputs)).last_hidden_state
            except (AttributeError, TypeError, ValueError, IndexError, RuntimeError) as error:
                reason = " ".join(str(error).split())[:200]
                raise UserError(f"{encoder.folder}: is not a text encoder ({reason}); give --init another") from error
            found = states[:, 0] if encoder.pooling == "first" else states.mean(dim=1)
            if encoder.normalize:
                found = torch.nn.functional.normalize(found, dim=-1)
            if vectors is None:
                vectors = np.zeros((len(ids), found.shape[1]), dtype=np.float32)
            vectors[batch] = found.numpy()
            advance(len(batch))
    if vectors is None or not np.isfinite(vectors).all():
        raise UserError(f"{encoder.folder}: gives no finite vectors; give --init another encoder")
    return vectors


def _equal_lengths(ids: list[np.ndarray]) -> list[np.ndarray]:
    """Batches of words with equally many tokens: nothing is padded. A word without any token is in none."""
    lengths = np.array([len(word) for word in ids])
    batches = []
    for length in np.unique(lengths[lengths > 0]):
        same = np.flatnonzero(lengths == length)
        batches += np.array_split(same, -(-len(same) * length // _BATCH_TOKENS))
    return [batch for batch in batches if len(batch)]


def load_encoder(folder: Path) -> PreTrainedModel:
    """The encoder in a folder, in float32, ready to use; no code from there is run."""
    try:
        with quiet_libraries():
            options = {"trust_remote_code": False, "local_files_only": True}
            config = AutoConfig.from_pretrained(folder, **options)
            options |= {"config": config, "dtype": torch.float32, "use_safetensors": True}
            model, found = AutoModel.from_pretrained(folder, **options, output_loading_info=True)
        if len(found["missing_keys"]) == len(model.state_dict()):
            raise ValueError(f"config.json describes a {config.model_type!r} model, the weights are of another")
    except Exception as error:  # a foreign model's own code may raise anything
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{folder}: the encoder cannot be loaded ({reason}); give another") from error
    if config.is_encoder_decoder:
        model = model.get_encoder()
    return model.eval()


def _pooling(path: Path) -> Literal["mean", "first"]:
    """What the configuration of a sentence-transformers Pooling module asks for, in its new form or its old one."""
    settings = _read_json(path)
    modes = [settings["pooling_mode"]] if "pooling_mode" in settings else []
    modes += [name.removeprefix("pooling_mode_") for name, value in settings.items() if value is True]
    modes = [mode for mode in modes if mode != "include_prompt"]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise UserError(f"{path}: pooling by {' and '.join(map(str, modes))} is not known here; mean and cls are")
    return _POOLINGS[modes[0]]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({reason}); get a new copy of the folder") from error


def encoder_hash(encoder: EncoderFolder) -> str:
    """A hash of the files that decide what an encoder says: its weights, configuration and tokenizer."""
    files = [path for path in sorted(encoder.folder.iterdir()) if path.suffix in _READ]
    listed = json.dumps([(path.name, content_hash(path)) for path in files])
    return hashlib.blake2b(listed.encode(), digest_size=16).hexdigest()


def _key(encoder: EncoderFolder, words: list[str]) -> str:
    content = json.dumps([encoder_hash(encoder), encoder.pooling, encoder.normalize, words])
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
