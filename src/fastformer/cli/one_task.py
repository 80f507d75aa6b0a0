"""Commands for the runs of one task."""

from pathlib import Path
from typing import Annotated

import typer

from fastformer.cli.options import Beams, Json, RunFolder, Seed, TextColumn, Texts, print_json


def recommend(
    run: RunFolder,
    history: Annotated[
        str, typer.Option(metavar="ID,ID,…", help="Ids of clicked articles, oldest first; leave it out for a new user.")
    ] = "",
    top: Annotated[int, typer.Option(min=1, help="How many articles to print.")] = 10,
    news: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Folder of MIND whose articles to choose from [default: those of the training]."
        ),
    ] = None,
    users: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Answer a table with `user` and `history` (ids): one JSON line per user."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="With --users: write here instead of to standard output: .jsonl, .parquet, …")
    ] = None,
    json_: Json = False,
) -> None:
    """Recommend articles to a user by what the user clicked before: the best ones, with their titles.

    Example: `fastformer recommend runs/news --history N1012,N57 --top 5`
    """
    from fastformer.runs.folder import open_run
    from fastformer.tasks.recommendation import recommend as find
    from fastformer.tasks.recommendation import recommend_to_all
    from fastformer.tasks.recommendation.model import check_users

    check_users(history, users, output)
    if users is not None:
        recommend_to_all(open_run(run), users, output, top=top, news=news, show_progress=output is not None)
        return
    found = find(open_run(run), history, top=top, news=news, show_progress=not json_)
    if json_:
        return print_json(found)
    for place, one in enumerate(found, 1):
        print(f"{place:>3}. {one['title']}  ({one['category']}, {one['id']}, {one['score']:.3f})")


def import_clicks(
    interactions: Annotated[
        str, typer.Argument(metavar="CLICKS", help="A table of users, items, times, and optionally ratings or clicks.")
    ],
    items: Annotated[
        str, typer.Argument(metavar="ITEMS", help="A table of items: id and title; optionally category and abstract.")
    ],
    output: Annotated[Path, typer.Option(help="Folder to write, with train, dev and test in it.")],
    positive: Annotated[
        float | None,
        typer.Option(
            help="Ratings of at least this are clicks [default: 1 if all are 0 or 1, else the median rating]."
        ),
    ] = None,
    negatives: Annotated[int, typer.Option(min=1, help="Non-clicks to draw for an impression that has none.")] = 20,
    seed: Seed = 0,
    user_column: Annotated[str | None, typer.Option(help="Column of CLICKS that holds the user.")] = None,
    item_column: Annotated[str | None, typer.Option(help="Column of CLICKS that holds the item's id.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Column of CLICKS that holds the time.")] = None,
    value_column: Annotated[str | None, typer.Option(help="Column of CLICKS that holds the rating or click.")] = None,
    id_column: Annotated[str | None, typer.Option(help="Column of ITEMS that holds the id.")] = None,
    title_column: Annotated[str | None, typer.Option(help="Column of ITEMS that holds the title.")] = None,
    category_column: Annotated[str | None, typer.Option(help="Column of ITEMS that holds the category.")] = None,
    abstract_column: Annotated[str | None, typer.Option(help="Column of ITEMS that holds the abstract.")] = None,
    json_: Json = False,
) -> None:
    """Convert a table of clicks or ratings and a table of items into folders in MIND's layout, split by time.

    All rows of one user at one time are an impression. If it has no non-click, some are drawn from the items that the
    user has no row of.

    Example: `fastformer import-clicks ratings.csv movies.csv --output clicks`
    """
    from fastformer.tasks.recommendation import import_clicks as write
    from fastformer.tasks.recommendation.tables import told

    columns = {
        "user": user_column,
        "item": item_column,
        "time": time_column,
        "value": value_column,
        "id": id_column,
        "title": title_column,
        "category": category_column,
        "abstract": abstract_column,
    }
    named = {role: column for role, column in columns.items() if column is not None}
    found = write(interactions, items, output, positive=positive, negatives=negatives, seed=seed, columns=named)
    if json_:
        return print_json({**found._asdict(), "folder": str(found.folder)})
    print(told(found))


def ensemble(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Two or more recommenders.")],
    output: Annotated[Path, typer.Option(help="Run folder to write.")],
) -> None:
    """Combine recommenders into one run folder, whose scores are the average of theirs.

    `evaluate`, `predict` and `recommend` read it.

    Example: `fastformer ensemble runs/news-0 runs/news-1 runs/news-2 --output runs/news-ensemble`
    """
    from fastformer.tasks.recommendation import ensemble as combine

    print(f"An ensemble of {len(runs)} runs is in {combine(runs, output)}.")


def summarize(
    run: RunFolder,
    document: Annotated[str, typer.Argument(metavar="FILE", help="A text file, or - for standard input.")] = "-",
    beams: Beams = None,
) -> None:
    """Print the summary of one document.

    Example: `fastformer summarize runs/news article.txt`
    """
    from fastformer.runs.folder import open_run
    from fastformer.tasks.summarization import summarize as write

    print(write(open_run(run), document, beams=beams))


def search(
    data: Texts,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in words.")],
    top: Annotated[int, typer.Option(min=1, help="How many texts to print.")] = 10,
    model: Annotated[
        str, typer.Option(metavar="RUN", help="An encoder: `base`, or a run of `train encoder`.")
    ] = "base",
    text_column: TextColumn = None,
    json_: Json = False,
) -> None:
    """Find the texts of a file that mean what you look for, in whatever words. This needs no training.

    A long text is compared passage by passage, 100 words each, and its nearest passage is printed.

    Example: `fastformer search reviews.csv "the zip broke"`
    """
    from fastformer.tasks.encoder.text_encoder import search as find

    found = find(data, query, model=model, top=top, text_column=text_column)
    if json_:
        return print_json([one._asdict() for one in found])
    for one in found:
        text = " ".join(one.passage.split())
        print(f"{one.score:.3f}  {one.place + 1:>6}  {text[:100]}{'…' if len(text) > 100 else ''}")


def explain(
    run: RunFolder,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text itself, or - for standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A text file to explain, instead of TEXT.")] = None,
    label: Annotated[str | None, typer.Option(help="Label to explain [default: the most probable one].")] = None,
    baseline: Annotated[
        str, typer.Option(help="What effects are measured from: `zero`, or the `mean` token of the text.")
    ] = "zero",
    output: Annotated[Path, typer.Option(help="Page to write.")] = Path("explanation.html"),
    json_: Json = False,
) -> None:
    """Show why a classifier answers as it does: a page with every token shaded by its effect and its weights.

    Example: `fastformer explain runs/reviews "Dull and far too long." --output why.html`
    """
    from fastformer.runs.folder import open_run
    from fastformer.tasks.classification import explain as write

    explanation = write(open_run(run), text, output, file=file, label=label, baseline=baseline)
    if json_:
        return print_json({**explanation.summary(), "output": str(output)})
    print(f"{explanation}\nThe page is in {output}.")
