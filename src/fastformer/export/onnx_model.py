"""An exported model, run by onnxruntime, with the interface of a PyTorch model that `evaluate` and `predict` use.

A model.onnx file is data: a graph of standard operators and their weights. No library of further operators is ever
loaded with it.
"""

from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput

from fastformer.export.session import LOGITS, TEXT_VECTOR, open_session, run_session


class OnnxClassifier:
    """`model(input_ids=…, attention_mask=…).logits`, and `model.fastformer(…).pooler_output` for text vectors."""

    device = torch.device("cpu")

    def __init__(self, path: Path, config: PreTrainedConfig):
        self.config, self._name = config, str(path)
        self._session = open_session(path, torch.get_num_threads())

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
        [result] = run_session(self._session, self._name, [output], inputs)
        return torch.from_numpy(result)
