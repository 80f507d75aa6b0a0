"""The declaration of recommendation, which imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path

from fastformer.engine.settings import TaskSettings, limited, option
from fastformer.tasks.base import Declaration, register
from fastformer.tasks.texts import WORD_VECTORS_HELP


@dataclass(frozen=True, kw_only=True)
class RecommendationSettings(TaskSettings):
    """Settings of a recommender."""

    recommender: str = option(
        "fastformer", "fastformer, nrms, fim, plm-nr or fastformer+plm-nr.", name="model", place="record"
    )
    news_mixer: str | None = option(None, "Mixer that reads titles [default: the model's].", place="record")
    user_mixer: str | None = option(None, "Mixer that reads histories [default: the model's].", place="record")
    plm: str | None = option(
        None, "Folder with a transformers encoder that reads titles (plm-nr).", metavar="DIR", place="record"
    )
    plm_layers: int | None = option(  # None: all of them
        None,
        "Train this many of the last layers of --plm [default: 0, so that it reads each title once; preset paper: 2].",
        least=0,
    )
    init: str | None = option(None, WORD_VECTORS_HELP, place="record")
    fields: tuple[str, ...] = option(("title",), "Columns of news.tsv to read: title,category,subcategory,abstract.")
    max_length: int = option(
        help="Cut titles after this many tokens.", also=("title-length",), key="title_length", least=1, most=10_000
    )
    history_length: int = option(help="Read this many of the latest clicks.", least=1, most=100_000)
    negatives: int = option(help="Non-clicks drawn beside each click.", least=1, most=10_000)
    tokenizer: str = "word"  # word, bpe or nltk; a pre-trained encoder brings its own
    vocab_size: int = 30_000
    min_frequency: int = limited(1, least=0)  # in titles: a word of one title tells it from all others
    adapt_init: bool = True  # fit what --init gives to the data (warm_start.py); the paper takes GloVe as it is


@dataclass(frozen=True)
class Evaluating:
    """Options of `evaluate`."""

    floors: bool = option(True, "Score popularity and co-occurrence of the training clicks beside the model.")


@dataclass(frozen=True)
class Predicting:
    """Options of `predict`."""

    scores: bool | None = option(None, "Write the score of every candidate beside its rank.")


RECOMMENDATION = register(
    Declaration(
        name="recommendation",
        help="""Train a news recommender on data in MIND's layout.

`fastformer` is the paper's hierarchical model: it reads titles into vectors of articles, and clicked articles into a
vector of the user. `nrms` does so with plain self-attention. `plm-nr` and `fastformer+plm-nr` read titles with a
pre-trained encoder (--plm). `fim` matches titles word by word. Afterwards `recommend` prints what a user may like;
`evaluate` and `predict` read folders of MIND.

Example: `fastformer train recommendation --train MINDsmall_train --validation MINDsmall_dev --output runs/news`""",
        settings=RecommendationSettings,
        record={"model": str, "members": int},
        task="fastformer.tasks.recommendation.task:Recommendation",
        presets_file=Path(__file__).with_name("presets.toml"),
        data_help="Folder with MIND's news.tsv and behaviors.tsv, or `builtin`, simulated clicks.",
        held_out="the last tenth of --train by time, about 5,000 impressions at most",
        test_help="Folder with labels that is only scored, at the end.",
        unit="impression",
        predicting=Predicting,
        evaluating=Evaluating,
        evaluate_help="A recommender has AUC, MRR, nDCG@5 and nDCG@10, averaged over impressions, beside those of "
        "popularity and co-occurrence, which read no text.",
        predict_help="A recommender reads a folder of MIND and writes the leaderboard's `prediction.txt`, and its .zip "
        "beside --output.",
        embed_help="A recommender reads a folder of MIND and writes the vector of each article.",
        short_names={"auc": "AUC", "mrr": "MRR", "ndcg@5": "nDCG@5", "ndcg@10": "nDCG@10"},
    )
)
