"""What a server offers for a recommender: `recommend`, and `articles` to choose from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from fastformer.engine.settings import option
from fastformer.errors import UserError
from fastformer.tasks.base import Service

if TYPE_CHECKING:
    from fastformer.tasks.recommendation.predictor import Ranker

MOST_WORDS = 32  # of a search: each is looked for in all titles
_SHOWN = ["id", "title", "category"]


@dataclass(frozen=True)
class Recommending:
    """What is known of somebody."""

    history: list[str] = option((), "Ids of clicked articles, the oldest first.")
    texts: list[str] = option((), "Titles clicked after those, of articles that the run need not know.")
    top: int = option(10, "How many articles.", least=1, most=1000)


@dataclass(frozen=True)
class Finding:
    """Which articles are looked for."""

    query: str = option("", "Words of the title or the category; without any, the first articles.")
    top: int = option(20, "How many articles.", least=1, most=1000)


def recommender_services(ranker: "Ranker") -> Sequence[Service]:
    """`POST /recommend` and `POST /articles` of a server."""

    def recommend(request: Recommending) -> list[dict[str, Any]]:
        return ranker.recommend(request.history, request.top, texts=[*request.texts])

    def find(request: Finding) -> list[dict[str, Any]]:
        found = ranker.articles.table.select(_SHOWN).take(ranker.articles.titled)
        words = dict.fromkeys(request.query.split())
        if len(words) > MOST_WORDS:
            raise UserError(f"`query` has {len(words):,} different words, and {MOST_WORDS} are the most; give fewer")
        for word in words:
            texts = pc.binary_join_element_wise(found["title"], found["category"], " ")
            found = found.filter(pc.match_substring(texts, word, ignore_case=True))
        return found.slice(0, request.top).to_pylist()

    ids = ranker.articles.table["id"][:2].to_pylist()
    return (
        Service(
            name="recommend",
            help="The best articles for somebody who clicked some before, best first.",
            request=Recommending,
            answer=recommend,
            example={"history": ids, "top": 3},
            panel="choose",
        ),
        Service(
            name="articles",
            help="Articles to choose from, by words of their titles.",
            request=Finding,
            answer=find,
            example={"query": "", "top": 3},
        ),
    )
