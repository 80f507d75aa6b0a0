"""An encoder that answers: vectors of texts, and how alike pairs are."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fastformer.data.batches import pad_batch, token_budget_batches
from fastformer.data.tables import given_texts
from fastformer.engine.fit import Trained
from fastformer.engine.inference import BATCH_TOKENS, TextRunner
from fastformer.errors import UserError
from fastformer.modeling import FastformerConfig, FastformerModel
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks.base import Predictor
from fastformer.tasks.encoder.declaration import EncoderSettings
from fastformer.tasks.texts import texts_of


class TextVectors:
    """Texts -> vectors of length 1, streamed; zeros for a text without any token."""

    def __init__(self, model: FastformerModel, tokenizer: PreTrainedTokenizerBase):
        self.model, self.tokenizer = model, tokenizer
        self.runner = TextRunner(model, tokenizer, tokenizer.model_max_length)

    def __call__(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """A vector per text, in their order."""
        return self.runner(texts, self._vectors)

    def of_ids(self, ids: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """The same for texts that are token ids already."""
        batches = token_budget_batches(np.array([len(one) for one in ids]), BATCH_TOKENS)
        found: dict[int, np.ndarray] = {}
        for batch in batches:
            with torch.inference_mode():
                inputs = pad_batch([ids[row] for row in batch], self.tokenizer.pad_token_id)
                rows = self._vectors(**{name: one.to(self.model.device) for name, one in inputs.items()})
            found.update(zip(batch.tolist(), rows.cpu().numpy(), strict=True))
        return (found[row] for row in range(len(ids)))

    def _vectors(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        pooled = FastformerModel.forward(self.model, input_ids, attention_mask, pooled_only=True).pooler_output
        return torch.nn.functional.normalize(pooled.float(), dim=-1)


def similarity_scores(encode: Callable[[list[str]], np.ndarray], pairs: Iterable[tuple[str, str, float]]) -> dict:
    """How well cosines rank pairs of texts: Spearman's correlation with their scores, and Pearson's."""
    first, second, scores = zip(*pairs, strict=True) if (pairs := list(pairs)) else ((), (), ())
    if len(set(scores)) < 2:
        raise UserError("pairs with one score alone rank nothing; give pairs with different scores")
    cosines = (encode(list(first)) * encode(list(second))).sum(axis=1)
    return {"spearman": float(spearmanr(cosines, scores)[0]), "pearson": float(pearsonr(cosines, scores)[0])}


class EncoderPredictor(Predictor[EncoderSettings]):
    """A loaded encoder."""

    may_be_cut = True

    def __init__(self, trained: Trained[EncoderSettings]):
        super().__init__(trained)
        self.encode = TextVectors(self.model, self.tokenizer)

    def without_context(self) -> Self:
        """The same encoder without its layers: the mean of the token vectors."""
        config = FastformerConfig.from_dict(self.model.config.to_dict() | {"num_hidden_layers": 0, "neighbor_size": 0})
        table = FastformerModel(config).eval()
        table.set_input_embeddings(self.model.get_input_embeddings())
        return type(self)(replace(self.trained, model=table, run=None))  # the folder holds it with its layers

    def example(self, text: str) -> str:
        """A text is all that an example is."""
        return text

    def texts(self, examples: Sequence[Any]) -> list[list[str]]:
        """The one text of each example."""
        return given_texts(examples, self.settings.reading("test"))

    def vectors(self, examples: Iterable[Any]) -> Iterator[np.ndarray]:
        """Vectors (width,) of length 1; zeros for a text without any token."""
        return self.encode(texts_of(examples, self.settings))

    def predict(self, examples: Iterable[Any], options: Any = None) -> Iterator[dict[str, Any]]:
        """`{"vector": [0.0123, …]}`."""
        for vector in self.vectors(examples):
            yield {"vector": [round(float(number), 5) for number in vector]}

    def evaluate(self, examples: Iterable[tuple[str, str, float]], options: Any = None) -> dict[str, Any]:
        """How well its cosines rank pairs."""
        with progress_bar("Evaluating", show=self.show):
            pairs = list(examples)
            scores = similarity_scores(lambda texts: np.stack(list(self.encode(texts))), pairs)
        return {"rows": len(pairs), **scores}

    def notes(self) -> Iterator[str]:
        """How many texts were cut."""
        return self.encode.runner.notes()
