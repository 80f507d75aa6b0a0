"""Simulated clicks in MIND's layout, offline: titles are first lines of the built-in corpus, their category a library.

A user has a favourite category. Of the news shown in an impression, drawn evenly from all of them, one or two were
clicked: nine of ten clicks are on the favourite, the others anywhere. Over all users, every article is as likely to be
shown and clicked as any other, so popularity knows nothing, and some of the news come out after training: to rank those
a model must read titles.

    OUTPUT/train/, dev/   news.tsv, behaviors.tsv
    OUTPUT/test/          the same, without labels
"""

import os
import tempfile
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path

import numpy as np

from fastformer.data.corpus import builtin_rows, need_libraries
from fastformer.errors import UserError
from fastformer.surroundings.files import cache_folder, explain_full_disk, has_sums, write_sums

USERS = 500
SPLITS = ("train", "dev", "test")
IMPRESSIONS = {"train": 4, "dev": 1, "test": 1}  # per user
CANDIDATES = 15
CATEGORIES = ("networkx", "nltk", "pandas", "python", "sympy", "transformers")  # libraries with words of their own
LOYALTY = 0.9  # of clicks are on the favourite category
TITLES_PER_CATEGORY = 150
_LEAST_WORDS = 6  # of a title
FRESH = 0.4  # of the news come out after training
_START = datetime(2019, 11, 9, 8)


def simulate_clicks(output_folder: str | Path, *, users: int = USERS, seed: int = 0) -> Path:
    """Write train/, dev/ and test/; the same seed and the same installed packages give the same files."""
    folder = Path(output_folder)
    if users < 1:
        raise UserError(f"users: {users} simulated users; give at least one")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is not an empty folder; give another place for simulated clicks")
    _write(folder, _titles(), users, seed)
    return folder


def builtin_folder(split: str) -> Path:
    """The folder of a split of the default simulation, made in the cache folder the first time."""
    if split not in SPLITS:
        raise UserError(
            f"builtin:{split}: no such split of the simulated clicks; use builtin:{', builtin:'.join(SPLITS)}"
        )
    titles = _titles()
    rules = Path(__file__).read_text(encoding="utf-8")  # other rules, other clicks
    key = blake2b(repr((rules, titles)).encode(), digest_size=8).hexdigest()
    folder = cache_folder() / f"simulated-clicks-{key}"
    if not has_sums(folder):  # not made yet, or damaged
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as aside:
                _write(Path(aside), titles, USERS, 0)
                write_sums(Path(aside))
                _put_files(Path(aside), folder)
        except OSError as error:
            raise UserError(
                f"{folder}: cannot be written ({error.strerror}); set FASTFORMER_CACHE to a folder that can"
            ) from error
    return folder / split


def _put_files(made: Path, folder: Path) -> None:
    """Move what was made to `folder`, file by file: another process may have made the same, and may be reading it."""
    for path in filter(Path.is_file, made.rglob("*")):
        place = folder / path.relative_to(made)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)


def _titles() -> list[tuple[str, str]]:
    """(title, category), the same number of each category, categories in turn."""
    need_libraries(CATEGORIES)
    found: dict[str, dict[str, None]] = {category: {} for category in CATEGORIES}
    for row in builtin_rows("train"):
        titles = found.get(str(row.label))
        if titles is not None and len(titles) < TITLES_PER_CATEGORY:
            title = " ".join(row.text.strip().splitlines()[0].split())
            if len(title.split()) >= _LEAST_WORDS:
                titles[title] = None
    rows = zip(*found.values(), strict=False)  # as many of each as the smallest category has
    return [pair for titles in rows for pair in zip(titles, found, strict=True)]


def _write(folder: Path, titles: list[tuple[str, str]], users: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    category_of = np.array([CATEGORIES.index(category) for _, category in titles])
    ids = np.array([f"N{number}" for number in draw.permutation(len(titles)) + 1])
    old = np.arange(len(titles)) < (1 - FRESH) * len(titles)
    favourite = draw.integers(len(CATEGORIES), size=users)
    shown = {"train": np.flatnonzero(old), "dev": np.arange(len(titles)), "test": np.arange(len(titles))}

    def clicks(user: int, news: np.ndarray, count: int) -> np.ndarray:
        """`count` different news that a user clicks."""
        loyal = draw.binomial(count, LOYALTY)
        own = news[category_of[news] == favourite[user]]
        return np.union1d(draw.choice(own, loyal, replace=False), draw.choice(news, count - loyal, replace=False))

    histories = [
        list(draw.permutation(clicks(user, shown["train"], int(draw.integers(0, 30))))) for user in range(users)
    ]
    now, impression = _START, 0
    with explain_full_disk(folder):
        for split in SPLITS:
            (folder / split).mkdir(parents=True)
            news = shown[split]
            articles = (f"{ids[n]}\t{titles[n][1]}\t{titles[n][1]}\t{titles[n][0]}\t\t\t[]\t[]\n" for n in news)
            (folder / split / "news.tsv").write_text("".join(articles), encoding="utf-8")
            lines: list[str] = []
            clicked: list[list[int]] = [[] for _ in range(users)]
            for user in draw.permutation(np.repeat(np.arange(users), IMPRESSIONS[split])):
                unread = np.setdiff1d(news, histories[user] + clicked[user])
                positive = clicks(user, unread, int(draw.integers(1, 3)))
                negative = draw.choice(np.setdiff1d(unread, positive), CANDIDATES - len(positive), replace=False)
                candidates = draw.permutation(np.concatenate([positive, negative]))
                labels = np.isin(candidates, positive)
                clicked[user] += list(candidates[labels])
                now, impression = now + timedelta(seconds=int(draw.integers(1, 60))), impression + 1
                words = ids[candidates] if split == "test" else map("{}-{:d}".format, ids[candidates], labels)
                history = " ".join(ids[histories[user]]) if histories[user] else ""
                time = f"{now:%m/%d/%Y %I:%M:%S %p}"
                lines.append(f"{impression}\tU{user + 1}\t{time}\t{history}\t{' '.join(words)}\n")
            (folder / split / "behaviors.tsv").write_text("".join(lines), encoding="utf-8")
            histories = [old + new for old, new in zip(histories, clicked, strict=True)]  # as in MIND: fixed in a split
