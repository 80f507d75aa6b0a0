"""What a server offers for a conversion model: `behaviors` notes what a user did, `score` scores ads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastformer.engine.settings import option
from fastformer.errors import UserError
from fastformer.tasks.base import Service
from fastformer.tasks.conversion.scoring import EventPredictor
from fastformer.tasks.conversion.store import BehaviorStore

LOG_FILE = "behaviors.sqlite"
MOST_CHANGES = 5000  # of probabilities in one request: each is an answer of its own


@dataclass(frozen=True)
class Noting:
    """What a user did."""

    user: str = option(help="Name of the user.")
    add: list[str] = option((), "What the user did, the latest last.")
    forget: bool = option(False, "First remove all that is known of the user.")


@dataclass(frozen=True)
class Judging:
    """For whom, and which ads."""

    ads: list[str] = option(help="Texts of ads.")
    user: str | None = option(None, "A user whose behaviours the server knows.")
    behaviors: list[str] | None = option(None, "Or what somebody did, the latest last.")
    side: dict[str, Any] | None = option(None, "Side features by name, as the model was trained with.")
    moved: bool = option(False, "Also by how much each behaviour moved the probability.")


def conversion_services(predictor: EventPredictor, keep: Path) -> Sequence[Service]:
    """`POST /behaviors` and `POST /score` of a server; what users did is kept in a file."""
    store = BehaviorStore(predictor, log=keep / LOG_FILE)
    columns = (*predictor.features.columns.numeric, *predictor.features.columns.categorical)

    def known(user: str) -> list[str]:
        return [] if store.log is None else store.log.of(user)

    def note(request: Noting) -> dict[str, Any]:
        if request.add:
            store.add(request.user, *request.add, anew=request.forget)
        elif request.forget:
            store.forget(request.user)
        return {"user": request.user, "behaviors": known(request.user)}

    def judge(request: Judging) -> list[dict[str, Any]]:
        if (request.user is None) == (request.behaviors is None):
            raise UserError("give either `user` or `behaviors`")
        given = request.side or {}
        if unknown := sorted(given.keys() - set(columns)):
            raise UserError(
                f"no side feature {unknown[0]!r}; the model was trained with: {', '.join(columns) or 'none'}"
            )
        side = {**dict.fromkeys(columns), **given}
        behaviors = list(request.behaviors or ()) if request.user is None else known(request.user)
        read = len(behaviors[-predictor.model.config.max_behaviors :])
        if request.moved and (changes := len(request.ads) * read) > MOST_CHANGES:
            raise UserError(
                f"`moved`: {len(request.ads):,} ads by {read:,} behaviours are {changes:,} changes, and "
                f"{MOST_CHANGES:,} are the most; give fewer ads at a time"
            )
        events = [{**side, "behaviors": behaviors, "ad": ad} for ad in request.ads]
        if request.user is None:
            chances = _chances(predictor, events)
        else:
            chances = store.score_all(request.user, request.ads, side)
        answers: list[dict[str, Any]] = [
            {"ad": ad, "probability": round(chance, 6)} for ad, chance in zip(request.ads, chances, strict=True)
        ]
        if request.moved:
            for answer, event, chance in zip(answers, events, chances, strict=True):
                answer["moved"] = _moved(predictor, event, chance)
        return answers

    sample = predictor.sample()
    return (
        Service(
            name="score",
            help="How likely somebody converts on each ad.\n\nWith `moved`, the change of the probability that each "
            "behaviour makes: what it is, less what it would be without it.",
            request=Judging,
            answer=judge,
            example={
                "behaviors": sample["behaviors"],
                "ads": [sample["ad"]],
                "side": dict.fromkeys(columns),
                "moved": True,
            },
            panel="weigh",
        ),
        Service(
            name="behaviors",
            help="Note what a user did, and say what is known of the user.\n\nIt is on the disk when this is answered.",
            request=Noting,
            answer=note,
            example={"user": "ann", "add": sample["behaviors"]},
        ),
    )


def _chances(predictor: EventPredictor, events: list[dict[str, Any]]) -> list[float]:
    return [answer["probability"] for answer in predictor.predict(events)]


def _moved(predictor: EventPredictor, event: dict[str, Any], chance: float) -> list[dict[str, Any]]:
    """By how much each behaviour that is read moved a chance."""
    read = event["behaviors"][-predictor.model.config.max_behaviors :]
    without = [{**event, "behaviors": read[:place] + read[place + 1 :]} for place in range(len(read))]
    others = _chances(predictor, without) if without else []
    return [{"behavior": text, "change": round(chance - other, 6)} for text, other in zip(read, others, strict=True)]
