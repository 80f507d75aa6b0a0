"""A behaviour store for serving: a user's state grows by one vector when something happens.

Texts go through the text encoder when they are first met. A user is the list of the vectors of what they did last, and
their vector is made from these when it is asked for and has changed: no text of the history is encoded again.

    store = BehaviorStore.open("runs/ads")
    store.add("ann", "searched for hiking boots")
    store.score("ann", "Boots for every weather")

With a `log`, a file, everything that users did is on the disk when `add` returns: a store that is opened with the same
file knows all of them, and a user who had to leave memory comes back.

    store = BehaviorStore.open("runs/ads", log="behaviors.sqlite")

Memory is bounded: the items and the users that were met last are kept. Threads may share a store: each call sees all
that was added before it began, and the model works outside the locks, so that nobody waits for another's texts.
"""

import hashlib
import json
import threading
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fastformer.errors import UserError
from fastformer.modeling import FastformerForConversion
from fastformer.modeling.conversion import Side
from fastformer.runs.folder import open_run
from fastformer.surroundings.files import writing_aside
from fastformer.tasks.conversion.events import Event, event_of
from fastformer.tasks.conversion.log import BehaviorLog
from fastformer.tasks.conversion.scoring import MAX_ITEMS, EventPredictor, encode_lists

MAX_USERS = 100_000
_VECTORS, _CONTENT = "items.safetensors", "content"


@dataclass
class _User:
    """What is kept of a user: the vectors of the latest behaviours (shared with other users), and their own."""

    behaviors: deque[Tensor]
    vector: Tensor | None = None  # None: something happened since it was made
    changes: int = 0  # how often something happened: a vector that is being made meanwhile is not kept


