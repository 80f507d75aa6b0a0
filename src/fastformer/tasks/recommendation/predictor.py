"""`Ranker`: a trained recommender that ranks candidates and recommends articles."""

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from fastformer.data.answers import TABLES
from fastformer.data.objects import check_columns
from fastformer.data.ragged import Ragged
from fastformer.engine.fit import Trained
from fastformer.engine.inference import cut_note
from fastformer.engine.settings import settled
from fastformer.errors import UserError
from fastformer.runs.folder import Run, open_run
from fastformer.surroundings.files import writing_aside
from fastformer.surroundings.machine import tune
from fastformer.surroundings.progress import progress_bar, say
from fastformer.tasks.base import Predictor, Service
from fastformer.tasks.recommendation.articles import Articles, articles_of
from fastformer.tasks.recommendation.clicks import Clicks
from fastformer.tasks.recommendation.declaration import Predicting, RecommendationSettings
from fastformer.tasks.recommendation.examples import Titles, encode_titles
from fastformer.tasks.recommendation.floors import Floor, floor_scores
from fastformer.tasks.recommendation.metrics import METRICS, impression_metrics, ranks
from fastformer.tasks.recommendation.mind import read_mind
from fastformer.tasks.recommendation.scoring import encode_news, match_clicks

COUNTING: tuple[Floor, ...] = ("popularity", "co-occurrence")  # floors that stand beside a model
COUNTS = ("impressions", "without_positive", "one_class")
PREDICTION = "prediction.txt"  # in a .zip, as the leaderboard of MIND wants it
_IMPRESSIONS_AT_ONCE, _CANDIDATES_AT_ONCE = 1024, 1 << 20  # of those that come as dictionaries


