"""`Recommender`: a news recommender as a Python object; `recommend`: the verb of the command line."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from fastformer.data.answers import Write, check_ending, write_lines, writing_answers
from fastformer.data.columns import recognise_column
from fastformer.data.formats import picker
from fastformer.data.opening import Layout
from fastformer.data.tables import called, open_records
from fastformer.data.values import is_missing, kind_of
from fastformer.engine.settings import settled
from fastformer.errors import UserError
from fastformer.runs.folder import Run
from fastformer.surroundings.files import check_apart
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks.model import TaskModel
from fastformer.tasks.recommendation.articles import Articles
from fastformer.tasks.recommendation.ensembles import MEMBERS, ensemble
from fastformer.tasks.recommendation.mind import read_mind
from fastformer.tasks.recommendation.predictor import Ensemble, Ranker, check_task
from fastformer.tasks.recommendation.tables import USER_COLUMNS
from fastformer.tasks.verbs import load

_AT_ONCE = 64  # users between two moves of the progress bar


class Recommender(TaskModel[Ranker]):
    """Ranks articles for people by what they clicked before. It learns from a folder in MIND's layout.

    recommender = Recommender(seed=0).fit("builtin")  # simulated clicks on first lines of docstrings
    best = recommender.recommend(["N771", "N558"], top=2)  # of pandas both
    print([(one["id"], one["title"], one["category"]) for one in best])
    print(recommender.predict([{"history": ["N771"], "candidates": ["N578", "N763", "N461"]}]))

    It prints, with other articles if other packages are installed:

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


def check_users(history: str | Iterable[str], users: Any, output: Any) -> None:
    """Refuse options for one user together with those for many."""
    if users is not None and history:
        raise UserError("--history: is of one user, and each one of --users has a history; give only one of the two")
    if users is None and output is not None:
        raise UserError(f"--output {output}: has what is recommended to --users; give these too, or leave it out")


def recommend_to_all(
    run: Run | str | Path,
    users: str | Path | Iterable[dict[str, Any]],
    output: str | Path | TextIO | None = None,
    *,
    top: int = 10,
    news: str | None = None,
    show_progress: bool = True,
) -> int:
    """Write a line per user of a file, in their order: `{"user": …, "recommendations": [{"id": …, …}, …]}`.

    A row of `users` has a `user` and a `history`, ids of what was clicked, oldest first: a list, or one text with
    spaces or commas. Without `output` lines go to standard output. Articles are read once for all users. Returns how
    many users there were.
    """
    check_apart(output, users)
    ranker: Any = load(check_task(run))
    if news is not None:
        ranker.articles = Articles(read_mind(news, show_progress=show_progress).news, news)
    answers = ({"user": user, "recommendations": ranker.recommend(history, top)} for user, history in read_users(users))
    destination: AbstractContextManager[Write]
    if isinstance(output, str | Path):
        check_ending(output)
        destination = writing_answers(output, ranker.line)
    else:
        destination = nullcontext(partial(write_lines, output or sys.stdout, line=ranker.line))
    count = 0
    with destination as write, progress_bar("Recommending", show=show_progress) as advance:
        while some := list(islice(answers, _AT_ONCE)):
            write(some)
            count += len(some)
            advance(len(some))
    return count


def read_users(source: str | Path | Iterable[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Users and their histories, of a table or of dictionaries; whose history is missing is new."""

    def choose(found: list[str]) -> tuple[str | None, ...]:
        user = recognise_column(found, USER_COLUMNS, taken=())
        for column, role in ((user, "user"), ("history" if "history" in found else None, "history")):
            if column is None:
                raise UserError(
                    f"{called(source)}: no column for the {role}; columns found: {', '.join(found[:30])}; there must "
                    "be `user` and `history`, ids of what was clicked"
                )
        return user, "history", None

    if isinstance(source, str | Path):
        records = open_records(str(source), choose, False, Layout("jsonl" if str(source) == "-" else None))
    else:
        pick = picker(choose)
        records = (pick(f"user {number}", record) for number, record in enumerate(source, 1))
    for where, *fields in records:
        if len(fields) != 3:  # where texts lie in folders, there is nothing to choose
            raise UserError(f"{source}: a folder of LABEL/*.txt; give a table with the columns `user` and `history`")
        user, history, _ = fields
        if isinstance(history, str):
            history = history.replace(",", " ").split()
        elif is_missing(history):
            history = []
        if not isinstance(history, list | tuple):
            raise UserError(f"{where}: `history` is {kind_of(history)}; give a list of ids, or one text with spaces")
        yield user, [str(one) for one in history]


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
