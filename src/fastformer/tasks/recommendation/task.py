"""News recommendation: rank articles for a user by what the user clicked before, on data in MIND's layout."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedConfig, PreTrainedModel

from fastformer.data.by_time import CHOSEN, hold_out_latest
from fastformer.data.opening import Format
from fastformer.data.ragged import Ragged
from fastformer.engine.fit import Trained, Workspace
from fastformer.engine.inference import cut_note
from fastformer.engine.settings import settled
from fastformer.engine.warm_start import check_word_vectors, warm_start
from fastformer.errors import UserError
from fastformer.modeling import (
    FastformerForRecommendation,
    FimConfig,
    FimForRecommendation,
    NewsRecommender,
    RecommendationConfig,
)
from fastformer.runs.folder import Run
from fastformer.runs.record import RUN_FILE
from fastformer.surroundings.progress import say
from fastformer.tasks.base import Card, Parts, Predictor, Shown, Task
from fastformer.tasks.recommendation.architectures import build_recommender, check_architecture, encoder_folder
from fastformer.tasks.recommendation.clicks import NEWS_COLUMNS, Clicks
from fastformer.tasks.recommendation.declaration import RecommendationSettings
from fastformer.tasks.recommendation.ensembles import MEMBERS
from fastformer.tasks.recommendation.examples import ClickExamples, Titles, encode_titles, news_texts
from fastformer.tasks.recommendation.metrics import METRICS, impression_metrics
from fastformer.tasks.recommendation.mind import format_quirks, read_mind
from fastformer.tasks.recommendation.predictor import Ensemble, Ranker, check_task
from fastformer.tasks.recommendation.scoring import keep_states, score_clicks

_MOST_HELD_OUT = 5000


@dataclass
class Validation:
    """Scores a model on the impressions that choose the epoch."""

    clicks: Clicks
    titles: Titles
    history_length: int

    def __call__(self, model: PreTrainedModel) -> dict[str, float]:
        """The scores of a model."""
        scores = score_clicks(model, self.titles, self.clicks, self.history_length)
        metrics = impression_metrics(scores, settled(self.clicks.labels), self.clicks.candidates.offsets)
        return {name: metrics[name] for name in METRICS}


class Recommendation(Task[RecommendationSettings, Parts[RecommendationSettings]]):
    """Ranking articles for users."""

    def configurations(self, settings: RecommendationSettings) -> Sequence[type[PreTrainedConfig]]:
        """Those of all recommenders: a preset has the sizes of each, and FIM takes only its own."""
        return [FimConfig, RecommendationConfig]

    def check(self, settings: RecommendationSettings) -> RecommendationSettings:
        """Refuse what does not go together; say now what is wrong with an encoder or with vectors of words."""
        paths: dict[str, Any] = {
            name: str(path) for name in ("plm", "init") if (path := getattr(settings, name)) is not None
        }
        settings = check_architecture(replace(settings, fields=_columns(settings.fields), **paths))
        check_word_vectors(settings.init)
        encoder_folder(settings)
        return settings

    def read(
        self,
        source: str | Path | Clicks | list[dict[str, Any]],
        split: str,
        settings: RecommendationSettings,
        *,
        labelled: bool = True,
        format: Format | None = None,
    ) -> Clicks | list[dict[str, Any]]:
        """The clicks of a folder of MIND; clicks, and dictionaries for a predictor, stay what they are."""
        if isinstance(source, list):
            return source
        if isinstance(source, Clicks):
            if labelled and source.labels is None:
                raise UserError(
                    f"the {split} impressions have no labels; give a folder that has them, such as train or dev"
                )
            return source
        if str(source) == "builtin":
            source = f"builtin:{'train' if split == 'train' else 'dev' if labelled else 'test'}"
        clicks = read_mind(source, labels="required" if labelled else "optional", show_progress=self.show)
        if clicks.quirks and self.show:
            say(f"{source}: {format_quirks(clicks.quirks)}.")
        return clicks

    def same(self, examples: Clicks) -> Iterable[tuple[float, bytes]]:
        """Impressions are the same if they were at the same time and led to the same clicks."""
        labels = Ragged(settled(examples.labels), examples.candidates.offsets)
        return ((time, labels.row(number).tobytes()) for number, time in enumerate(examples.times.tolist()))

    def encode(self, data: Mapping[str, Clicks], settings: RecommendationSettings, workspace: Workspace) -> Parts:
        """Titles as token ids, and clicks with non-clicks beside them."""
        training, validating, held_out_by = _split(data["train"], data.get("validation"), settings.training.seed)
        encoder = encoder_folder(settings)
        tokenizer = workspace.tokenizer(
            settings.tokenizer if encoder is None else str(encoder.absolute()),
            news_texts(training.news, settings.fields),
            max_length=settings.max_length,
            vocab_size=settings.vocab_size,
            min_frequency=settings.min_frequency,
        )

        def encoded(clicks: Clicks) -> Titles:
            titles = encode_titles(clicks.news, tokenizer, settings.fields, settings.max_length)
            if titles.cut and workspace.show:
                say(cut_note(titles.cut, settings.max_length, "titles"))
            return titles

        titles = encoded(training)
        validation = Validation(
            validating, titles if validating.news is training.news else encoded(validating), settings.history_length
        )
        examples = ClickExamples(
            training,
            titles,
            negatives=settings.negatives,
            max_history=settings.history_length,
            seed=settings.training.seed,
        )
        return Parts(
            settings=settings,
            tokenizer=tokenizer,
            train=examples,
            validation=validation,
            collate=lambda batch: batch,  # the dataset makes whole batches
            score="auc",
            scores=tuple(METRICS),
            fingerprint={"train": _arrays(training, titles), "validation": _arrays(validating, validation.titles)},
            rows={"train": len(training), "validation": len(validating), "clicks": len(examples)},
            about={"held_out_by": held_out_by, "news": training.news.num_rows},
            tables={"news": training.news},
        )

    def build(self, parts: Parts, workspace: Workspace) -> NewsRecommender:
        """A recommender; what is frozen of a pre-trained encoder reads the titles here, once."""
        settings, tokenizer = parts.settings, parts.tokenizer
        model = build_recommender(settings, tokenizer)
        titles = parts.train.titles
        if settings.init is not None and not workspace.resume:  # a checkpoint has all weights
            counts = titles.counts(model.config.vocab_size) if settings.adapt_init else None
            seed = settings.training.seed
            warm_start(model, tokenizer, settings.init, counts=counts, seed=seed, show_progress=workspace.show)
        if settings.plm is None:
            with torch.no_grad():  # an unknown word says nothing, until training has seen one
                model.get_input_embeddings().weight[tokenizer.unk_token_id] = 0
        else:
            parts.train.titles = keep_states(model, titles, workspace.show)
            same = parts.validation.titles is titles
            parts.validation.titles = (
                parts.train.titles if same else keep_states(model, parts.validation.titles, workspace.show)
            )
        return model

    def load(self, run: Run) -> Predictor:
        """A run, or an ensemble of runs, ready to answer."""
        if "members" not in run.record:
            return super().load(run)
        members = [check_task(run.folder / MEMBERS / str(number)) for number in range(run.record["members"])]
        if len(members) < 2:
            raise UserError(f"{run.folder / RUN_FILE}: an ensemble of {len(members)} runs; put it together again")
        return Ensemble(run, [self.predictor(Trained.of(one, self.model_class(one.record))) for one in members])

    def model_class(self, record: Mapping[str, Any]) -> type[PreTrainedModel]:
        """What a run's weights are weights of."""
        return FimForRecommendation if record["model"] == "fim" else FastformerForRecommendation

    def predictor(self, trained: Trained[RecommendationSettings]) -> Ranker:
        """A model that ranks and recommends."""
        return Ranker(trained)

    def card(self, trained: Trained[RecommendationSettings], name: str) -> Card:
        """What the run's README says of this task."""
        record, metrics, settings = trained.record, trained.metrics, trained.settings
        return Card(
            what="A news recommender: it ranks articles for a user by what the user clicked before.",
            tags=["recommendation", record["model"]],
            notes=[
                f"The model is `{record['model']}`; it saw {metrics['rows']['clicks']:,} clicks and "
                f"{metrics['news']:,} articles.",
                f"It reads {settings.max_length} tokens of a title and {settings.history_length} clicks of a history.",
                f"Impressions to validate on: {CHOSEN[metrics['held_out_by']]}.",
            ],
            usage=f"""```bash
fastformer recommend {name} --history ID,ID --top 10
fastformer predict {name} MINDlarge_test --output prediction.txt
```""",
        )

    def evaluated_tables(self, result: Mapping[str, Any], title: str) -> Iterator[Shown]:
        """What is printed after an evaluation; a line says what could not be scored."""
        columns = tuple(name for name in ("impressions", *METRICS) if name in result)
        rows = {"": result} if not result.get("floors") else {"the model": result, **result["floors"]}
        yield Shown(title, rows, columns)


