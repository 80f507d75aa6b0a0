"""News recommendation: rank news for a user by what the user clicked before, on data in MIND's layout."""

from fastformer.tasks.recommendation.verbs import embed, ensemble, evaluate, predict, recommend, train, zip_prediction

__all__ = ["embed", "ensemble", "evaluate", "predict", "recommend", "train", "zip_prediction"]
