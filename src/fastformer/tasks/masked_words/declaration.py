"""What is known of masked words before anything is imported."""

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

15% of the words are hidden. The run is a start for a classifier with the same `--preset` and `--mixer`; `predict` fills
in every `[MASK]` of a text, `evaluate` gives the perplexity, `embed` mean token vectors.

Example: `fastformer train masked-words --train reviews.txt --output runs/words`""",
        settings=MaskedWordsSettings,
        task="fastformer.tasks.masked_words.task:MaskedWords",
        presets_file=Path(__file__).parents[1] / "classification" / "presets.toml",
        borrows_presets=True,
        data_help=f"Texts, with or without labels: {DATA_HELP} Or .txt, one text per line. Repeatable.",
        held_out="a tenth of --train, at most 1,000 texts",
        test_help=None,
        many_files=True,
        unit="text",
        predicting=Predicting,
        evaluate_help="A model of masked words has the perplexity of hidden words, and how many it finds.",
        predict_help="A model of masked words fills in every `[MASK]`: the five likeliest words of each, or as many as "
        "`--top` says.",
        embed_help="of masked words the mean of a text's token vectors",
        reads_texts=True,
        architectures=("FastformerForMaskedLM",),
    )
)
