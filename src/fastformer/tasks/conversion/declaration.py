"""The declaration of conversion prediction, which imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from fastformer.engine.settings import TaskSettings, limited, option, settled
from fastformer.tasks.base import Declaration, register
from fastformer.tasks.texts import MAX_LENGTH_HELP, MEMORY_TOKENS, MIXER_HELP, TOKENIZER_HELP, WORD_VECTORS_HELP

STEPS = 1000
FEWEST_EPOCHS, MOST_EPOCHS = 3, 8


@dataclass(frozen=True, kw_only=True)
class ConversionSettings(TaskSettings):
    """Settings of a conversion model."""

    numeric: tuple[str, ...] = option(
        (), "Side features that are numbers: `price,age`. Repeatable.", metavar="COLUMN,…", place="data"
    )
    categorical: tuple[str, ...] = option(
        (), "Side features that are categories: `device,country`. Repeatable.", metavar="COLUMN,…", place="data"
    )
    strict: bool = option(False, "Stop at a row without an ad or a label, which is otherwise left out.", place="data")
    mixer: str = option("fastformer", MIXER_HELP, place="record")
    user_mixer: str | None = option(None, "The mixer that reads behaviours [default: --mixer].", place="record")
    tokenizer: str = option("word", TOKENIZER_HELP)
    init: str | None = option(None, WORD_VECTORS_HELP, place="record")
    vocab_size: int = 50_000
    min_frequency: int = limited(2, least=0)  # among the distinct texts
    max_length: int = option(48, MAX_LENGTH_HELP, least=1, most=MEMORY_TOKENS)
    max_behaviors: int = option(50, "Read this many of the latest behaviours.", least=1, most=100_000)
    adapt_init: bool = True  # fit what --init gives to the data (warm_start.py)

    def for_size(self, rows: int) -> Self:
        """Settle the number of epochs if it is left open: about 1,000 steps in all, from 3 to 8 epochs."""
        if self.training.epochs is not None:
            return self
        epochs = round(STEPS * settled(self.training.batch_size) / rows)
        return self.with_options(epochs=min(MOST_EPOCHS, max(FEWEST_EPOCHS, epochs)))

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """The settings in a run.json; the side features are those that the run has learned."""
        features = record["features"]  # held to its type by the declaration
        numeric, categorical = tuple(features["numeric"]), tuple(features["categorical"])
        return replace(super().from_record(record), numeric=numeric, categorical=categorical)


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of `evaluate`."""

    plot: str | None = option(None, "Write a plot (.png) of how well the probabilities are calibrated.")


CONVERSION = register(
    Declaration(
        name="conversion",
        help="""Train a model that predicts whether a user converts on an ad, from what the user did before.

This is the paper's Ad CVR task. One encoder reads the texts of behaviours and ads, another reads the vectors of the
behaviours, and an MLP scores user, ad, their product and the side features.

Example: `fastformer train conversion --train log.jsonl --numeric price --categorical device --output runs/ads`""",
        settings=ConversionSettings,
        record={"features": dict[str, dict[str, tuple[float, float] | list[str]]]},
        task="fastformer.tasks.conversion.task:Conversion",
        presets_file=Path(__file__).with_name("presets.toml"),
        data_help="Events: .jsonl or .parquet (or .gz) with the columns behaviors (a list of texts, the latest last), "
        "ad (a text), label (0 or 1) and optionally time; or `builtin`, simulated ones.",
        held_out="the last tenth of --train by time, or a random one if no row has a time",
        test_help="Events that are only scored, at the end.",
        evaluating=EvaluateOptions,
        short_names={"auc": "AUC", "calibration_error": "ECE"},
        evaluate_help="A conversion model has AUC, log loss and ECE.",
        predict_help="A conversion model writes the probability that the user converts.",
        embed_help="A conversion model writes the vector of each user, made of the user's behaviours.",
    )
)
