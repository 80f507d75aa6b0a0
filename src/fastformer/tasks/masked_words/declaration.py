"""The declaration of masked words, which imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path

from fastformer.engine.settings import option
from fastformer.tasks.base import Declaration, register
from fastformer.tasks.texts import DATA_HELP, TextSettings


@dataclass(frozen=True, kw_only=True)
class MaskedWordsSettings(TextSettings):
    """Settings of a training on hidden words."""


@dataclass(frozen=True)
class Predicting:
    """Options of `predict`."""

    top: int = option(5, "Only the K largest probabilities, in falling order.", metavar="K")


MASKED_WORDS = register(
    Declaration(
        name="masked-words",
        help="""Learn from text without labels, by filling in hidden words: a start for `train classification --init`.

15% of the words are hidden. A classifier with the same `--preset` and `--mixer` can start from the run. `predict` fills
in every `[MASK]` of a text, `evaluate` gives the perplexity, `embed` mean token vectors.

Example: `fastformer train masked-words --train reviews.txt --output runs/words`""",
        settings=MaskedWordsSettings,
        task="fastformer.tasks.masked_words.task:MaskedWords",
        presets_file=Path(__file__).parents[1] / "classification" / "presets.toml",
        borrows_presets="classification",
        data_help=f"Texts, with or without labels: {DATA_HELP} Or .txt, one text per line. Repeatable.",
        held_out="a tenth of --train, at most 1,000 texts",
        test_help=None,
        many_files=True,
        unit="text",
        predicting=Predicting,
        evaluate_help="A model of masked words has the perplexity of hidden words, and the share of right guesses.",
        predict_help="A model of masked words fills in every `[MASK]` with the five most probable words, or with "
        "`--top` words.",
        embed_help="A model of masked words writes the mean of each text's token vectors.",
        reads_texts=True,
        architectures=("FastformerForMaskedLM",),
    )
)
