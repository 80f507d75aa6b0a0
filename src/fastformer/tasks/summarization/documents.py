"""A source -> documents (article, summary), a few at a time, so that a collection may be larger than memory.

A source is a CSV, TSV, JSONL, Parquet or Excel file (plain, .gz or .zip) with a column for each; CNN/DailyMail as
published, a folder of `.story` files with `@highlight` before each line of the summary (which gets a full stop if it
has none); the PubMed and arXiv files of Cohan et al. (2018), one JSON object per line with lists of sentences, `<S>`
around those of the summary, whatever the file is called; a folder saved by `datasets`, a Hub name; or `builtin`:
docstrings without their first line, which is the summary.

In Python a source may also be a list of dictionaries with these columns; of articles alone, a list of texts.

A new line ends a sentence. White space is otherwise of no meaning: runs of it become one space.
"""

import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fastformer.data.columns import recognise_column
from fastformer.data.corpus import builtin_rows
from fastformer.data.formats import Choose, Record
from fastformer.data.frames import check_several
from fastformer.data.keeping import Fields, Keep, KeepingColumns
from fastformer.data.nltk_words import split_sentences
from fastformer.data.opening import Format, decode, guard, opened, reads_once
from fastformer.data.tables import Reading, called, open_records
from fastformer.data.values import is_missing, kind_of, whole_characters
from fastformer.errors import UserError
from fastformer.surroundings.progress import how_many

# Column names recognised in any case; the first of each wins over the others.
ARTICLE_COLUMNS = ("article", "article_text", "document", "text", "body", "content", "source", "dialogue")
SUMMARY_COLUMNS = ("summary", "abstract", "abstract_text", "highlights", "headline", "target")

STORY = ".story"
GIVEN = "the documents"  # what errors call those that are in no file
_HIGHLIGHT = "@highlight"
_ENDS = re.compile(r"""[.!?…。！？।॥۔؟]["'\u201d\u2019)\]]*$""")
_SENTENCE_MARK = re.compile(r"</?S>")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_STOP_WITHOUT_SPACE = re.compile(r"(?<=[。！？।॥۔؟])")
_BUILTIN_SUMMARY_WORDS = range(3, 31)
_BUILTIN_ARTICLE_WORDS = 10


class Document(NamedTuple):
    """An article and, if it is read, its summary; both may be empty."""

    article: str
    summary: str = ""


@dataclass
class Documents:
    """Documents of a source, which can be read many times.

    Those without an article or a summary are left out; of articles alone (not `labelled`) none is.
    """

    source: str | Iterable[Any]
    reading: Reading
    labelled: bool = True
    count: int = field(default=0, init=False)  # of the last reading
    empty: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Document]:
        return self._read()

    def with_fields(self, keep: Keep) -> Iterator[tuple[Fields, Document]]:
        """The documents, each with those fields of the input that are kept."""
        columns = KeepingColumns(self.name, keep, unnamed=("article", "summary"))
        return ((columns.fields, document) for document in self._read(columns))

    def _read(self, keeping: KeepingColumns | None = None) -> Iterator[Document]:
        self.count = self.empty = 0
        for where, document in _read(self.source, self.reading, self.labelled, keeping):
            missing = [role for role, text in zip(Document._fields, document, strict=True) if not text]
            if self.reading.strict and missing and (self.labelled or not document.article):
                raise UserError(f"{where}: the {missing[0]} is missing; fill it in, or leave --strict out")
            if not self.labelled or not missing:
                self.count += 1
                yield document
            else:
                self.empty += 1
        if self.labelled and not self.count:
            raise UserError(f"{self.name}: every article or summary is empty; check --article-column")

    @property
    def name(self) -> str:
        """What messages call it."""
        return called(self.source) if isinstance(self.source, str) else GIVEN

    def check(self) -> "Documents":
        """Fail now, before any work, if the source or its columns are wrong; a pipe can be read only once."""
        if not reads_once(self.source):
            next(iter(self))
        return self

    def notes(self) -> Iterator[str]:
        """How many documents were left out, if any were."""
        if self.empty:
            left_out = how_many(self.empty, "documents", "were", self.count + self.empty)
            yield f"{self.name}: {left_out} left out: no article or no summary."


def read_documents(
    source: str | Iterable[Any], reading: Reading | None = None, *, with_summary: bool = True, **named: Any
) -> Iterator[Document]:
    """The documents of a source, in its order; without `with_summary` only articles are read.

    `named` are fields of a `Reading`, whose text is the article and whose label the summary.
    """
    reading = replace(reading or Reading(), **named)
    return (document for _, document in _read(source, reading, with_summary, None))


def _read(
    source: str | Iterable[Any], reading: Reading, with_summary: bool, keeping: KeepingColumns | None
) -> Iterator[tuple[str, Document]]:
    """The documents, and where they stand."""
    name = called(source) if isinstance(source, str) else None
    choose: Choose = partial(_choose_columns, name or GIVEN, reading, with_summary)
    choose = keeping.beside(choose) if keeping else choose
    base, _, named_split = (name or "").rpartition(":")
    if not isinstance(source, str):
        records = _given(source, choose)
    elif "builtin" in (name, base):
        found = builtin_documents(named_split if base else reading.split or "train")
        records = ((f"{source}, document {number}", *document) for number, document in enumerate(found, 1))
    elif source.endswith(STORY) or _is_story_folder(source):
        records = guard(source, _stories(Path(source)))
    else:
        _refuse_folder(source)
        layout = reading.layout._replace(format=reading.format or _json_in_txt(source))
        records = open_records(source, choose, with_summary, layout, reading.split)
    return _documents(name, keeping.without_fields(records) if keeping else records, with_summary)