class BehaviorStore:
    """Users, what they did, and the probability that they convert; the same answers as the model on whole rows."""

    def __init__(self, predictor: EventPredictor, max_users: int = MAX_USERS, log: str | Path | None = None):
        if max_users < 1:
            raise UserError(f"max_users is {max_users}: nobody would be kept; give 1 or more")
        self.predictor, self.max_users = predictor, max_users
        self.log = None if log is None else BehaviorLog(log, predictor.model.config.max_behaviors)
        self.users: OrderedDict[str, _User] = OrderedDict()
        self._lock = threading.Lock()  # of the users

    @classmethod
    def open(
        cls,
        run: str | Path,
        *,
        max_items: int = MAX_ITEMS,
        max_users: int = MAX_USERS,
        log: str | Path | None = None,
    ) -> "BehaviorStore":
        """A store for the model in a run folder; `log` is a file that keeps what users do."""
        return cls(EventPredictor.of(open_run(run), max_items), max_users, log)

    @property
    def model(self) -> FastformerForConversion:
        """The model behind the answers."""
        return self.predictor.model

    def add(self, user: str, *texts: str, anew: bool = False) -> None:
        """The user did something, the latest last: only texts that were never met go through the text encoder.

        With `anew` all that was known of the user before is forgotten, unless this fails.
        """
        _check_user(user)
        _check_texts(texts, "store.add(user, *texts)")
        vectors = self.predictor.items(texts)
        if not anew:
            self._recall(user)
        with self._lock:
            if self.log is not None:
                self.log.add(user, texts, anew)
            if anew:
                self.users.pop(user, None)
            state = self._state(user)
            state.behaviors.extend(vectors[text] for text in texts)
            state.vector = None
            state.changes += 1

    def score(self, user: str, ad: str, side: Mapping[str, Any] | None = None) -> float:
        """The probability that the user converts on an ad; `side` has the columns the model was trained with."""
        return self.score_all(user, [ad], side)[0]

    @torch.inference_mode()
    def score_all(self, user: str, ads: Iterable[str], side: Mapping[str, Any] | None = None) -> list[float]:
        """The same for several ads at once."""
        ads = [ads] if isinstance(ads, str) else list(ads)
        _check_texts(ads, "store.score_all(user, ads)")
        if not ads:
            return []
        vectors = self.predictor.items(ads)
        events = [self._event(ad, side or {}) for ad in ads]
        inputs = Side(**self.predictor.features.of_events(events))
        users = self.vector(user).expand(len(ads), -1)
        return self.model.score(users, torch.stack([vectors[ad] for ad in ads]), inputs).double().sigmoid().tolist()

    @torch.inference_mode()
    def vector(self, user: str) -> Tensor:
        """The user's vector (width,)."""
        _check_user(user)
        self._recall(user)
        with self._lock:
            if user in self.users:
                self.users.move_to_end(user)
            state = self.users.get(user) or _User(deque())  # a user who is only asked about is not kept
            if state.vector is not None:
                return state.vector
            behaviors, changes = [*state.behaviors], state.changes
        vector = encode_lists(self.model, [torch.stack(behaviors) if behaviors else None])[0]
        with self._lock:
            if state.changes == changes:
                state.vector = vector
        return vector

    def forget(self, user: str) -> None:
        """Remove all that is known of a user."""
        with self._lock:
            self.users.pop(user, None)
            if self.log is not None:
                self.log.forget(user)

    def save_items(self, folder: str | Path) -> None:
        """Write the item vectors to a folder: a serving process that starts from it encodes no known text again."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with self.predictor.items.lock:
            kept = dict(self.predictor.items.kept)
        vectors = torch.stack([*kept.values()]).cpu() if kept else torch.zeros(0, self.model.config.hidden_size)
        content = {"encoder": text_encoder_fingerprint(self.model), "texts": list(kept)}
        with writing_aside(folder / _VECTORS) as aside:  # one file: vectors of one save never meet texts of another
            save_file({"vectors": vectors}, aside, metadata={_CONTENT: json.dumps(content)})

    def load_items(self, folder: str | Path) -> int:
        """Read item vectors that the same model wrote; return how many."""
        folder = Path(folder)
        try:
            with safe_open(folder / _VECTORS, framework="pt") as file:
                content = json.loads((file.metadata() or {})[_CONTENT])
                vectors, texts = file.get_tensor("vectors"), content["texts"]
            if vectors.shape != (len(texts), self.model.config.hidden_size):
                raise ValueError("vectors and texts are not equally many")
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{folder}: item vectors cannot be read ({reason}); save_items writes them") from error
        if content.get("encoder") != text_encoder_fingerprint(self.model):
            raise UserError(f"{folder}: these item vectors are another model's; save them again with this one")
        for text, vector in zip(texts, vectors, strict=True):
            self.predictor.items.keep(text, vector.to(self.model.device, self.model.dtype, copy=True))
        return len(texts)

    def _recall(self, user: str) -> None:
        """Take a user whom only the log knows into memory."""
        while self.log is not None and user not in self.users:
            texts = self.log.of(user)
            if not texts:
                return
            vectors = self.predictor.items(texts)
            with self._lock:  # adding to the log needs the lock: if nothing came meanwhile, this is all
                if user not in self.users and self.log.of(user) == texts:
                    self._state(user).behaviors.extend(vectors[text] for text in texts)

    def _state(self, user: str) -> _User:
        if user not in self.users:
            self.users[user] = _User(deque(maxlen=self.model.config.max_behaviors))
        self.users.move_to_end(user)
        if len(self.users) > self.max_users:
            self.users.popitem(last=False)
        return self.users[user]

    def _event(self, ad: str, side: Mapping[str, Any]) -> Event:
        columns = self.predictor.features.columns
        unknown = side.keys() - {*columns.numeric, *columns.categorical}
        if unknown:
            known = ", ".join((*columns.numeric, *columns.categorical)) or "none"
            raise UserError(f"no side feature {sorted(unknown)[0]!r}; the model was trained with: {known}")
        return event_of("side features", {**side, "behaviors": [], "ad": ad}, columns, labelled=False)


def _check_user(user: Any) -> None:
    if not isinstance(user, Hashable):
        raise UserError(f"a user must be a name or a number, not a {type(user).__name__}: {user!r:.60}")


def _check_texts(texts: Sequence[Any], call: str) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise UserError(f"{call}: a text must be a string, not a {type(text).__name__}: {text!r:.60}")


def text_encoder_fingerprint(model: FastformerForConversion) -> str:
    """A hash of all that makes vectors of texts."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in model.fastformer.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
