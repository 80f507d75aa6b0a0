"""The declaration of text classification, which imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastformer.engine.settings import option
from fastformer.tasks.base import Declaration, register
from fastformer.tasks.texts import DATA_HELP, INIT_HELP, TextSettings

LABEL_COLUMN_HELP = "Column that holds the label. Guessed when obvious."


@dataclass(frozen=True, kw_only=True)
class ClassificationSettings(TextSettings):
    """Settings of a text classifier."""

    label_column: str | None = option(None, LABEL_COLUMN_HELP, place="data")
    regression: bool = option(False, "Labels are numbers, not classes.")
    init: str | None = option(
        None,
        INIT_HELP + " Without it a classifier has the English word vectors of `base`; `none` switches them off.",
        place="record",
    )
    class_weight: str | None = option(
        None,
        "balanced: every class counts the same, however rare; better recall of rare ones, less accuracy. "
        "For one label per text.",
    )
    ngrams: bool = False  # put the n-gram channel beside the encoder (ngrams.py)
    meanings: bool = False  # the channel knows what words mean from other texts (tasks/encoder/words.py)
    adapt_init: bool = True  # fit what --init gives to the data (warm_start.py); the paper takes GloVe as it is


@dataclass(frozen=True)
class Predicting:
    """Options of `predict`."""

    top: int | None = option(None, "Only the K largest probabilities, in falling order.", metavar="K")
    threshold: float | None = option(
        None,
        "Give no label that is less probable, so that a text may get none (null). For several labels per text it "
        "replaces the learned thresholds.",
        metavar="P",
    )


@dataclass(frozen=True)
class Evaluating:
    """Options of `evaluate`."""

    report: Path | None = option(
        None,
        "Write report.md, report.json and a picture here: precision, recall and F1 of each class, and which classes "
        "are confused; for numbers, predicted against true.",
        metavar="DIR",
    )
    by_class: bool = option(True, "Also report the scores of each class; for numbers, the quantiles of the errors.")


@dataclass(frozen=True)
class Explaining:
    """What a server is asked to explain."""

    text: str = option(help="The text.")
    label: str | None = option(None, "The label to explain; by default the most probable one.")
    baseline: str = option("zero", "What effects are measured from: `zero`, or the `mean` token of the text.")


CLASSIFICATION = register(
    Declaration(
        name="classification",
        help="""Train a text classifier.

Labels may be strings or integers; lists of labels (JSONL, Parquet; `a|b` in CSV) train a multi-label model. The
default preset reads whole texts of up to a million tokens. Texts longer than --max-length are cut, and a line says how
many. The file may be larger than memory. Ctrl-C leaves a checkpoint, from which `--resume` continues.

Presets: `default`; `encoder`, the same without the n-gram channel; `paper-amazon`, `paper-imdb` and `paper-mind`, the
paper's settings.

Example: `fastformer train classification --train reviews.csv --test held-out.csv --output runs/reviews`""",
        settings=ClassificationSettings,
        task="fastformer.tasks.classification.task:Classification",
        presets_file=Path(__file__).with_name("presets.toml"),
        data_help=f"Training data: {DATA_HELP}",
        held_out="a tenth of --train, at most 5,000 rows; up to three tenths if it has fewer than 3,000 rows",
        sources={
            "unlabelled": "Texts without labels, in any format of --train: their words join the vocabulary, and the "
            "model learns which words go together in them, if that scores better on held-out rows."
        },
        predicting=Predicting,
        evaluating=Evaluating,
        short_names={
            "macro_f": "macro-F",
            "micro_f": "micro-F",
            "f1": "F1",
            "calibration_error": "ECE",
            "texts_per_second": "texts/s",
            "largest_difference": "off by",
        },
        evaluate_help="A classifier has accuracy, macro-F, and ECE, the expected calibration error: how far its "
        "probabilities are from the share of right answers.",
        predict_help="A classifier writes the label of each text and all probabilities.",
        embed_help="A classifier writes the vector of each text.",
        light="fastformer.tasks.classification.light:LightClassifier",
        reads_texts=True,
        architectures=("FastformerForSequenceClassification",),
        record={
            "label_kind": Literal["single", "multi", "number"],
            "classes": list[str | int | float | bool],
            "indicator_columns": list[str | int],
        },
    )
)
