"""What `bench speed` measures: one batch through the paper's topic classifier, forward or forward and backward.

The model is the `paper-mind` preset for the mixer at hand. As in the paper, tokens are random and the word embedding
is fixed. A training step ends with the gradients: there is no optimizer, whose cost depends on the number of weights
and not on the method's way with length.
"""

import torch

from fastformer.bench.measuring import Step
from fastformer.modeling import FastformerConfig, FastformerForSequenceClassification
from fastformer.tasks.base import get_task

MODES = ("inference", "training")
TOPICS = 18  # of MIND's news
PRESET = "paper-mind"


def configuration(mixer: str, length: int, **fields) -> FastformerConfig:
    """The topic classifier's configuration for inputs of `length` tokens, with some fields replaced."""
    preset = get_task("classification").settings(PRESET, mixer=mixer)
    fields = {**preset.model, "max_position_embeddings": length, **fields}
    return FastformerConfig(mixer=mixer, vocab_size=preset.vocab_size, num_labels=TOPICS, **fields)


def batch_size(length: int, tokens: int) -> int:
    """Texts per batch, so that a batch holds about `tokens` tokens whatever the length; at least one."""
    return max(1, tokens // length)


def build_model(mixer: str, length: int, seed: int) -> FastformerForSequenceClassification:
    """The classifier with random weights and a fixed word embedding."""
    torch.manual_seed(seed)
    model = FastformerForSequenceClassification(configuration(mixer, length))
    model.get_input_embeddings().requires_grad_(False)
    return model


def build_step(model: FastformerForSequenceClassification, mode: str, batch: int, length: int, seed: int) -> Step:
    """A function that runs one batch of random tokens through `model`."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, model.config.vocab_size, (batch, length), generator=generator)
    labels = torch.randint(TOPICS, (batch,), generator=generator)

    @torch.inference_mode()
    def infer() -> None:
        model.eval()(ids)

    def train() -> None:
        model.train().zero_grad(set_to_none=True)
        model(ids, labels=labels).loss.backward()

    return infer if mode == "inference" else train
