"""The declaration of summarization, which imports nothing heavy."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from fastformer.engine.settings import limited, option, settled
from fastformer.tasks.base import Declaration, register
from fastformer.tasks.texts import INIT_HELP, MEMORY_TOKENS, MIXER_HELP, TOKENIZER_HELP, TableSettings

LANGUAGE_HELP = (
    "A two-letter code. en: words are stemmed for ROUGE; else they are not [default: en, unless more than 1% of the "
    "letters have accents or are of another script]."
)
RUN_BEAMS_HELP = "Beam size [default: the run's]."
MOST_BEAMS, MOST_WRITTEN = 100, 10_000  # what memory has room for
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1000, 4, 15


@dataclass(frozen=True, kw_only=True)
class SummarizationSettings(TableSettings):
    """Settings of a summarizer."""

    text_column: str | None = option(
        None,
        "Column that holds the article. Guessed when obvious.",
        name="article-column",
        also=("text-column",),
        place="data",
    )
    label_column: str | None = option(
        None,
        "Column that holds the summary. Guessed when obvious.",
        name="summary-column",
        also=("label-column",),
        place="data",
    )
    language: str | None = option(None, LANGUAGE_HELP, place="record")
    mixer: str = option("fastformer", MIXER_HELP, place="record")
    tokenizer: str = option(help=TOKENIZER_HELP)
    init: str | None = option(None, INIT_HELP, place="record")
    copy: bool | None = option(None, "Let it copy words of the article [default: the preset's].")
    max_length: int = option(help="Cut articles after this many tokens.", least=1, most=MEMORY_TOKENS)
    max_summary_length: int = option(
        help="Most tokens of a summary, including its end mark.", least=2, most=MOST_WRITTEN
    )
    beams: int = option(5, "Beam size.", least=1, most=MOST_BEAMS)
    vocab_size: int
    min_frequency: int = limited(2, least=0)
    no_repeat_ngrams: int = limited(0, least=0)  # a run of so many words is not written twice (repeats.py); 0: it may
    length_penalty: float = 1.0  # a summary's score is its log-probability by its length to this power
    adapt_init: bool = True  # fit what --init gives to the data (warm_start.py); the paper takes GloVe as it is
    follow: bool = True  # summarize some validation documents after every epoch, which changes nothing but the time

    def with_copying(self) -> Self:
        """A copy in which the model's configuration has what `copy` says, and `copy` is None."""
        if self.copy is None:
            return self
        return replace(self, copy=None, model={**self.model, "copy_mechanism": self.copy})

    def for_size(self, documents: int) -> Self:
        """Settle the epochs, if they are left open: about 1,000 steps in all, from 4 to 15 epochs."""
        if self.training.epochs is not None:
            return self
        epochs = min(MOST_EPOCHS, max(FEWEST_EPOCHS, round(STEPS * settled(self.training.batch_size) / documents)))
        return replace(self, training=replace(self.training, epochs=epochs))


@dataclass(frozen=True)
class Predicting:
    """Options of `predict`."""

    beams: int | None = option(None, RUN_BEAMS_HELP, least=1, most=MOST_BEAMS)


@dataclass(frozen=True)
class Evaluating:
    """Options of `evaluate`."""

    language: str | None = option(None, "A two-letter code; words are stemmed if it is en [default: the run's].")
    beams: int | None = option(None, RUN_BEAMS_HELP, least=1, most=MOST_BEAMS)


@dataclass(frozen=True)
class Summarizing:
    """What a server is asked to summarize."""

    text: str = option(help="The text.")
    beams: int | None = option(None, RUN_BEAMS_HELP, least=1, most=20)


SUMMARIZATION = register(
    Declaration(
        name="summarization",
        help="""Train a summarizer: an encoder with any of the seven methods, and a Transformer decoder that writes.

`summarize` then prints the summary of a document, `predict` those of a file, `evaluate` scores them by ROUGE.
Articles longer than --max-length are cut. Ctrl-C leaves a checkpoint, from which `--resume` continues.

Example: `fastformer train summarization --train news.jsonl --test held-out.jsonl --output runs/news`""",
        settings=SummarizationSettings,
        task="fastformer.tasks.summarization.task:Summarization",
        presets_file=Path(__file__).with_name("presets.toml"),
        data_help="Documents: CSV, TSV, JSONL, Parquet or .xlsx (plain, .gz, .xz or .zip) with article and summary "
        "columns, .story files of CNN/DailyMail in a folder, PubMed or arXiv of Cohan et al., a folder saved by "
        "`datasets`, a Hub name, or `builtin`.",
        held_out="a tenth of --train, at most 1,000 documents",
        test_help="Documents that are only scored, at the end.",
        unit="document",
        predicting=Predicting,
        evaluating=Evaluating,
        evaluate_help="A summarizer has ROUGE, beside that of the first sentences of an article and of random ones.",
        predict_help="A summarizer writes the summary of each article and its score, the mean log-probability of its "
        "tokens.",
        embed_help="A summarizer writes the mean of each article's token vectors, which its encoder makes.",
        reads_texts=True,
        architectures=("FastformerForConditionalGeneration",),
    )
)
