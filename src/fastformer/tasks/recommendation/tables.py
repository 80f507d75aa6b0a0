"""A table of users, items and times, and a table of items -> folders in MIND's layout, split by time.

    interactions   user, item, time, and perhaps how it went: a rating, or 1 for a click and 0 for none
    items          id and title, and perhaps a category and an abstract
    OUTPUT/train/, dev/, test/   news.tsv, behaviors.tsv

All rows of one user at one time are an impression. Items at or above `positive` were clicked (by default 1 if values
are 0 and 1, else the median of all), the others were not. An impression without a non-click gets some: items that the
user has no row of, drawn evenly from those that some user has. Its history is what the user clicked before. The first
impressions by time are for training, the next for choosing the epoch, the last for scoring; nobody's future is in a
history.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastformer.data.columns import recognise_column
from fastformer.data.left_out import LeftOut
from fastformer.data.opening import Layout
from fastformer.data.tables import open_records
from fastformer.data.values import BadValueError, is_missing, label_of, number_of
from fastformer.errors import UserError
from fastformer.surroundings.files import explain_full_disk
from fastformer.surroundings.progress import how_many

# Column names recognised in any case; the first of each wins over the others.
USER_COLUMNS = ("user", "user_id", "userid", "customer", "customer_id", "visitor", "visitorid", "reviewerid", "session")
ITEM_COLUMNS = ("item", "item_id", "itemid", "movieid", "movie_id", "product", "product_id", "article", "news", "asin")
TIME_COLUMNS = ("time", "timestamp", "datetime", "date", "unixreviewtime", "created_at")
VALUE_COLUMNS = ("rating", "click", "clicked", "stars", "score", "overall", "label", "value")
TITLE_COLUMNS = ("title", "name", "headline", "text", "product_title")
CATEGORY_COLUMNS = ("category", "categories", "genre", "genres", "type", "brand", "section")
ABSTRACT_COLUMNS = ("abstract", "description", "overview", "body", "content", "summary")

SPLITS = ("train", "dev", "test")
HELD_OUT = 0.1  # of the impressions: the last of them are `test`, those before `dev`
NEGATIVES = 20
HISTORY = 50  # clicks


class Imported(NamedTuple):
    """What was written: impressions by split, and of what."""

    folder: Path
    impressions: dict[str, int]
    users: int
    items: int
    positive: float | None  # from which value on an item was clicked; None: all were


def import_clicks(
    interactions: str | Path,
    items: str | Path,
    output: str | Path,
    *,
    positive: float | None = None,
    negatives: int = NEGATIVES,
    seed: int = 0,
    columns: dict[str, str] | None = None,
) -> Imported:
    """Write train/, dev/ and test/; the same seed and tables give the same files.

    `columns` names columns that their own names do not tell: `user`, `item`, `time`, `value`, and of items `id`,
    `title`, `category` and `abstract`.
    """
    folder, named = Path(output), dict(columns or {})
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is not an empty folder; give another place")
    if negatives < 1:
        raise UserError(f"--negatives {negatives}: without a non-click there is nothing to learn; give 1 or more")
    articles = _read_items(str(items), named)
    met = _read_interactions(str(interactions), named, articles, str(items))
    positive = _positive(met.values) if positive is None else positive
    impressions = _impressions(met, positive, negatives, np.random.default_rng(seed))
    if len(impressions) < 10:
        few = how_many(len(impressions), "impressions", "have")
        raise UserError(f"{interactions}: {few} a click and a non-click; give 10 or more")
    ends = [round(len(impressions) * share) for share in (1 - 2 * HELD_OUT, 1 - HELD_OUT, 1.0)]
    counts, start = {}, 0
    with explain_full_disk(folder):
        for split, end in zip(SPLITS, ends, strict=True):
            _write(folder / split, list(articles.values()), met.ids, impressions[start:end], start)
            counts[split], start = end - start, end
    return Imported(folder, counts, len(met.people), len(articles), None if met.values is None else positive)


class _Met(NamedTuple):
    """Who met which item when, by time; users and items are numbers."""

    users: np.ndarray
    items: np.ndarray
    times: np.ndarray
    values: np.ndarray | None
    people: list[str]
    ids: list[str]  # of the items


class _Impression(NamedTuple):
    user: str
    time: float
    history: Sequence[int]
    candidates: Sequence[int]
    clicked: Sequence[bool]


def _chosen(name: str, found: list[str], wanted: dict[str, tuple[str, ...]], named: dict[str, str]) -> list[str | None]:
    """The column of each role: as named, else by its name; None if there is none."""
    chosen: list[str | None] = []
    for role, names in wanted.items():
        if (given := named.get(role)) is not None and given not in found:
            raise UserError(f"{name}: no column {given!r}; columns found: {', '.join(found[:30])}; name one of them")
        by_order = (column for one in names for column in found if column.lower() == one and column not in chosen)
        chosen.append(given or recognise_column(found, names, taken=chosen) or next(by_order, None))
    return chosen


def _need(name: str, found: list[str], column: str | None, role: str) -> None:
    if column is None:
        listed = ", ".join(found[:30])
        raise UserError(
            f"{name}: cannot tell which column holds the {role}; columns found: {listed}; name it with --{role}-column"
        )


def _read_items(name: str, named: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """Id -> (id, category, title, abstract)."""
    roles = {"id": ("id", *ITEM_COLUMNS), "title": TITLE_COLUMNS, "category": CATEGORY_COLUMNS}
    order: list[str] = []

    def choose(found: list[str]) -> tuple[str | None, ...]:
        columns = dict(
            zip([*roles, "abstract"], _chosen(name, found, {**roles, "abstract": ABSTRACT_COLUMNS}, named), strict=True)
        )
        for role in ("id", "title"):
            _need(name, found, columns[role], role)
        order.extend(role for role, column in columns.items() if column is not None)
        return *(column for column in columns.values() if column is not None), None

    articles: dict[str, tuple[str, ...]] = {}
    left_out, total = LeftOut(), 0
    for where, *values, _ in open_records(name, choose, False, Layout()):
        total += 1
        row = {role: _cell(where, role, value) for role, value in zip(order, values, strict=True)}
        if not row["id"] or not row["title"]:
            left_out["without an id or a title"] += 1
        elif row["id"] in articles:
            left_out["with an id seen before"] += 1
        else:
            _check_id(where, row["id"])
            articles[row["id"]] = (row["id"], row.get("category", ""), row["title"], row.get("abstract", ""))
    if not articles:
        raise UserError(f"{name}: no item with an id and a title; give a table with some")
    left_out.say(name, total, "rows")
    return articles


def _read_interactions(name: str, named: dict[str, str], articles: dict[str, Any], items: str) -> _Met:
    has_value = False

    def choose(found: list[str]) -> tuple[str | None, ...]:
        nonlocal has_value
        wanted = {"user": USER_COLUMNS, "item": ITEM_COLUMNS, "time": TIME_COLUMNS, "value": VALUE_COLUMNS}
        columns = _chosen(name, found, wanted, named)
        for role, column in zip(("user", "item", "time"), columns, strict=False):
            _need(name, found, column, role)
        has_value = columns[-1] is not None
        return tuple(columns)

    people: dict[str, int] = {}
    numbers = {key: number for number, key in enumerate(articles)}
    rows: list[tuple[int, int, float, float]] = []
    left_out, total = LeftOut(), 0
    for where, user, item, time, value in open_records(name, choose, False, Layout()):
        total += 1
        user, item = _cell(where, "user", user), _cell(where, "item", item)
        if not user or not item or is_missing(time) or (has_value and is_missing(value)):
            left_out["with something missing"] += 1
        elif item not in numbers:
            left_out[f"on items that are not in {items}"] += 1
        else:
            try:
                known = (_time(time), number_of(value) if has_value else 1.0)
            except (BadValueError, TypeError, ValueError, OverflowError, OSError):
                raise UserError(
                    f"{where}: a time is a number or a date like 2026-01-31T12:00, and a value is a number; "
                    "correct the row"
                ) from None
            rows.append((people.setdefault(user, len(people)), numbers[item], *known))
    if not rows:
        raise UserError(f"{name}: no row is left ({left_out.reasons() or 'there is none'}); check the columns")
    left_out.say(name, total, "rows")
    users, met, times, values = (np.array(column) for column in zip(*rows, strict=True))
    order = np.argsort(times, kind="stable")
    ids = list(articles)
    return _Met(users[order], met[order], times[order], values[order] if has_value else None, list(people), ids)


def _positive(values: np.ndarray | None) -> float:
    """From which value on an item counts as clicked."""
    if values is None or set(np.unique(values)) <= {0.0, 1.0}:
        return 1.0
    return float(np.median(values))


def _impressions(met: _Met, positive: float, negatives: int, draw: np.random.Generator) -> list[_Impression]:
    """Impressions by time. Rows of one user and time without any click make no impression."""
    clicked = np.ones(len(met.users), dtype=bool) if met.values is None else met.values >= positive
    seen: list[set[int]] = [set() for _ in met.people]
    for user, item in zip(met.users.tolist(), met.items.tolist(), strict=True):
        seen[user].add(item)
    somebody = np.unique(met.items)
    histories: list[list[int]] = [[] for _ in met.people]
    found = []
    for rows in _at_one_time(met):
        user = int(met.users[rows[0]])
        verdict = {}
        for row in rows:  # the last word on an item counts
            verdict[int(met.items[row])] = bool(clicked[row])
        if any(verdict.values()):
            if all(verdict.values()):
                verdict |= dict.fromkeys(_unmet(somebody, seen[user], negatives, draw), False)
            if not all(verdict.values()):
                shown = draw.permutation(list(verdict)).tolist()
                yes = [verdict[one] for one in shown]
                found.append(
                    _Impression(met.people[user], float(met.times[rows[0]]), histories[user][-HISTORY:], shown, yes)
                )
            histories[user] = histories[user] + [item for item, yes in verdict.items() if yes]
    return found


def _unmet(items: np.ndarray, met: set[int], count: int, draw: np.random.Generator) -> list[int]:
    """Draw `count` different items that a user has no row of, all equally likely; fewer if there are no more."""
    drawn = dict.fromkeys(items[draw.integers(len(items), size=2 * count)].tolist())
    found = [item for item in drawn if item not in met][:count]
    if len(found) < count:  # the user knows most of them
        found = draw.permutation([item for item in items.tolist() if item not in met])[:count].tolist()
    return found


def _at_one_time(met: _Met) -> Iterator[list[int]]:
    """Rows of one user at one time, by time and then in the order of the file."""
    groups: dict[tuple[float, int], list[int]] = {}
    for row, key in enumerate(zip(met.times.tolist(), met.users.tolist(), strict=True)):
        groups.setdefault(key, []).append(row)
    return iter(groups.values())


def _write(
    folder: Path, articles: list[tuple[str, ...]], ids: list[str], impressions: list[_Impression], before: int
) -> None:
    folder.mkdir(parents=True)
    lines = (
        f"{key}\t{category}\t{category}\t{title}\t{abstract}\t\t[]\t[]\n" for key, category, title, abstract in articles
    )
    (folder / "news.tsv").write_text("".join(lines), encoding="utf-8")
    with open(folder / "behaviors.tsv", "w", encoding="utf-8") as file:
        for number, one in enumerate(impressions, before + 1):
            time = datetime.fromtimestamp(one.time, UTC).strftime("%m/%d/%Y %I:%M:%S %p")
            history = " ".join(ids[item] for item in one.history)
            shown = " ".join(f"{ids[item]}-{yes:d}" for item, yes in zip(one.candidates, one.clicked, strict=True))
            file.write(f"{number}\t{one.user}\t{time}\t{history}\t{shown}\n")


def _cell(where: str, role: str, value: Any) -> str:
    """A cell as MIND's files have it; mistakes name the place `where` it stands."""
    try:
        return _line(value)
    except BadValueError as error:
        raise UserError(f"{where}: {str(error).replace('the label', f'the {role}')}") from None


def _line(value: Any) -> str:
    """A cell on one line, without tabs."""
    if is_missing(value):
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(_line, value))
    return " ".join((value if isinstance(value, str) else label_of(value)).split())


def _check_id(where: str, key: str) -> None:
    if " " in key:
        raise UserError(
            f"{where}: the id {key[:60]!r} has a space in it, which separates ids in MIND's files; use another"
        )


def _time(value: Any) -> float:
    if type(value) is date:  # without a time: as if it were written
        value = value.isoformat()
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    seconds = float(value)
    seconds = seconds / 1000 if seconds > 1e11 else seconds  # milliseconds
    datetime.fromtimestamp(seconds, UTC)
    return seconds


def told(found: Imported) -> str:
    """What was written, in a line."""
    parts = ", ".join(f"{split} {count:,}" for split, count in found.impressions.items())
    rule = "" if found.positive is None else f"; an item counts as clicked from {found.positive:g} on"
    of = f"{how_many(found.users, 'users')} and {how_many(found.items, 'items')}"
    return f"{sum(found.impressions.values()):,} impressions of {of} are in {found.folder} ({parts}){rule}."
