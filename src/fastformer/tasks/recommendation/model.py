"""`Recommender`: a news recommender as a Python object; `recommend`: the verb of the command line."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastformer.engine.settings import settled
from fastformer.runs.folder import Run
from fastformer.tasks.model import TaskModel
from fastformer.tasks.recommendation.articles import Articles
from fastformer.tasks.recommendation.ensembles import MEMBERS, ensemble
from fastformer.tasks.recommendation.mind import read_mind
from fastformer.tasks.recommendation.predictor import Ensemble, Ranker, check_task
from fastformer.tasks.verbs import load


class Recommender(TaskModel[Ranker]):
    """Ranks articles for people by what they clicked before. It learns from a folder in MIND's layout.

    recommender = Recommender(seed=0).fit("builtin")  # simulated clicks on first lines of docstrings
    best = recommender.recommend(["N771", "N558"], top=2)  # of pandas both
    print([(one["id"], one["title"], one["category"]) for one in best])
    print(recommender.predict([{"history": ["N771"], "candidates": ["N578", "N763", "N461"]}]))

    It prints, with other articles where other packages are installed:

    [('N775', 'Intended to be a drop-in replacement for LIBRARY.argsort which handles NaNs.', 'pandas'),
     ('N679', 'Raise ValueError if the `names` parameter contains duplicates or has an', 'pandas')]
    [{'ranks': [3, 1, 2]}]

    A rank is that of a candidate: N763 is the best of the three. Settings are those of `fastformer train
    recommendation`; the kind of model (`--model`) is called `recommender` here.
    """

    task = "recommendation"

    def recommend(self, history: Iterable[str] = (), top: int = 10) -> list[dict[str, Any]]:
        """The best articles for somebody who clicked `history` (ids, oldest first), best first."""
        return self.predictor.recommend(history, top)

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Save as a run folder, which the command line reads too; a finished run there is kept unless `overwrite`."""
        if isinstance(self.predictor, Ensemble):
            run = settled(self.predictor.trained.run)
            members = sorted((run.folder / MEMBERS).iterdir(), key=lambda path: int(path.name))
            ensemble(members, folder)
        else:
            super().save(folder, overwrite)


def recommend(
    run: Run | str | Path,
    history: str | Iterable[str] = (),
    *,
    top: int = 10,
    news: str | None = None,
    show_progress: bool = True,
) -> list[dict[str, Any]]:
    """The best articles for somebody who clicked `history` (ids, oldest first, or one text with commas), best first.

    Chosen from `news`, a folder of MIND, or from what the run was trained on; what was clicked already is left out, and
    what has no title.
    """
    ranker: Any = load(check_task(run), show_progress)
    given = history.split(",") if isinstance(history, str) else history
    ids = [name for one in given if (name := one.strip())]
    choice = None if news is None else Articles(read_mind(news, show_progress=show_progress).news, news)
    return ranker.recommend(ids, top, choice)
