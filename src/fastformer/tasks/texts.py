"""What tasks on single texts share: their settings, reading them, and the configuration of their encoder."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from fastformer.engine.settings import TaskSettings, option

if TYPE_CHECKING:
    from fastformer.data.keeping import Keep

STEPS = 1600
PASSES = 6
FEWEST_TOKENS, MOST_TOKENS = 2_000_000, 12_000_000
MOST_PASSES, MOST_EPOCHS = 40, 10
MEMORY_TOKENS = 1_000_000  # the longest text: it takes 2 GB in the encoder

DATA_HELP = (
    "CSV, TSV, JSONL or Parquet (plain or .gz), a folder of LABEL/*.txt, Amazon reviews, IMDB or MIND as published, a "
    "folder saved by `datasets`, a Hub name, or `builtin`."
)
MIXER_HELP = "fastformer, transformer, longformer, bigbird, linformer, linear or poolingformer."
TOKENIZER_HELP = "word, pieces, bpe, nltk, or the path of a saved tokenizer."
INIT_HELP = (
    "Start from a GloVe file (text, .gz or .zip), a folder with a transformers or sentence-transformers encoder, or an "
    "earlier run, whose tokenizer is used too unless --tokenizer is given."
)
WORD_VECTORS_HELP = (
    "Start the vectors of words from a GloVe file (text, .gz or .zip), or from a folder with a transformers or "
    "sentence-transformers encoder."
)
MAX_LENGTH_HELP = "Cut texts after so many tokens."
TEXT_COLUMN_HELP = "Column that holds the text; `title,body` joins several. Guessed when obvious."


@dataclass(frozen=True, kw_only=True)
class TextSettings(TaskSettings):
    """Settings of a model that reads one text."""

    text_column: str | None = option(None, TEXT_COLUMN_HELP, place="data")
    mixer: str = option("fastformer", MIXER_HELP, place="record")
    tokenizer: str = option("pieces", TOKENIZER_HELP)
    max_length: int = option(MEMORY_TOKENS, MAX_LENGTH_HELP, least=1)
    vocab_size: int = 30_000
    min_frequency: int = 2
    crop: int | None = None  # train on so many tokens in a row of a longer text, from another place in every epoch
    passes: int = 1  # over the training data, per epoch, that is, between two looks at the held-out texts

    def for_size(self, texts: int, tokens: int) -> Self:
        """Settle what is left open (`None`) by the size of the training data: texts, and tokens of one pass.

        Small data takes smaller batches and more passes, for STEPS in all, as far as the tokens allow; the table of
        word pairs needs no more rows than there are tokens.
        """
        training, model = self.training, dict(self.model)
        batch_size, epochs, passes = training.batch_size, training.epochs, self.passes
        if batch_size is None:
            batch_size = 32 if texts < 3000 else 64
        if epochs is None:
            allowed = min(max(PASSES * tokens, FEWEST_TOKENS), MOST_TOKENS) / max(1, tokens)
            epochs = min(MOST_PASSES, max(3, round(min(STEPS * batch_size / texts, allowed))))
            passes = -(-epochs // MOST_EPOCHS)
            epochs = round(epochs / passes)
        rate = 4e-3 if training.learning_rate is None else training.learning_rate
        if "bigram_buckets" in model:
            model["bigram_buckets"] = min(model["bigram_buckets"], 2 ** max(10, tokens.bit_length()))
        training = replace(training, batch_size=batch_size, epochs=epochs, learning_rate=rate)
        return replace(self, training=training, model=model, passes=passes)


@dataclass(frozen=True)
class Texts:
    """Texts of one or more sources, one after the other; can be read many times."""

    sources: tuple[str, ...]
    text_column: str | None
    split: str
    format: str | None = None

    def __iter__(self) -> Iterator[str]:
        from fastformer.data.tables import read_rows

        for source in self.sources:
            rows = read_rows(
                source, text_column=self.text_column, label_kind="none", split=self.split, format=self.format
            )
            yield from (row.text for row in rows)

    def with_fields(self, keep: "Keep") -> Iterator[tuple[dict[str, Any], str]]:
        """The texts, each with those fields of its row that are kept."""
        from fastformer.data.tables import read_texts_with_fields

        named = {"text_column": self.text_column, "split": self.split, "format": self.format}
        for source in self.sources:
            yield from ((fields, row.text) for fields, row in read_texts_with_fields(source, keep, **named))

    def check(self) -> "Texts":
        """Read one text of each source: a wrong file or column fails here, before any work."""
        for source in self.sources:
            if source != "-":
                next(iter(replace(self, sources=(source,))))
        return self


def encoder_config(settings: Any, tokenizer: Any, **own: Any) -> dict[str, Any]:
    """Keys of the configuration of a model that reads texts."""
    return {
        "max_position_embeddings": settings.max_length,
        **settings.model,
        "mixer": settings.mixer,
        "vocab_size": 1 + max(tokenizer.get_vocab().values()),  # saved tokenizers may have gaps
        "pad_token_id": tokenizer.pad_token_id,
        **own,
    }


def texts_of(examples: Iterable[Any], text_column: str | None) -> Iterator[str]:
    """The text of each example: a row's, a string itself, or that of a dictionary, whose columns the first decides."""
    from fastformer.data.tables import Row, read_rows

    examples = iter(examples)
    for example in examples:
        if isinstance(example, dict):
            rest = chain([example], examples)
            yield from (row.text for row in read_rows(rest, text_column=text_column, label_kind="none"))
        else:
            yield example.text if isinstance(example, Row) else example