def builtin_documents(split: str) -> Iterator[Document]:
    """Docstrings of the built-in corpus whose first line stands alone: that line, and what follows it."""
    for text, _ in builtin_rows(split):
        first, _, rest = text.partition("\n")
        paragraphs = _PARAGRAPHS.split(rest.strip())
        article = tidy("\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))
        stands_alone = rest.startswith("\n") and len(first.split()) in _BUILTIN_SUMMARY_WORDS
        if stands_alone and len(article.split()) >= _BUILTIN_ARTICLE_WORDS:
            yield Document(article, tidy(first))


def tidy(text: str) -> str:
    """Lines without blank ones and without runs of white space."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def sentences(text: str) -> list[str]:
    """The sentences of a text, by new lines and by a simple rule within a line."""
    found = (
        sentence.strip()
        for line in text.splitlines()
        for part in _STOP_WITHOUT_SPACE.split(line)
        for sentence in split_sentences(part)
    )
    return [sentence for sentence in found if sentence]


def _given(rows: Iterable[Any], choose: Choose) -> Iterator[Record]:
    """Documents that are in no file: dictionaries, of which the first decides on the columns, or articles alone."""
    check_several(rows, "documents")
    columns = None
    for number, row in enumerate(rows, 1):
        where = f"document {number}"
        if isinstance(row, Document):
            yield where, *row
        elif isinstance(row, str):
            yield where, row, None
        elif isinstance(row, Mapping):
            columns = columns or choose(list(row))
            if isinstance(choose, KeepingColumns):
                choose.object = dict(row)
            yield where, *map(row.get, columns)
        else:
            raise UserError(f"{where}: {kind_of(row)}; give a dictionary with an article, or the article itself")


def _documents(name: str | None, records: Iterator[Record], with_summary: bool) -> Iterator[tuple[str, Document]]:
    where = None
    for where, article, summary in records:
        article = _text(where, article, "article")
        yield where, Document(article, _text(where, summary, "summary") if with_summary else "")
    if where is None and name is not None:
        raise UserError(f"{name}: no rows; give a file with at least one document")


def _text(where: str, value: Any, role: str) -> str:
    """A string, or the sentences of a list, one per line; none if it is missing."""
    if is_missing(value):
        return ""
    if isinstance(value, list | tuple) and all(isinstance(sentence, str) for sentence in value):
        value = "\n".join(_SENTENCE_MARK.sub(" ", sentence) for sentence in value)
    if not isinstance(value, str):
        raise UserError(
            f"{where}: the {role} is {kind_of(value)}, not text; correct the row, or choose another column with "
            f"--{role}-column"
        )
    return tidy(whole_characters(value))


def _choose_columns(name: str, reading: Reading, with_summary: bool, found: list[str]) -> tuple[str | None, ...]:
    """The two columns: as given, else those of the training, else by their names."""
    listed = f"columns found: {', '.join(found[:30])}{', …' if len(found) > 30 else ''}"
    article, summary = reading.text_column, reading.label_column if with_summary else None
    for column, role in ((article, "article"), (summary, "summary")):
        if column is not None and found.count(column) != 1:
            count = "more than one column" if column in found else "no column"
            raise UserError(f"{name}: {count} {column!r}; {listed}; name one of them with --{role}-column")
    article = article or next((column for column in reading.texts_from if column in found), None)
    article = article or recognise_column(found, ARTICLE_COLUMNS, taken=(summary,))
    if article is None and len(found) == 1:
        article = found[0]
    if with_summary:
        summary = summary or next((column for column in reading.labels_from if column in found), None)
        summary = summary or recognise_column(found, SUMMARY_COLUMNS, taken=(article,))
    for column, role in ((article, "article"), (summary, "summary")):
        if column is None and (with_summary or role == "article"):
            raise UserError(
                f"{name}: cannot tell which column holds the {role}; {listed}; name it with --{role}-column"
            )
    if article == summary:
        raise UserError(f"{name}: {article!r} cannot be article and summary at once; name another --summary-column")
    left = tuple(column for column in found if column not in (article, summary))
    texts, labels = (tuple(column for column in (one,) if column is not None) for one in (article, summary))
    reading.chosen.update(texts=texts, labels=labels, left=left)
    return article, summary


# ---- layouts of published data ---------------------------------------------------------------------------------------


def _stories(path: Path) -> Iterator[Record]:
    for file in sorted(path.rglob(f"*{STORY}")) if path.is_dir() else [path]:
        with open(file, "rb") as stream:
            article, *highlights = "".join(decode(stream, str(file))).split(_HIGHLIGHT)
        yield str(file), article, "\n".join(map(_closed, filter(None, map(str.strip, highlights))))


def _closed(highlight: str) -> str:
    """A highlight with a full stop: tokenizers of words drop the new line that would part it from the next one."""
    return highlight if _ENDS.search(highlight) else f"{highlight} ."


def _is_story_folder(source: str) -> bool:
    return os.path.isdir(source) and next(Path(source).rglob(f"*{STORY}"), None) is not None


def _refuse_folder(source: str) -> None:
    """A folder that is none of ours would be read as LABEL/*.txt."""
    saved = any(os.path.isfile(os.path.join(source, file)) for file in ("dataset_dict.json", "state.json"))
    if os.path.isdir(source) and not saved:
        raise UserError(f"{source}: a folder with neither {STORY} files nor a saved `datasets` dataset; name a file")


def _json_in_txt(source: str) -> Format | None:
    """Cohan et al. call their JSON lines train.txt."""
    if not os.path.isfile(source) or not source.lower().removesuffix(".gz").endswith(".txt"):
        return None
    try:
        with opened(source) as file:
            return "jsonl" if file.peek(1).startswith(b"{") else None
    except (OSError, EOFError, zlib.error):  # reading the whole file reports what is wrong with it
        return None
