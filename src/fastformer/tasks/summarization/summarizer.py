"""Summaries in Python, and of one document on the command line."""

from pathlib import Path

from fastformer.data.opening import decode, guard, is_table, opened
from fastformer.data.standard_input import STANDARD_INPUT, standard_input
from fastformer.errors import UserError
from fastformer.runs.folder import Run
from fastformer.surroundings.progress import say
from fastformer.tasks.model import TaskModel
from fastformer.tasks.summarization.documents import STORY, read_documents, tidy
from fastformer.tasks.summarization.predictor import SummaryPredictor


class Summarizer(TaskModel[SummaryPredictor]):
    """Writes summaries of articles, once it has learned from dictionaries with an article and a summary, or a file.

        rows = [{"article": f"Today {who} bought {what}. Then it rained {n} times.", "summary": f"{who} bought {what}."}
                for who in ("Anna", "Bert", "Clara", "David") for what in ("a boat", "some bread") for n in range(30)]
        model = Summarizer(tokenizer="word", max_length=32, epochs=6).fit(rows)
        print(model.summarize("Today Clara bought a boat. Then it rained 3 times."))
        clara bought a boat .

    Articles come as text or as dictionaries. The default tokenizer, `bpe`, keeps capitals; it wants more than 240 rows.
    """

    task = "summarization"

    def summarize(self, text: str, *, beams: int | None = None) -> str:
        """The summary of one article."""
        [found] = self.predict([text], beams=beams)
        return found["summary"]


def summarize(run: Run, source: str, *, beams: int | None = None) -> str:
    """The summary of one document: a text file, or `-` for standard input."""
    if run.task != Summarizer.task:
        raise UserError(
            f"{run.folder}: a run of {run.task}, which writes no summaries; give a run of `train summarization`"
        )
    summarizer = Summarizer.load(run.folder)
    summary = summarizer.summarize(_read_document(source), beams=beams)
    for note in summarizer.predictor.notes():
        say(note)
    return summary


def _read_document(source: str) -> str:
    """All of a text file, or of standard input."""
    if source == "-":
        name, text = STANDARD_INPUT, "".join(decode(standard_input(), STANDARD_INPUT))
    elif not Path(source).exists():
        raise UserError(f"{source}: no such file; give a text file, or - for standard input")
    elif Path(source).is_dir() or is_table(source):
        raise UserError(f"{source}: more than one document; `fastformer predict` summarizes each of them")
    elif source.endswith(STORY):
        name, [(text, _)] = source, read_documents(source)
    else:
        with opened(source) as file:
            name, text = source, "".join(guard(source, decode(file, source)))
    if not (text := tidy(text)):
        raise UserError(f"{name}: the document is empty; give one with words in it")
    return text