def _columns(given: str | tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(given.split(",") if isinstance(given, str) else given)
    readable = [name for name in NEWS_COLUMNS if name != "id"]
    for name in names:
        if name not in readable:
            raise UserError(f"--fields: news.tsv has no column {name!r}; choose from {', '.join(readable)}")
    return names


def _split(train: Clicks, validation: Clicks | None, seed: int) -> tuple[Clicks, Clicks, str | None]:
    """What to train and what to choose the epoch on, and how they were split if both come from `train`."""
    for part in (train, validation):
        if isinstance(part, list):
            raise UserError("training needs articles as well as clicks on them; give a folder of MIND")
    held_out_by = None
    if validation is None:
        rows = hold_out_latest(train.times, seed, _MOST_HELD_OUT)
        train, validation, held_out_by = train.take(rows.train), train.take(rows.validation), rows.by
    clicked = np.add.reduceat(settled(validation.labels), validation.candidates.offsets[:-1], dtype=np.int64)
    if not ((clicked > 0) & (clicked < validation.candidates.lengths)).any():
        raise UserError(
            "no impression to validate on has both a click and a non-click; give other data to --validation"
        )
    return train, validation, held_out_by


def _arrays(clicks: Clicks, titles: Titles) -> tuple[np.ndarray, ...]:
    labels = settled(clicks.labels)
    return (titles.ids, titles.lengths, *clicks.histories, clicks.history_of, *clicks.candidates, labels)
