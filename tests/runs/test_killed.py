"""Every kind of save, killed before its changes to the disk: the old one or the new one is there and usable.

The slow test kills before each of them, the others before some.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from fastformer.export.exporting import export
from fastformer.runs.claiming import claim_output
from fastformer.runs.folder import open_run
from fastformer.tasks.conversion.store import BehaviorStore
from fastformer.tasks.model import TaskModel
from fastformer.tasks.recommendation import ensemble
from fastformer.tasks.verbs import load, train

from ..tasks.samples import SAMPLES

CHANGES = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.chmod", "sqlite3.connect", "os.truncate")
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def killed_before(change, work) -> bool:
    """Do some work in a process that ends itself, without a goodbye, before its n-th change to the disk."""
    child = os.fork()
    if child == 0:
        left = change

        def count(event, arguments):
            nonlocal left
            reads = event == "open" and not set(str(arguments[1])) & set("wxa+")
            if event in CHANGES and not reads:
                left -= 1
                if not left:
                    os._exit(9)

        try:
            sys.addaudithook(count)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def kill_everywhere(prepare, work, usable, every: int) -> list[str]:
    """Kill `work` before every n-th change; `usable` says which one is there, "old" or "new"."""
    found, change = [], 1
    while True:
        prepare()
        killed = killed_before(change, work)
        found.append(usable())
        if not killed:
            break
        change += every
    assert found[-1] == "new"
    assert found == sorted(found, reverse=True)  # the old one up to a moment, from then on the new one
    return found


@pytest.fixture(scope="module")
def recommenders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recommenders")
    sample = SAMPLES["recommendation"](folder)
    train("recommendation", sample.train, output=folder / "one", show_progress=False, **sample.options | {"epochs": 1})
    shutil.copytree(folder / "one", folder / "two")
    record = json.loads((folder / "two" / "run.json").read_text())
    (folder / "two" / "run.json").write_text(json.dumps({**record, "preset": "new"}))
    return sample, folder / "one", folder / "two"


def preset_of(folder: Path) -> str:
    """Which run is there, by a word in its record; it answers."""
    predictor = load(folder)
    next(iter(predictor.predict([{"history": ["N1"], "candidates": ["N2", "N3"]}])))
    return "new" if predictor.trained.record["preset"] == "new" else "old"


class Model(TaskModel):
    task = "recommendation"


def saves(recommenders, place: Path, every: int) -> dict[str, list[str]]:
    """What is found after each kill, by the kind of save."""
    _, one, two = recommenders
    target = place / "run"
    new = Model.load(two)

    def old_run():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(one, target)

    def save():
        new.save(target, overwrite=True)

    found = {"save": kill_everywhere(old_run, save, lambda: preset_of(target), every)}

    def no_ensemble():
        shutil.rmtree(place / "both", ignore_errors=True)

    def which() -> str:
        if (place / "both" / "run.json").exists() or (place / "both" / ".saved").exists():
            return "new" if len(load(place / "both").members) == 2 else "broken"
        claim_output(place / "both", resume=False, overwrite=False)  # what is left blocks nothing
        return "old"

    found["ensemble"] = kill_everywhere(no_ensemble, lambda: ensemble([one, two], place / "both"), which, 2 * every)
    return found


def test_a_run_and_an_ensemble_survive_a_kill(recommenders, tmp_path):
    found = saves(recommenders, tmp_path, every=5)
    assert {*found["save"]} == {*found["ensemble"]} == {"old", "new"}


def test_what_a_store_keeps_survives_a_kill(tmp_path):
    sample = SAMPLES["conversion"](tmp_path)
    train("conversion", sample.train, output=tmp_path / "run", show_progress=False, **sample.options | {"epochs": 1})
    store = BehaviorStore.open(tmp_path / "run")
    store.add("ann", "bought a lamp")
    store.save_items(tmp_path / "old")
    store.predictor.items.kept.clear()
    store.add("ann", "bought a hat")  # as many vectors as before

    def usable() -> str:
        other = BehaviorStore(store.predictor)
        store.predictor.items.kept.clear()
        assert other.load_items(tmp_path / "items") == 1
        [(text, vector)] = store.predictor.items.kept.items()
        store.predictor.items.kept.clear()
        assert store.predictor.items([text])[text].allclose(vector, atol=1e-5)
        return "new" if text == "bought a hat" else "old"

    def prepare() -> None:
        shutil.rmtree(tmp_path / "items", ignore_errors=True)
        shutil.copytree(tmp_path / "old", tmp_path / "items")
        store.predictor.items.kept.clear()
        store.add("ann", "bought a hat")

    found = kill_everywhere(prepare, lambda: store.save_items(tmp_path / "items"), usable, every=1)
    assert {*found} == {"old", "new"}


def trained_again(recommenders, target: Path, every: int) -> list[str]:
    """A whole training with --overwrite, killed again and again."""
    sample, one, _ = recommenders
    options = {**sample.options, "epochs": 1, "history_length": 3}

    def prepare():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(one, target)

    def usable() -> str:
        claim_output(target, resume=False, overwrite=True)
        preset_of(target)
        return "new" if open_run(target).record["settings"]["history_length"] == 3 else "old"

    def work():
        train("recommendation", sample.train, output=target, overwrite=True, show_progress=False, **options)

    return kill_everywhere(prepare, work, usable, every)


def test_a_training_that_replaces_a_run_survives_a_kill(recommenders, tmp_path):
    assert {*trained_again(recommenders, tmp_path / "run", every=40)} == {"old", "new"}


@pytest.mark.slow
def test_every_kind_of_save_at_every_moment(recommenders, tmp_path, capsys):
    found = saves(recommenders, tmp_path, every=1)
    found["train --overwrite"] = trained_again(recommenders, tmp_path / "again", every=1)
    found["export"] = exported(tmp_path, every=1)
    with capsys.disabled():
        print({kind: f"{len(ends)} moments, {ends.count('new')} of them the new one" for kind, ends in found.items()})


def exported(place: Path, every: int) -> list[str]:
    """An export that replaces an earlier one."""
    (place / "data").mkdir()
    sample = SAMPLES["classification"](place / "data")
    train("classification", sample.train, output=place / "texts", show_progress=False, **sample.options | {"epochs": 1})
    export(place / "texts", place / "first", show_progress=False)
    target = place / "onnx"

    def prepare():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(place / "first", target)
        record = json.loads((target / "run.json").read_text())
        (target / "run.json").write_text(json.dumps({**record, "preset": "old"}))

    def usable() -> str:
        next(iter(load(target).predict(sample.examples)))
        return "old" if open_run(target).record["preset"] == "old" else "new"

    return kill_everywhere(
        prepare, lambda: export(place / "texts", target, overwrite=True, show_progress=False), usable, every
    )
