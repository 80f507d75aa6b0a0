"""News recommendation: rank articles for a user by what the user clicked before, on data in MIND's layout."""

from fastformer.lazy import lazy_names

_PLACES = {
    "Recommender": "fastformer.tasks.recommendation.model",
    "recommend": "fastformer.tasks.recommendation.model",
    "recommend_to_all": "fastformer.tasks.recommendation.model",
    "ensemble": "fastformer.tasks.recommendation.ensembles",
    "import_clicks": "fastformer.tasks.recommendation.tables",
}

__all__ = [*_PLACES]

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
