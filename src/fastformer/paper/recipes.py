"""Recipes: what a table or figure of the paper compares, what the paper says about it, and at which scales we run it.

The files in recipes/ hold all of it, one per table or figure. `like` names another one, whose entries, variants and
claims aside, hold here too. `Options` is what a person may choose: a field is an option of `fastformer reproduce`, as
in `engine/settings.py`. Nothing here imports torch: `--help` must not wait for it.
"""

import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastformer.engine.settings import option, unknown
from fastformer.errors import UserError

NAMES = (
    "table-complexity",
    "table-datasets",
    "table-classification",
    "figure-interaction",
    "figure-sharing",
    "table-variations",
    "table-recommendation",
    "table-summarization",
    "table-conversion",
)
BUILTIN = ("builtin=builtin",)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person may choose."""

    data: tuple[str, ...] = option(BUILTIN, "", metavar="NAME[:PAPER]=PATH")  # its help is the recipe's
    scale: str = option("cpu", "full: the paper's settings; cpu: reduced for 2 cores; small: minutes.")
    only: tuple[str, ...] = option(
        (),
        "Train only this row or bar; may be given several times. Those trained before stay in the report.",
        metavar="ROW",
    )
    seeds: int | None = option(None, "Runs per variant, with seeds 0, 1, …", least=1, most=1000)
    glove: str | None = option(None, "GloVe file (text, .gz or .zip) that word vectors start from.")
    plm: str | None = option(None, "Folder with a transformers encoder, for the methods that start from one.")
    text_column: str | None = option(
        None, "Column that holds the text, or the article. Guessed when obvious.", also=("article-column",)
    )
    label_column: str | None = option(
        None, "Column that holds the label, or the summary. Guessed when obvious.", also=("summary-column",)
    )
    data_seed: int = option(0, "Random seed for drawing rows and for splits.", least=0, most=2**32 - 1)
    processes: int | None = option(
        None,
        "Runs at a time, of one thread each [default: as many as there are cores and memory for].",
        least=1,
        most=1024,
    )
    so_far: bool = option(False, "Train nothing, and report what is there.")
    keep_models: bool = option(False, "Keep the trained models, and not only settings, metrics and answers.")
    output: Path = option(Path("runs/reproduce"), "Folder for reports, runs and prepared data. Commands may share it.")

    def command(self, what: str, names: Iterable[str]) -> str:
        """The command line that makes the whole report; what is at its default is left out, except scale and output."""
        parts: list[str] = []
        for one in fields(self):
            value, flag = getattr(self, one.name), f"--{one.name.replace('_', '-')}"
            is_said = value != one.default or one.name in ("data", "scale", "output")
            if one.name not in names or one.name in ("only", "so_far") or not is_said:
                continue
            if isinstance(value, tuple):
                parts += [part for given in value for part in (flag, given)]
            else:
                parts += [flag] if value is True else [flag, str(value)]
        line = shlex.join(["fastformer", "reproduce", what, *parts])
        return line.encode("utf-8", "backslashreplace").decode()  # a name that is not UTF-8 could not be written down


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large an experiment is; what is empty is as in the paper's Table "hyper"."""

    name: str
    says: str  # the reduction in words, for reports
    seeds: int  # unless the command says otherwise
    preset: str | None = None  # other than the recipe's
    rows: dict[str, int] = field(default_factory=dict)  # at most this many, by split
    sample: dict[str, int] = field(default_factory=dict)  # by the paper's dataset: drawn before splitting
    settings: dict[str, Any] = field(default_factory=dict)  # of the task, other than the preset's
    at_most: dict[str, int] = field(default_factory=dict)  # the same, if the preset has more
    own: dict[str, Any] = field(default_factory=dict)  # what only this study knows


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One row of a table or one bar of a figure."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)  # of the task, other than the preset's
    paper: dict[str, dict[str, Any]] = field(default_factory=dict)  # dataset -> score -> mean, or mean and deviation
    own_sizes: bool = False  # the sizes that a scale gives to models are not for it
    needs_plm: bool = False  # left out if there is no pre-trained encoder
    floor: str | None = None  # no model: what a model must beat
    average: str | None = None  # no runs of its own: an ensemble of those of this variant

    @property
    def trains(self) -> bool:
        """Whether it has runs of its own."""
        return self.floor is None and self.average is None

    @property
    def run_name(self) -> str:
        """A name for files: the same wherever the same model is compared."""
        plain = {name: value for name, value in self.settings.items() if name != "model"}
        kinds = {name: value for name, value in plain.items() if name.endswith(("mixer", "recommender"))}
        others = [
            *(one for one in plain.items() if one[0] not in kinds),
            *sorted(self.settings.get("model", {}).items()),
        ]
        return ",".join(
            [*dict.fromkeys(kinds.values() or ["fastformer"]), *(f"{name}={value}".lower() for name, value in others)]
        )


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper: each of `better` is above each of `than`, or `on_average` their mean is."""

    quote: str
    better: list[str]
    than: list[str]
    on_average: bool = False  # for "usually" and "many": then one method may be below
    similar: float = 0.0  # for "similar": at most this far below
    paper: list[str] = field(default_factory=list)  # the datasets it is about; none: all


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A table or figure."""

    name: str
    title: str
    source: str  # where the paper has it
    help: str  # of its command
    task: str
    version: int  # of what its runs give
    papers: dict[str, str]  # the paper's datasets, and how reports call them
    usual_paper: str  # whose settings a dataset gets that stands for none of them
    scores: dict[str, str]  # as metrics.json has them, as people write them
    data_help: str = (
        "A classification dataset and what to call it; may be given several times. PAPER is the dataset of the paper "
        "that it stands for: amazon, imdb or mind. PATH is whatever `train classification` reads, or a folder with "
        "train, validation and test files; without splits it is 80/10/10 at random."
    )
    example: str = ""
    stands_for: str | None = None  # the paper's dataset that any data stands for
    preset: str = "default"
    settings: dict[str, Any] = field(default_factory=dict)  # of all variants
    predict: list[str] = field(default_factory=list)  # options of `fastformer predict`
    answer_column: str = ""  # of its answers, which scores are made from
    scored: str = "test"  # or "validation": then the test examples are not used
    in_paper: bool = True  # `all` makes it
    scores_at: list[str] = field(default_factory=lambda: ["test"])  # where metrics.json has them
    judged: list[str]  # the scores that claims are about; all, if the file names none
    percent: bool = True  # scores are shown times 100
    decimals: int = 2
    more: dict[str, list[str]] = field(default_factory=dict)  # further columns, and where metrics.json has them
    unit: str = "rows"
    first_column: str = "method"
    picture: bool = False
    variants: list[Variant] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    claims_title: str = "What the paper says, and these runs"
    scales: dict[str, Scale]
    own: dict[str, Any] = field(default_factory=dict)  # what only this study knows

    def scale(self, name: str) -> Scale:
        """The scale called `name`."""
        if name not in self.scales:
            raise UserError(unknown("--scale", name, self.scales))
        return self.scales[name]

    def options(self) -> list[str]:
        """The options that its command has."""
        left_out = set() if self.variants else {"only", "glove", "plm", "processes", "so_far", "keep_models"}
        left_out |= {"plm"} if not any(one.needs_plm for one in self.variants) else set()
        left_out |= {"text_column", "label_column"} if "label_column" not in self.settings else set()
        return [one.name for one in fields(Options) if one.name not in left_out]


@cache
def load_recipe(name: str) -> Recipe:
    """The recipe of a table or figure."""
    found = _read(name)
    found["variants"] = [Variant(**one) for one in found.get("variants", ())]
    found["claims"] = [Claim(**one) for one in found.get("claims", ())]
    found["scales"] = {key: Scale(name=key, **one) for key, one in found["scales"].items()}
    return Recipe(name=name, **{"judged": list(found["scores"]), **found})


def _read(name: str) -> dict[str, Any]:
    found = tomllib.loads((files(__package__) / "recipes" / f"{name}.toml").read_text(encoding="utf-8"))
    if "like" in found:
        base = _read(found.pop("like"))
        found = {key: value for key, value in base.items() if key not in ("variants", "claims")} | found
    return found
