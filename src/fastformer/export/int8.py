"""Eight-bit forms of a model's weights, for export: tables a quarter as large, products of integers.

These modules replace `nn.Embedding` and `nn.Linear` in a copy of a model just before it is exported. In PyTorch they
compute the same numbers in float32, and tests compare the export with them.

onnxruntime's own `quantize_dynamic` is not used: it gives all tokens of a batch one scale, so that a text's answer
would depend on its neighbours in the batch. Here every token has its own.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.onnx import ops

from fastformer.mixers.fastformer import FastformerMixer

NARROWEST_PRODUCT = 256  # below this width, measured, quantizing a product costs what it saves
_TINY = 1e-12


class Int8Embedding(nn.Module):
    """A table of int8 numbers with one scale per row: rare words keep their precision beside frequent ones."""

    def __init__(self, table: nn.Embedding):
        super().__init__()
        self.num_embeddings = table.num_embeddings
        quantized, scale = _quantize(table.weight.detach(), levels=127)
        self.register_buffer("table", quantized)
        self.register_buffer("scale", scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Rows of the table, as float32."""
        return F.embedding(ids, self.table).float() * F.embedding(ids, self.scale)


class Int8Linear(nn.Module):
    """A linear map of int8 weights, one scale per output, on tokens rounded to 8 bits with one scale per token."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        # 7 bits: two products of 8 bits overflow the 16-bit sums of CPUs without VNNI, which then saturate.
        quantized, scale = _quantize(linear.weight.detach(), levels=64)
        self.register_buffer("quantized", quantized.T.contiguous())
        self.register_buffer("scale", scale.squeeze(1))
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach())
        self.register_buffer("one", torch.tensor(1.0))
        self.register_buffer("zero", torch.tensor(128, dtype=torch.uint8))
        self.register_buffer("no_offset", torch.tensor(0, dtype=torch.int8))

    @property
    def weight(self) -> Tensor:
        """The weights as float32, for code that reads them instead of calling the module."""
        return self.quantized.T.float() * self.scale[:, None]

    def forward(self, x: Tensor) -> Tensor:
        """`x` (…, in) -> (…, out)."""
        largest = x.abs().amax(dim=-1, keepdim=True).clamp(min=_TINY)
        # The scale is divided out before and multiplied back after, rather than handed to the integer product:
        # onnxruntime (1.31) fuses that as if one scale served all tokens.
        product = self._integer_product(x * (127 / largest))
        y = product * self.scale * (largest / 127)
        return y if self.bias is None else y + self.bias

    def _integer_product(self, x: Tensor) -> Tensor:
        """`x`, within ±127, rounded to integers, times the integer weights."""
        if not torch.onnx.is_in_onnx_export():
            return x.round() @ self.quantized.float()
        tokens = ops.symbolic("QuantizeLinear", (x, self.one, self.zero), dtype=torch.uint8, shape=x.shape)
        inputs, shape = (tokens, self.quantized, self.zero, self.no_offset), (*x.shape[:-1], self.scale.shape[0])
        return ops.symbolic("MatMulInteger", inputs, dtype=torch.int32, shape=shape).float()


def to_int8(model: nn.Module) -> nn.Module:
    """A copy of `model` with int8 tables and, if the model is wide enough to gain, int8 products.

    Fastformer's own maps stay in float32: they are folded into one matrix per text.
    """
    model = copy.deepcopy(model)
    folded = {id(part) for mixer in model.modules() if isinstance(mixer, FastformerMixer) for part in mixer.modules()}
    for parent in list(model.modules()):
        for name, module in parent.named_children():
            if isinstance(module, nn.Embedding):
                setattr(parent, name, Int8Embedding(module))
            elif isinstance(module, nn.Linear) and id(module) not in folded and _is_wide(module):
                setattr(parent, name, Int8Linear(module))
    return model


def _is_wide(linear: nn.Linear) -> bool:
    return min(linear.weight.shape) >= NARROWEST_PRODUCT


def _quantize(weight: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """Integers within ±levels, and the scale of each row: `weight` ≈ integers * scale."""
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=_TINY) / levels
    return (weight / scale).round().to(torch.int8), scale
