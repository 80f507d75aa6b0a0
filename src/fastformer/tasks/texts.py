"""What tasks on single texts share: their settings, reading them, and the configuration of their encoder."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from fastformer.engine.settings import TaskSettings, found, limited, option

if TYPE_CHECKING:
    from fastformer.data.keeping import Keep
    from fastformer.data.opening import Format
    from fastformer.data.tables import Reading

STEPS = 1600
PASSES = 6
FEWEST_TOKENS, MOST_TOKENS = 2_000_000, 12_000_000
MOST_PASSES, MOST_EPOCHS = 40, 10
MEMORY_TOKENS = 1_000_000  # the longest text: it takes 2 GB in the encoder

DATA_HELP = (
    "CSV, TSV, JSONL, Parquet or .xlsx (plain, .gz, .xz or .zip), fastText's lines, a folder of LABEL/*.txt, Amazon "
    "reviews, IMDB or MIND as published, a folder saved by `datasets`, a Hub name, or `builtin`."
)
MIXER_HELP = "fastformer, transformer, longformer, bigbird, linformer, linear or poolingformer."
TOKENIZER_HELP = "word, pieces, bpe, nltk, or the path of a saved tokenizer."
INIT_HELP = (
    "Start from a GloVe file (text, .gz or .zip), a folder with a transformers or sentence-transformers encoder (or "
    "its name on the Hub, or `base`), or an earlier run, whose tokenizer is used too unless --tokenizer is given."
)
WORD_VECTORS_HELP = (
    "Start the vectors of words from a GloVe file (text, .gz or .zip), or from a folder with a transformers or "
    "sentence-transformers encoder, or `base`."
)
MAX_LENGTH_HELP = "Cut texts after this many tokens."
TEXT_COLUMN_HELP = "Column that holds the text; `title,body` joins several. Guessed when obvious."
SEPARATOR_HELP = "Character between the fields of CSV: `;`, `tab`, … Found by itself when obvious."
HEADER_HELP = "Whether the first row of a table names its columns; if not, they are called 1, 2, …"
STRICT_HELP = "Stop at a row without a text or a label, which is otherwise left out and counted."


@dataclass(frozen=True, kw_only=True)
class TableSettings(TaskSettings):
    """How a table is read whose columns hold texts."""

    separator: str | None = option(None, SEPARATOR_HELP, metavar="CHAR", place="data")
    header: bool = option(True, HEADER_HELP, place="data")
    strict: bool = option(False, STRICT_HELP, place="data")
    texts_from: tuple[str, ...] = found(())  # the columns that the training data was read from
    labels_from: tuple[str, ...] = found(())

    def reading(self, split: str, format: "Format | None" = None) -> "Reading":
        """How a source is read with these settings."""
        from fastformer.data.tables import Reading

        return Reading(
            getattr(self, "text_column", None),
            getattr(self, "label_column", None),
            format,
            self.separator,
            self.header,
            split,
            self.strict,
            self.texts_from,
            self.labels_from,
        )

    def having_read(self, data: Mapping[str, Any], show: bool) -> Self:
        """A copy that knows which columns the training data was read from; a line says it, if asked to `show`.

        For other data a line says so only if the columns differ.
        """
        from fastformer.surroundings.progress import say

        train = data["train"].reading.chosen if hasattr(data["train"], "reading") else {}
        for split, part in data.items():
            if show and train and (split == "train" or not _same_columns(part.reading.chosen, train)):
                say(f"{part.name}: {part.reading.columns_read()}.")
        return replace(self, texts_from=train.get("texts", ()), labels_from=train.get("labels", ()))


def _same_columns(these: Mapping[str, Any], those: Mapping[str, Any]) -> bool:
    """Whether two sources were read from the same columns; one that has no columns differs in nothing."""
    return not these or all(these[role] in ((), those[role]) for role in ("texts", "labels"))


def say_other_columns(settings: TableSettings, part: Any, show: bool) -> None:
    """Say which columns are read if they are not those of the training."""
    from fastformer.surroundings.progress import say

    trained = {"texts": settings.texts_from, "labels": settings.labels_from}
    if show and settings.texts_from and not _same_columns(part.reading.chosen, trained):
        trained_on = " and ".join(f"`{name}`" for name in settings.texts_from)
        say(f"{part.name}: {part.reading.columns_read()}; in training the text was from {trained_on}.")


@dataclass(frozen=True, kw_only=True)
class TextSettings(TableSettings):
    """Settings of a model that reads one text."""

    text_column: str | None = option(None, TEXT_COLUMN_HELP, place="data")
    mixer: str = option("fastformer", MIXER_HELP, place="record")
    tokenizer: str = option("pieces", TOKENIZER_HELP)
    max_length: int = option(MEMORY_TOKENS, MAX_LENGTH_HELP, least=1, most=MEMORY_TOKENS)
    vocab_size: int = 30_000
    min_frequency: int = limited(2, least=0)
    # train on this many consecutive tokens of a longer text, from another place in every epoch
    crop: int | None = limited(None, least=1)
    passes: int = limited(1, least=1)  # over the training data, per epoch: between two looks at the held-out texts

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
    reading: "Reading"
    every_row: bool = False  # is to be answered, whether or not it has a text

    @property
    def name(self) -> str:
        """What messages call it."""
        return ", ".join(map(str, self.sources))

    def __iter__(self) -> Iterator[str]:
        from fastformer.data.tables import read_rows

        for source in self.sources:
            rows = read_rows(source, self.reading, label_kind="none", every_row=self.every_row)
            yield from (row.text for row in rows)

    def with_fields(self, keep: "Keep") -> Iterator[tuple[dict[str, Any], str]]:
        """The texts, each with those fields of its row that are kept."""
        from fastformer.data.tables import read_texts_with_fields

        for source in self.sources:
            yield from ((fields, row.text) for fields, row in read_texts_with_fields(source, keep, self.reading))

    def check(self) -> "Texts":
        """Read one text of each source: a wrong file or column fails here, before any work; a pipe is read once."""
        from fastformer.data.opening import reads_once

        for source in self.sources:
            if not reads_once(source):
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


def texts_of(examples: Iterable[Any], settings: TableSettings) -> Iterator[str]:
    """The text of each example: a row's, a string itself, or that of a dictionary, whose columns the first decides."""
    from fastformer.data.frames import as_records, check_several
    from fastformer.data.tables import Row, read_rows

    check_several(examples, "texts")
    examples, reading = iter(as_records(examples)), settings.reading("test")
    for example in examples:
        if isinstance(example, dict):
            rest = chain([example], examples)
            yield from (row.text for row in read_rows(rest, reading, label_kind="none", every_row=True))
        else:
            yield example.text if isinstance(example, Row) else example