class Ranker(Predictor[RecommendationSettings]):
    """A loaded run. Impressions are those of a folder (`Clicks`), or dictionaries with ids of the run's articles."""

    def __init__(self, trained: Trained[RecommendationSettings]):
        super().__init__(trained)
        self.cut = 0
        self.unscored: dict[str, int] = {}
        self.without_floors: str | None = None  # a training folder that is not there
        self._kept: tuple[pa.Table, Tensor] | None = None

    @cached_property
    def articles(self) -> Articles:
        """The articles that it was trained on."""
        return Articles(self.trained.tables["news"], self.trained.name)

    def titles(self, news: pa.Table) -> Titles:
        """Token ids of a table of articles."""
        titles = encode_titles(news, self.tokenizer, self.settings.fields, self.settings.max_length)
        self.cut = titles.cut
        return titles

    def score(self, clicks: Clicks, keep: bool = False, texts: Sequence[str] = ()) -> np.ndarray:
        """A score of every candidate, float32, aligned with `clicks.candidates.values`; larger is better.

        With `keep` what the model makes of the articles is kept for the next time. `texts` are titles of articles that
        are in no table: in histories their numbers follow those of the table.
        """
        tune()
        news = self._kept[1] if self._kept is not None and self._kept[0] is clicks.news else None
        titles = self.titles(clicks.news) if news is None else None
        total = len(clicks) + (0 if titles is None else len(titles.lengths))
        with progress_bar("Scoring", total=total, show=self.show) as advance, torch.inference_mode():
            if titles is not None:
                news = encode_news(self.model, titles, advance)
                self._kept = (clicks.news, news) if keep else self._kept
            if texts:
                news = torch.cat([news, encode_news(self.model, self.titles(articles_of(texts)))])
            return match_clicks(self.model, news, clicks, self.settings.history_length, advance)

    def predict(
        self, examples: Clicks | Iterable[dict[str, Any]], options: Predicting | None = None
    ) -> Iterator[dict[str, Any]]:
        """`{"ranks": [2, 1, 3]}`: the rank of every candidate, from 1 for the best, in their order; perhaps `scores`.

        With the `impression` that it is the answer to, if that has a name, as in a folder.
        """
        with_scores = options is not None and bool(options.scores)
        if isinstance(examples, Clicks):
            names = ({"impression": impression} for impression in examples.impression_ids.tolist())
            yield from self._answers(examples, self.score(examples), names, with_scores)
            return
        for some, clicks in self._as_clicks(examples):
            names = ({"impression": one["impression"]} if "impression" in one else {} for one in some)
            yield from self._answers(clicks, self.score(clicks, keep=True), names, with_scores)

    def _answers(
        self, clicks: Clicks, scores: np.ndarray, names: Iterable[dict[str, Any]], with_scores: bool
    ) -> Iterator[dict[str, Any]]:
        placed, scored = (
            Ragged(values, clicks.candidates.offsets) for values in (ranks(scores, clicks.candidates.offsets), scores)
        )
        for number, name in enumerate(names):
            more = {"scores": scored.row(number).tolist()} if with_scores else {}
            yield {**name, "ranks": placed.row(number).tolist(), **more}

    def line(self, answer: dict[str, Any]) -> str:
        """The answer to an impression of a folder as MIND's leaderboard wants it: `ImpressionID [r1,r2,…]`."""
        if answer.keys() != {"impression", "ranks"}:
            return super().line(answer)
        return f"{answer['impression']} [{','.join(map(str, answer['ranks']))}]"

    def wrote(self, path: Path) -> None:
        """Put lines into a .zip beside the file, under the name that the leaderboard wants."""
        if path.suffix.lower() in TABLES or not path.is_file():  # a device has nothing beside it
            return
        place = path.with_suffix(".zip")
        if place.exists() and not _is_prediction(place):
            say(f"{place}: is there already and holds something else, so the answers are not zipped.")
            return
        with writing_aside(place) as aside, zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(path, PREDICTION)

    def evaluate(self, examples: Clicks | Iterable[dict[str, Any]], options: Any = None) -> dict[str, Any]:
        """AUC, MRR, nDCG@5 and nDCG@10 of impressions with labels, averaged over them.

        Impressions without a click count in none of them, those with clicks only not in AUC: `without_positive` says
        how many have no click, `one_class` how many have one class only, these among them.
        """
        keep = not isinstance(examples, Clicks)
        clicks = examples if isinstance(examples, Clicks) else self.articles.clicks(list(examples))
        if clicks.labels is None:
            raise UserError("impressions without labels cannot be scored; give 0 or 1 for every candidate")
        metrics = impression_metrics(self.score(clicks, keep), clicks.labels, clicks.candidates.offsets)
        self.unscored = {name: metrics[name] for name in COUNTS}
        found = {name: metrics[name] for name in (*COUNTS, *METRICS) if name in metrics}
        if options is not None and options.floors and not keep and (floors := self._floors(clicks)):
            found["floors"] = floors
        return found

    def _floors(self, clicks: Clicks) -> dict[str, dict[str, float]]:
        """Scores of rankers that read no text, which count the clicks of the training folder, if that is there."""
        source = self.trained.record.get("data", {}).get("train")
        self.without_floors = None
        try:
            train = read_mind(str(source), labels="required", show_progress=self.show)
        except UserError:
            self.without_floors = str(source)
            return {}
        floors: dict[str, dict[str, float]] = {}
        for name in COUNTING:
            scores = floor_scores(name, train, clicks)
            scored = impression_metrics(scores, settled(clicks.labels), clicks.candidates.offsets)
            floors[name] = {metric: scored[metric] for metric in METRICS if metric in scored}
        return floors

    def vectors(self, examples: Clicks | Iterable[str | dict[str, str]]) -> Iterator[np.ndarray]:
        """Vectors of the articles of a folder, in the order of news.tsv; or of titles, or dictionaries with columns."""
        if (model := self.trained.record["model"]) in ("fim", "ensemble"):
            raise UserError(f"{self.trained.name}: {model} has no vector of an article; use another model")
        tune()
        titles = self.titles(articles_of(examples))
        if not len(titles.lengths):
            return iter(())
        with progress_bar("Reading titles", len(titles.lengths), self.show) as advance, torch.inference_mode():
            return iter(encode_news(self.model, titles, advance).numpy())

    def vector_ids(self, examples: Iterable[Any]) -> list[str] | None:
        """Ids of the articles of a folder."""
        return examples.news["id"].to_pylist() if isinstance(examples, Clicks) else None

    def example(self, text: str) -> Any:
        """Refuse it: an impression is more than a text."""
        raise UserError(f"an impression is an object such as {self.sample()}, not a text")

    def texts(self, examples: Sequence[Any]) -> list[list[str]]:
        """The titles of articles; an impression has none."""
        objects = [one for one in examples if isinstance(one, dict)]
        check_columns(objects, ["title"] if any("title" in one for one in objects) else [])
        titles = [one.get("title") if isinstance(one, dict) else one for one in examples]
        return [[title] if isinstance(title, str) else [] for title in titles]

    def sample(self) -> dict[str, list[str]]:
        """An impression of the articles it was trained on."""
        ids = self.articles.table["id"][:5].to_pylist()
        return {"history": ids[:2], "candidates": ids[2:] or ids}

    def services(self, keep: Path) -> Sequence[Service]:
        """`recommend`, and `articles` to choose from."""
        from fastformer.tasks.recommendation.serving import recommender_services

        return recommender_services(self)

    def recommend(
        self,
        history: Iterable[str] = (),
        top: int = 10,
        articles: Articles | None = None,
        texts: Sequence[str] = (),
    ) -> list[dict[str, Any]]:
        """The best articles for somebody who clicked `history` (ids, oldest first), best first.

        Chosen from `articles`, or from what it was trained on; what was clicked already is left out, and what has no
        title. `texts` are titles that were clicked after those, of articles that need not be among them.
        """
        if texts and self.trained.record["model"] == "fim":
            raise UserError(f"{self.trained.name}: fim reads a history of its own articles only; give ids")
        choice = self.articles if articles is None else articles
        clicked = choice.find(history, "history")
        others = np.setdiff1d(choice.titled, clicked)
        behind = np.arange(choice.table.num_rows, choice.table.num_rows + len(texts), dtype=np.int32)
        impression = choice.impressions([np.concatenate([clicked, behind])], [others])
        scores = self.score(impression, keep=articles is None, texts=texts)
        best = np.argsort(-scores, kind="stable")[:top]
        rows = choice.table.take(pa.array(others[best])).select(["id", "title", "category"]).to_pylist()
        return [{**row, "score": round(float(scores[place]), 4)} for row, place in zip(rows, best, strict=True)]

    def notes(self) -> Iterator[str]:
        """How many titles were cut, how many impressions could not be scored, and what else could not."""
        if self.without_floors is not None:
            yield f"Popularity and co-occurrence are not scored: {self.without_floors} is no folder of clicks here."
        if self.cut:
            yield cut_note(self.cut, self.settings.max_length, "titles")
        if self.unscored.get("one_class"):
            yield (
                f"{self.unscored['one_class']:,} of {self.unscored['impressions']:,} impressions have one class only "
                f"and no AUC; {self.unscored['without_positive']:,} of them have no click and no score at all."
            )

    def _as_clicks(self, examples: Iterable[dict[str, Any]]) -> Iterator[tuple[list[dict[str, Any]], Clicks]]:
        """Dictionaries, and the same as clicks, as many at a time as memory likes."""
        some, candidates = [], 0
        for example in examples:
            some.append(example)
            shown = example.get("candidates") if isinstance(example, dict) else None
            candidates += len(self.articles.titled if shown is None else shown)
            if len(some) == _IMPRESSIONS_AT_ONCE or candidates > _CANDIDATES_AT_ONCE:
                yield some, self.articles.clicks(some)
                some, candidates = [], 0
        if some:
            yield some, self.articles.clicks(some)


