"""One runner for all tables and figures: variants × datasets × seeds, each run once, then one report.

A `Study` is a recipe at a scale on some data. What a task adds of its own (how its examples are read, rows without a
model, measurements, further tables) is in the module of its name, in a few methods of a subclass.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from fastformer.bench.measuring import result_folder
from fastformer.engine.settings import TaskSettings, unknown
from fastformer.engine.word_encoder import encoder_hash, open_encoder
from fastformer.errors import UserError
from fastformer.paper.claims import Variances, compare
from fastformer.paper.datasets import Dataset, Examples, Prepared, parse_data, prepare, validation_as_test
from fastformer.paper.grid import Grid, Job, Metrics, Training, read_answers, run_grid
from fastformer.paper.overview import write_overview
from fastformer.paper.recipes import Options, Recipe, Variant
from fastformer.paper.report import write_report
from fastformer.paper.verdicts import OfRows, Resampled, mean_of_runs, of_rows, score_again
from fastformer.surroundings.files import content_hash
from fastformer.surroundings.progress import how_many, say
from fastformer.tasks.base import get_task

Entry = dict[str, Any]  # what a report has of a variant
SHOWN_FAILURES = 3


class Study:
    """A table or figure whose methods are trained."""

    examples: type[Examples]

    def __init__(self, recipe: Recipe, options: Options, show: bool = True):
        """Say now what is wrong with the options, rather than after the data is read."""
        self.recipe, self.options, self.show = recipe, options, show
        self.scale = recipe.scale(options.scale)
        self.seeds = options.seeds or self.scale.seeds
        self.datasets = self._datasets()
        self.variants = [one for one in recipe.variants if options.plm or not one.needs_plm]
        self._check_only()
        if options.glove is not None and not Path(options.glove).is_file():
            raise UserError(f"{options.glove}: no such GloVe file; check the path")
        if options.plm is not None:
            open_encoder(Path(options.plm).expanduser())
        self.folder = result_folder(options.output)

    def _datasets(self) -> list[Dataset]:
        datasets = parse_data(self.options.data, self.recipe.papers)
        datasets = [replace(one, paper=one.paper or self.recipe.stands_for) for one in datasets]
        for one in datasets:
            if self.scale.name == "full" and one.paper is None:
                raise UserError(
                    f"--data {one}: at --scale full the settings are those of a dataset of the paper; say which one it "
                    f"stands for, as in --data {one.name}:{self.recipe.usual_paper}={one.source}"
                )
        return datasets

    def _check_only(self) -> None:
        rows = [one.name for one in self.variants if one.floor is None]
        for name in self.options.only:
            if name in {one.name for one in self.recipe.variants if one.needs_plm} and not self.options.plm:
                raise UserError(f"--only {name}: it starts from a pre-trained encoder; give one with --plm FOLDER")
            if name not in rows:
                raise UserError(unknown("--only", name, rows))

    def _left_out(self, variant: str, seed: int) -> bool:
        """Whether a run that is missing is not to be made: `--so-far`, or no row in `--only` needs it."""
        only, ensembles = self.options.only, {one.name for one in self.variants if one.average == variant}
        needed = (variant in only and seed < self.seeds) or (
            not ensembles.isdisjoint(only) and seed < self.scale.own["ensemble"]
        )
        return self.options.so_far or bool(only and not needed)

    # ---- what a task adds --------------------------------------------------------------------------------------------

    def settings(self, variant: Variant, data: Prepared, seed: int) -> TaskSettings:
        """The paper's settings for a dataset and a method, reduced to the scale, with what is the variant's own."""
        preset = (self.scale.preset or self.recipe.preset).format(paper=data.dataset.paper or self.recipe.usual_paper)
        start = {"plm": self.options.plm} if variant.needs_plm else {"init": self.options.glove}
        start = {name: path and str(Path(path).expanduser().resolve()) for name, path in start.items()}
        found = get_task(self.recipe.task).settings(preset, **self.recipe.settings, **variant.settings, **start)
        scale = {**self.scale.settings, "model": {} if variant.own_sizes else self.scale.settings.get("model", {})}
        own = {**scale, "model": {**scale["model"], **variant.settings.get("model", {})}}
        least = {name: min(most, getattr(found, name)) for name, most in self.scale.at_most.items()}
        return found.with_options(**own, **least, seed=seed)

    def resampled(self, data: Prepared, answers: list[Any]) -> Resampled:
        """The scores of a run on test rows drawn with replacement, from its answers."""
        raise NotImplementedError

    def runs_of(self, variant: Variant) -> range:
        """The seeds that a variant is trained with."""
        return range(self.seeds)

    def measurements(self, prepared: Sequence[Prepared]) -> dict[str, Job]:
        """Jobs that train nothing."""
        return {}

    def other_rows(self, data: Prepared, grid: Grid, measured: dict[str, Metrics]) -> Iterator[tuple[str, Entry]]:
        """Rows of a dataset's table that are not trained variants."""
        return iter(())

    def entry(self, metrics: Sequence[Metrics], variant: Variant) -> Entry:
        """Further numbers of a variant."""
        return {}

    def add(self, report: dict[str, Any], grid: Grid, measured: dict[str, Metrics]) -> None:
        """Further entries of a report."""

    # ---- the runner --------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Train what is missing, sum up, and leave NAME.md, NAME.json and perhaps NAME.png."""
        prepared = [self.prepare(dataset) for dataset in self.datasets]
        measurements = self.measurements(prepared)
        jobs = {
            (data.dataset.name, variant.name, seed): self.training(data, variant, seed)
            for seed in range(max((max(self.runs_of(one), default=0) for one in self.variants), default=0) + 1)
            for data in prepared  # seeds are the outer loop: stopped early, fewer of them are complete
            for variant in self.variants
            if variant.trains and seed in self.runs_of(variant)
        }
        every = [*measurements.values(), *jobs.values()]
        left_out = {job.name for (_, variant, seed), job in jobs.items() if self._left_out(variant, seed)}
        if self.options.so_far or self.options.only:  # rows need no measurement
            left_out |= {job.name for job in measurements.values()}
        needed = [job for job in every if job.name not in left_out or job.is_done(self.folder)]
        grid = run_grid(
            needed,
            self.folder,
            self.describe,
            processes=self.options.processes,
            keep_models=self.options.keep_models,
            show=self.show,
        )
        measured = {key: grid.found[job.name]["metrics"] for key, job in measurements.items() if job.name in grid.found}
        report = self._report(prepared, jobs, grid, measured)
        write_report(self.folder, self.recipe, report)
        write_overview(self.folder)
        self._say_missing(grid, len(every))
        return report

    def prepare(self, dataset: Dataset, seed: int | None = None) -> Prepared:
        """The examples of a dataset, drawn by `--data-seed` unless another seed is given."""
        examples = self.examples(self.options.text_column, self.options.label_column)
        seed = self.options.data_seed if seed is None else seed
        found = prepare(dataset, examples, self.scale, self.folder, seed=seed, show=self.show)
        return found if self.recipe.scored == "test" else validation_as_test(found)

    def training(self, data: Prepared, variant: Variant, seed: int) -> Training:
        """The run of one method with one seed."""
        settings = self.settings(variant, data, seed)
        determined_by = {
            "task": self.recipe.task,
            "version": self.recipe.version,
            "data": data.about["fingerprint"],
            "settings": chosen(settings),
        }
        if self.options.glove and not variant.needs_plm:  # by what it holds, wherever it is
            determined_by["settings"]["init"] = content_hash(self.options.glove)
        if self.options.plm and variant.needs_plm:
            determined_by["settings"]["plm"] = encoder_hash(open_encoder(Path(self.options.plm).expanduser()))
        name = f"{data.dataset.name}/{self.recipe.task}-{variant.run_name}-seed{seed}"
        return Training(name, determined_by, settings, data.files, self.recipe.answer_column, self.recipe.predict)

    def describe(self, metrics: Metrics) -> str:
        """A result in a few words."""
        if "test" not in metrics:
            return "measured"
        told = self.scores(metrics)
        return ", ".join(f"{title} {told[score]:.{self.recipe.decimals}f}" for score, title in self._titles().items())

    def _titles(self) -> dict[str, str]:
        return {score: self.recipe.scores[score] for score in self.recipe.judged}

    def scores(self, metrics: Metrics) -> dict[str, float]:
        """The test scores of a run, as they are shown."""
        found = at(metrics, self.recipe.scores_at)
        return {score: found[score] * self.factor for score in self.recipe.scores}

    @property
    def factor(self) -> int:
        """The factor by which scores are multiplied to be shown."""
        return 100 if self.recipe.percent else 1

    def spreads(self, scores: Sequence[dict[str, float]]) -> Entry:
        """Mean and deviation of each score."""
        return {score: spread([one[score] for one in scores]) for score in self.recipe.scores} if scores else {}

    def _report(
        self, prepared: Sequence[Prepared], jobs: dict[tuple[str, str, int], Training], grid: Grid, measured: dict
    ) -> dict[str, Any]:
        recipe, compared = self.recipe, {one.name for one in self.variants}
        found = [*grid.found.values()]
        report: dict[str, Any] = {
            "what": recipe.name,
            "title": recipe.title,
            "source": recipe.source,
            "command": replace(self.options, seeds=self.seeds).command(recipe.name, recipe.options()),
            "scale": self.scale.name,
            "reduction": self.scale.says,
            "seeds": self.seeds,
            "glove": self.options.glove,
            "plm": self.options.plm,
            "machine": found[-1]["machine"] if found else None,
            "missing": sorted(job.name for job in jobs.values() if job.name not in grid.found),
            "claims": [asdict(one) for one in recipe.claims if {*one.better, *one.than} <= compared],
            "datasets": {},
        }
        for data in prepared:
            entries = dict(self.other_rows(data, grid, measured))
            for variant in filter(lambda one: one.trains, self.variants):
                runs = [jobs[data.dataset.name, variant.name, seed] for seed in range(self.seeds)]
                entries[variant.name] = self._sum_up([run for run in runs if run.name in grid.found], grid, variant)
            order = [*(one.name for one in self.variants), *(name for name in entries if name not in compared)]
            paper = data.dataset.paper
            report["datasets"][data.dataset.name] = {
                "paper": paper,
                "about": data.about,
                "variants": {
                    name: {**entries[name], "paper": self._printed(name, paper)} for name in order if name in entries
                },
            }
        self.add(report, grid, measured)
        variances = self._variances({one.dataset.name: one for one in prepared}, jobs)
        report["verdicts"] = compare(report, self.recipe.judged, variances)
        return report

    def _variances(self, prepared: dict[str, Prepared], jobs: dict[tuple[str, str, int], Training]) -> Variances:
        """How the bootstrap over test rows is made from the answers of runs, each read once."""
        scored: dict[tuple[str, str, int], Mapping[str, np.ndarray]] = {}

        def draws(name: str, method: str, seed: int) -> Mapping[str, np.ndarray]:
            if (name, method, seed) not in scored:
                data = prepared[name]
                answers = read_answers(jobs[name, method, seed].answers(self.folder), self.recipe.answer_column)
                found = score_again(self.resampled(data, answers), data.about["rows"]["test"])
                scored[name, method, seed] = {score: values * self.factor for score, values in found.items()}
            return scored[name, method, seed]

        def variances(
            name: str, better: Sequence[str], than: Sequence[str], seeds: Sequence[int]
        ) -> Mapping[str, OfRows]:
            return of_rows(
                *([mean_of_runs([draws(name, m, seed) for m in side]) for seed in seeds] for side in (better, than))
            )

        return variances

    def _printed(self, name: str, paper: str | None) -> dict[str, Any] | None:
        return next((one.paper.get(paper or "") for one in self.variants if one.name == name), None)

    def _sum_up(self, runs: Sequence[Training], grid: Grid, variant: Variant) -> Entry:
        """Scores over the seeds; the mean time, the largest memory."""
        metrics = [grid.found[run.name]["metrics"] for run in runs]
        entry: Entry = {
            "is_fastformer": variant.run_name == "fastformer",
            "runs": [str(run.file(self.folder).relative_to(self.folder)) for run in runs],
            "trained_seeds": [run.settings.training.seed for run in runs],
        }
        if not metrics:
            return entry
        more = {name: spread([at(one, path) for one in metrics]) for name, path in self.recipe.more.items()}
        return entry | {
            **self.spreads([self.scores(one) for one in metrics]),
            **more,
            **self.entry(metrics, variant),
            "seconds": round(mean(one["train_seconds"] for one in metrics), 1),
            "peak_memory_gb": max((one["peak_memory_gb"] for one in metrics if one["peak_memory_gb"]), default=None),
            "parameters": metrics[0]["parameters"],
        }

    def _say_missing(self, grid: Grid, count: int) -> None:
        """Raise an error if runs failed, so that the exit code shows it; the report has the others."""
        if grid.failed:
            several = list(grid.failed.items())
            said = "; ".join(f"{name}: {why}" for name, why in several[:SHOWN_FAILURES])
            rest = f"; and {len(several) - SHOWN_FAILURES} more" if len(several) > SHOWN_FAILURES else ""
            raise UserError(
                f"{self.recipe.name}: {len(several)} of {how_many(count, 'runs')} failed ({said}{rest}); the report "
                "has the others, and the same command tries again"
            )
        if (self.options.so_far or self.options.only) and len(grid.found) < count and self.show:
            say(f"{self.recipe.name}: {count - len(grid.found)} of {how_many(count, 'runs')} are still to be made.")


def at(found: Any, path: Iterable[str]) -> Any:
    """What stands at the end of a path of keys."""
    for key in path:
        found = found[key]
    return found


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, sample standard deviation (None of a single value), and all of them."""
    return {"mean": mean(values), "std": stdev(values) if len(values) > 1 else None, "all": list(values)}


def chosen(settings: Any) -> dict[str, Any]:
    """The fields of a settings class that are not at their default.

    These determine a run, so that an option that a later version adds, and that is off, leaves finished runs valid.
    """
    found: dict[str, Any] = {}
    for one in fields(settings):
        value = getattr(settings, one.name)
        if is_dataclass(value):
            found[one.name] = chosen(value)
        elif value != one.default:
            found[one.name] = value
    return found
