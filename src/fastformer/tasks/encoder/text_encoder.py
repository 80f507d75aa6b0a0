"""`TextEncoder`: vectors of texts in Python, with the shipped encoder or one of your own.

from fastformer import TextEncoder

encoder = TextEncoder()
encoder.similarity(["A man plays the guitar."], ["Somebody makes music.", "The bank was closed."])
encoder.search("where to borrow money", texts, top=3)
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from fastformer.data.frames import only_column
from fastformer.data.passages import best_passages, passages_of
from fastformer.engine.inference import chunks
from fastformer.errors import UserError
from fastformer.runs.folder import open_run
from fastformer.tasks.base import load_run
from fastformer.tasks.encoder.predictor import EncoderPredictor

BASE = "base"


class Found(NamedTuple):
    """A text that was searched for: its place among the texts, the cosine of its best passage with the query, both."""

    place: int
    score: float
    text: str
    passage: str


class TextEncoder(TransformerMixin, BaseEstimator):
    """Texts to vectors of length 1, so that a product of two vectors is their cosine.

    model: `base`, or the folder of an encoder that `fastformer train encoder` left.
    width: cut vectors to so many numbers (and make them of length 1 again); None leaves them whole.
    context: False takes the mean of the token vectors alone, without the layers over them: about ten times as fast, and
        blind to the order of words.

    It is a transformer of scikit-learn too: `make_pipeline(TextEncoder(), LogisticRegression())`.
    """

    def __init__(self, model: str | Path = BASE, width: int | None = None, context: bool = True):
        self.model = model
        self.width = width
        self.context = context

    def encode(self, texts: Iterable[str] | str, width: int | None = None) -> np.ndarray:
        """Vectors (texts, width), float32, in their order; of one string, its vector (width,).

        A text without any word has zeros.
        """
        if isinstance(texts, str):
            return self.encode([texts], width)[0]
        vectors = list(self.stream(texts, width))
        return np.stack(vectors) if vectors else np.zeros((0, self._width(width)), dtype=np.float32)

    def stream(self, texts: Iterable[str], width: int | None = None) -> Iterator[np.ndarray]:
        """The same, one after the other, for more texts than memory holds."""
        width = self._width(width)
        for vector in self.predictor().vectors(_checked(texts)):
            yield vector if width == len(vector) else _of_length_one(vector[:width])

    def similarity(
        self, first: Sequence[str] | np.ndarray, second: Sequence[str] | np.ndarray | None = None
    ) -> np.ndarray:
        """Cosines (first, second) of texts or vectors; with one argument those among themselves."""
        one, other = (
            some if isinstance(some, np.ndarray) else self.encode([some] if isinstance(some, str) else some)
            for some in (first, first if second is None else second)
        )
        return one @ other.T

    def search(self, query: str, texts: Iterable[str], top: int = 10) -> list[Found]:
        """The texts nearest to the query, the best first. Texts are read once, and may be any number.

        A long text is as near as the nearest of its passages, of PASSAGE_WORDS words each: so a fact is found wherever
        it stands.
        """
        wanted = self.encode(query)
        best: list[tuple[float, int, str, str]] = []
        place = 0
        for chunk in chunks(_checked(texts)):
            passages = [passages_of(text) for text in chunk]
            scores = self.encode([passage for some in passages for passage in some]) @ wanted
            for text, (score, passage) in zip(chunk, best_passages(passages, scores), strict=True):
                best.append((score, -place, text, passage))
                place += 1
            best = heapq.nlargest(top, best)
        return [Found(-minus, score, text, passage) for score, minus, text, passage in best]

    def fit(self, texts: Any = None, labels: Any = None) -> Self:
        """Nothing is left to learn; the model is loaded."""
        self.predictor()
        return self

    def transform(self, texts: Iterable[str]) -> np.ndarray:
        """`encode`, as scikit-learn calls it."""
        return self.encode(texts)

    def get_feature_names_out(self, names: Any = None) -> np.ndarray:
        """Names of the numbers of a vector."""
        return np.array([f"vector{number}" for number in range(self._width(None))], dtype=object)

    def predictor(self) -> EncoderPredictor:
        """The loaded model."""
        loaded: Any = getattr(self, "_loaded", None)  # what was asked for, and its predictor
        if loaded is None or loaded[0] != (self.model, self.context):
            run = open_run(self.model)
            if run.task != "encoder":
                raise UserError(f"{self.model}: a run of {run.task}; TextEncoder loads encoders only")
            predictor: Any = load_run(run)
            loaded = (self.model, self.context), predictor if self.context else predictor.without_context()
            self._loaded = loaded
        return loaded[1]

    def _width(self, width: int | None) -> int:
        whole = self.predictor().width
        width = next((one for one in (width, self.width) if one is not None), whole)
        if not 1 <= width <= whole:
            raise UserError(f"width {width}: the vectors of {self.model} have {whole} numbers; give 1 to {whole}")
        return width

    def __getstate__(self) -> dict[str, Any]:
        """The path of the model, which holds wherever this is unpickled, and not the model."""
        state = {name: value for name, value in super().__getstate__().items() if name != "_loaded"}
        folder = Path(self.model)
        return {**state, "model": str(folder.resolve())} if folder.is_dir() else state

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """Texts, one after the other."""
    for number, text in enumerate(only_column(texts, "texts"), 1):
        if not isinstance(text, str):
            raise UserError(f"text {number} is {type(text).__name__}, not a string; give texts as strings")
        yield text


def _of_length_one(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def search(
    source: str, query: str, *, model: str | Path = BASE, top: int = 10, text_column: str | None = None
) -> list[Found]:
    """The texts of a file that are nearest to a query."""
    from fastformer.data.tables import Reading
    from fastformer.tasks.texts import Texts

    if not query.strip():
        raise UserError("the query is empty; say what to look for")
    texts = Texts((str(source),), Reading(text_column, split="train"), every_row=True)  # places are those of its rows
    return TextEncoder(model).search(query, texts, top)