class Ensemble(Ranker):
    """Several runs in one: a score is the average of theirs. The articles are those of the first."""

    def __init__(self, run: Run, members: Sequence[Ranker]):
        super().__init__(
            replace(members[0].trained, record=run.record, metrics=run.load_metrics(), name=str(run.folder), run=run)
        )
        self.members = members

    def score(self, clicks: Clicks, keep: bool = False, texts: Sequence[str] = ()) -> np.ndarray:
        """The average of the scores of its runs."""
        for member in self.members:
            member.show = self.show
        return np.mean([member.score(clicks, keep, texts) for member in self.members], axis=0)

    def notes(self) -> Iterator[str]:
        """Those of its runs, each once."""
        said = [note for member in self.members for note in member.notes()]
        return iter(dict.fromkeys([*said, *super().notes()]))


def _is_prediction(path: Path) -> bool:
    """Whether a .zip holds answers for the leaderboard and nothing else: then new ones may replace it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist() == [PREDICTION]
    except (OSError, zipfile.BadZipFile):
        return False


def check_task(run: Run | str | Path) -> Run:
    """The run, if it is one of ours."""
    run = run if isinstance(run, Run) else open_run(run)
    if run.task != "recommendation":
        raise UserError(f"{run.folder}: a run for {run.task}; give one of `fastformer train recommendation`")
    return run
