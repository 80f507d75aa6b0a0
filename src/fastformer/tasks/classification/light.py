"""An exported classifier that answers without PyTorch and transformers: onnxruntime and tokenizers alone.

The answers are those of `Classifier` on the same export. Only exports with a tokenizer that was trained here are taken:
it adds no tokens of its own, and reads a text as plain text.
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fastformer.data.cutting import beginning, has_more_tokens
from fastformer.data.standard_input import some_at_a_time
from fastformer.data.values import valid_unicode
from fastformer.export.session import LOGITS, MODEL_FILE, open_session, run_session
from fastformer.surroundings.progress import how_many
from fastformer.tasks.base import LightPredictor
from fastformer.tasks.classification.answers import check_options, describe_all
from fastformer.tasks.classification.data import LabelSpace, Table
from fastformer.tasks.classification.declaration import ClassificationSettings, Predicting
from fastformer.tasks.texts import texts_of

TEXTS_AT_ONCE = 1024
BATCH_TOKENS = 16_384


class LightClassifier(LightPredictor[ClassificationSettings]):
    """`model.onnx`, a tokenizer and the labels."""

    def __init__(self, folder: Path, record: dict[str, Any], config: dict[str, Any], tokenizer: Any, longest: int):
        super().__init__(record["task"], ClassificationSettings.from_record(record))
        labels = {int(number): name for number, name in (config.get("id2label") or {}).items()}
        ordered = SimpleNamespace(
            id2label=dict(sorted(labels.items())), label_thresholds=config.get("label_thresholds")
        )
        self.space = LabelSpace.of(record["label_kind"], ordered)
        self.pad, self.longest, self.cut, self.name = config["pad_token_id"], longest, 0, str(folder)
        self.encoder = tokenizer
        self.session = open_session(folder / MODEL_FILE, int(os.environ.get("OMP_NUM_THREADS") or 0))

    @classmethod
    def open(cls, folder: Path, record: dict[str, Any]) -> "LightClassifier | None":
        """The classifier of an export; None if its tokenizer needs transformers."""
        try:
            from tokenizers import Tokenizer

            config, told = (
                json.loads((folder / name).read_text(encoding="utf-8"))
                for name in ("config.json", "tokenizer_config.json")
            )
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            if not isinstance(config, dict) or not isinstance(told, dict):
                return None
        except Exception:  # the Rust half raises plain Exception; the regular way to open it reports what is wrong
            return None
        ours = told.get("tokenizer_class") == "TokenizersBackend" and told.get("split_special_tokens") is True
        if not ours or tokenizer.num_special_tokens_to_add(False) or "label_kind" not in record:
            return None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        try:
            return cls(folder, record, config, tokenizer, int(told["model_max_length"]))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):  # likewise
            return None

    def read(self, source: Any, settings: ClassificationSettings, format: Any = None) -> Table:
        """The rows of a source without their labels."""
        return Table(source, settings.reading("test", format), "none", every_row=True).check()

    def predict(self, examples: Iterable[Any], options: Predicting | None = None) -> Iterator[dict[str, Any]]:
        """As `Classifier.predict`."""
        options = options or Predicting()
        check_options(self.space, options, self.name)
        return self._answers(texts_of(examples, self.settings), options)

    def _answers(self, texts: Iterable[str], options: Predicting) -> Iterator[dict[str, Any]]:
        for some in some_at_a_time(texts, TEXTS_AT_ONCE):
            yield from describe_all(self.space, self._logits(some), options.top, options.threshold)

    def _logits(self, texts: list[str]) -> np.ndarray:
        """Outputs (texts, labels), in batches of texts of about the same length."""
        rows = []
        starts = [beginning(valid_unicode(text), self.longest, self._encode) for text in texts]
        encodings = self.encoder.encode_batch_fast(starts, add_special_tokens=False)
        for text, start, found in zip(texts, starts, encodings, strict=True):
            self.cut += len(found.ids) > self.longest or has_more_tokens(text, start)
            rows.append(found.ids[: self.longest])
        order = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
        logits: dict[int, np.ndarray] = {}
        while order:
            longest = max(1, len(rows[order[0]]))
            batch, order = order[: max(1, BATCH_TOKENS // longest)], order[max(1, BATCH_TOKENS // longest) :]
            ids = np.full((len(batch), longest), self.pad, dtype=np.int64)
            mask = np.zeros_like(ids)
            for line, place in enumerate(batch):
                ids[line, : len(rows[place])] = rows[place]
                mask[line, : len(rows[place])] = 1
            [found] = run_session(self.session, self.name, [LOGITS], {"input_ids": ids, "attention_mask": mask})
            logits.update(zip(batch, found, strict=True))
        return np.stack([logits[place] for place in range(len(rows))])

    def _encode(self, text: str) -> Any:
        return self.encoder.encode_batch([text], add_special_tokens=False)[0]  # which knows its words

    def notes(self) -> Iterator[str]:
        """How many texts were cut since this was last asked."""
        cut, self.cut = self.cut, 0
        if cut:
            yield f"{how_many(cut, 'texts', 'were')} cut after {self.longest:,} tokens."
