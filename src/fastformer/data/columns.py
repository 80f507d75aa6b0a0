"""Which columns of a table hold the text and the label: as given, else by their names, else the only ones left.

A column of ids, of row numbers, of links or of times is never taken for either by guessing. A title stands before its
body: if both are there, the two make one text. Several label columns are read as labels themselves, with 1 in those
that a text has (`--label-column toxic,threat`).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from fastformer.data.left_out import say_once
from fastformer.errors import UserError

# Column names recognised in any case; the first of each wins over the others.
TEXT_COLUMNS = (
    "text",
    "document",
    "content",
    "body",
    "article",
    "review",
    "reviewtext",
    "sentence",
    "comment",
    "message",
    "tweet",
)
HEADINGS = ("title", "headline", "subject")
LABEL_COLUMNS = (
    "label",
    "labels",
    "class",
    "category",
    "categories",
    "target",
    "topic",
    "sentiment",
    "rating",
    "stars",
    "overall",
)
COLUMN_SEPARATOR = ","
_NOT_GUESSED = re.compile(
    r"(u?u?id|guid|key|idx|index|nr|no|number|row|row ?(id|nr|no|num|number)|unnamed \d+|(index )?level \d+|asin|isbn"
    r"|doi|ur[li]|link|href|path|file|file ?name|date|time|timestamp|datetime|created|updated|.+ (id|at|date|time))s?"
)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LISTED = 30


class WholeTexts(list[str]):
    """Columns of a published layout, whose `text` has its title in it."""


@dataclass
class ColumnChoice:
    """Chooses columns of those found, and remembers them in `told`: `texts`, `labels`, and `left`, the others.

    `usual_texts` and `usual_labels` are those of a training: unless others are given, later data is read from the same
    columns, if they are all there.
    """

    name: str  # of the source
    text_column: str | None = None
    label_column: str | None = None
    with_label: bool = True
    usual_texts: tuple[str, ...] = ()
    usual_labels: tuple[str, ...] = ()
    told: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the choice, for messages and run.json

    @property
    def labels(self) -> tuple[str, ...]:
        """The label columns that were chosen."""
        return self.told.get("labels", ())

    def __call__(self, found: list[str]) -> tuple[str | None, ...]:
        """Text columns, label columns if there are several, and the label column if there is one (or None)."""
        texts = self._named(found, self.text_column, "--text-column")
        labels = self._named(found, self.label_column, "--label-column") if self.with_label else []
        if not texts and set(self.usual_texts) <= set(found) - set(labels):
            texts = list(self.usual_texts)
        if not labels and self.with_label and set(self.usual_labels) <= set(found) - set(texts):
            labels = list(self.usual_labels)
        texts = texts or _recognised_texts(found, labels)
        named = labels or [one for one in [recognise_column(found, LABEL_COLUMNS, taken=texts)] if one]
        texts, labels = _only_others(found, texts, named)
        if len(found) == 1 and not self.with_label:
            texts = found
        self._check(found, texts, labels)
        labels = labels if self.with_label else []
        left = (column for column in found if column not in (*texts, *labels))
        if self.with_label or not self.labels:  # reading texts alone does not make the labels unread
            self.told.update(texts=tuple(texts), labels=tuple(labels), left=tuple(left))
        return *texts, *labels, *([None] if len(labels) != 1 else [])

    def _named(self, found: list[str], given: str | None, flag: str) -> list[str]:
        """The columns that an option names: one, which may have a comma in its name, or several between commas."""
        if given is None:
            return []
        columns = [given] if given in found else [column.strip() for column in given.split(COLUMN_SEPARATOR)]
        for column in columns:
            if found.count(column) != 1:
                count = "more than one column" if column in found else "no column"
                raise UserError(f"{self.name}: {count} {column!r}; {_listed(found)}; name one of them with {flag}")
        if len(set(columns)) < len(columns):
            raise UserError(f"{self.name}: {flag} {given} names a column twice; name each of them once")
        return columns

    def _check(self, found: list[str], texts: list[str], labels: list[str]) -> None:
        for missing, role in ((not texts, "text"), (not labels and self.with_label, "label")):
            if missing:
                raise UserError(
                    f"{self.name}: cannot tell which column holds the {role}; {_listed(found)}; name it with "
                    f"--{role}-column, or say --no-header if the first line is data"
                )
        if self.with_label and (both := set(texts) & set(labels)):
            raise UserError(
                f"{self.name}: {both.pop()!r} cannot be text and label at once; {_listed(found)}; name another with "
                "--label-column"
            )


def numbered_columns(first: list[str], where: str) -> list[str]:
    """The columns of a table without a header, "1", "2" and so on, given its first row.

    A run remembers that it was trained with --no-header, and a later file may have one: a first row with the name of a
    text column in it is told of, for it is read as data.
    """
    if any(field.strip().lower() in (*TEXT_COLUMNS, *HEADINGS) for field in first):
        said = ", ".join(field.strip()[:40] for field in first[:6])
        say_once(f"{where}: {said} is read as data, not as names of columns; if it is a header, say --header.")
    return [str(number) for number in range(1, len(first) + 1)]


def recognise_column(found: list[str], candidates: tuple[str, ...], taken: Collection[str | None]) -> str | None:
    """The column that bears one of these names: the first of them, else the only one; None if in doubt."""
    matches = [column for column in found if column not in taken and column.lower() in candidates]
    best = [column for column in matches if column.lower() == candidates[0]] or matches
    return best[0] if len(best) == 1 else None


def may_be_guessed(column: str) -> bool:
    """Whether a column may hold a text or a label, by its name: one of ids, row numbers, links or times does not."""
    words = re.sub(r"[\W_]+", " ", _HUMP.sub(" ", column)).strip().lower()
    return bool(words) and _NOT_GUESSED.fullmatch(words) is None


def _recognised_texts(found: list[str], taken: list[str]) -> list[str]:
    """The text column by its name, behind its heading if there is one."""
    text = recognise_column(found, TEXT_COLUMNS, taken)
    if text is None:
        return []
    heading = None if isinstance(found, WholeTexts) else recognise_column(found, HEADINGS, taken)
    return [text] if heading is None else [heading, text]


def _only_others(found: list[str], texts: list[str], labels: list[str]) -> tuple[list[str], list[str]]:
    """Where one of the two is not known by its name and only one column is left, that is it."""
    others = [column for column in found if column not in (*texts, *labels) and may_be_guessed(column)]
    if len(others) != 1 or bool(texts) == bool(labels) or not all(found):
        return texts, labels
    return texts or others, labels or others


def _listed(found: list[str]) -> str:
    return f"columns found: {', '.join(found[:_LISTED])}{', …' if len(found) > _LISTED else ''}"
