"""An exported model, run by onnxruntime behind the interface that the verbs use of a PyTorch model.

A model.onnx file is data: a graph of standard operators and their weights. No library of further operators is ever
loaded with it.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput

from fastformer.errors import UserError

MODEL_FILE = "model.onnx"
LOGITS, TEXT_VECTOR = "logits", "pooler_output"


class OnnxClassifier:
    """`model(input_ids=…, attention_mask=…).logits`, and `model.fastformer(…).pooler_output` for text vectors."""

    device = torch.device("cpu")

    def __init__(self, path: Path, config: PreTrainedConfig):
        self.config = config
        self._session = _open_session(path)

    def __call__(self, input_ids: Tensor, attention_mask: Tensor) -> SequenceClassifierOutput:
        """Logits of a batch."""
        return SequenceClassifierOutput(logits=self._run(LOGITS, input_ids, attention_mask))

    def fastformer(self, input_ids: Tensor, attention_mask: Tensor) -> BaseModelOutputWithPooling:
        """Text vectors of a batch."""
        return BaseModelOutputWithPooling(pooler_output=self._run(TEXT_VECTOR, input_ids, attention_mask))

    def eval(self) -> "OnnxClassifier":
        """Itself: there is nothing to train."""
        return self

    def _run(self, output: str, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        inputs = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
        [result] = self._session.run([output], inputs)
        return torch.from_numpy(result)


def _open_session(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise UserError(f"{path}: needs onnxruntime to run; run: pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors: its warnings speak to its developers
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")  # between calls the cores are torch's
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no class of their own
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{path}: cannot be loaded ({reason}); export the run again") from error
