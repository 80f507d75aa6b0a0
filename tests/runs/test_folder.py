"""A run folder holds the old run or the new one, whenever whoever saves it is killed."""

import json
import os
import sys
from pathlib import Path

import pytest

from fastformer.errors import UserError
from fastformer.runs.claiming import claim_output, holds_anything, unharmed
from fastformer.runs.folder import open_run
from fastformer.runs.saving import finish_saving, writing_run
from fastformer.tasks import base

OLD = {"config.json": "old", "model.safetensors": "old", "news.parquet": "old", "tokenizer.json": "old"}
NEW = {"config.json": "new", "model.onnx": "new", "tokenizer.json": "new"}
CHANGES = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.chmod")


def save(folder: Path, files: dict[str, str]) -> None:
    with writing_run(folder, {"task": "toy", "saved": files}) as aside:
        for name, content in files.items():
            (aside / name).write_text(content)
        (aside / "members").mkdir()
        (aside / "members" / "0").write_text(files["config.json"])


def content(folder: Path) -> dict[str, str]:
    """What an opened run holds; the folder has no other files."""
    record = open_run(folder).record
    found = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    assert json.loads(found.pop("run.json")) == record
    assert found == record["saved"]
    assert (folder / "members" / "0").read_text() == found["config.json"]
    return found


def killed_at(change: int, folder: Path) -> bool:
    """Save the new run in a process that ends itself, without a goodbye, at its n-th change to the disk."""
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

        sys.addaudithook(count)
        save(folder, NEW)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_killed_at_any_moment_it_leaves_the_old_run_or_the_new_one(tmp_path):
    found = []
    for change in range(1, 100):
        folder = tmp_path / str(change)
        save(folder, OLD)
        killed = killed_at(change, folder)
        if change % 2:  # sometimes the next to come is not a reader but another training
            claim_output(folder, resume=False, overwrite=True)
        found.append(content(folder)["config.json"])
        save(folder, OLD)
        assert content(folder) == OLD
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]
        if not killed:
            break
    assert not killed
    assert len(found) > 15
    assert found == sorted(found, reverse=True)  # the old one up to a moment, from then on the new one
    assert {*found} == {"old", "new"}


class SlowReader:
    """A task that has read one file of a run when something happens to the folder."""

    def __init__(self, *happens):
        self.happens = [*happens]

    def load(self, run):
        first = (run.folder / "config.json").read_text()
        if self.happens:
            self.happens.pop()(run.folder)
        return first, (run.folder / "tokenizer.json").read_text()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_reader_never_has_files_of_two_runs(tmp_path, monkeypatch):
    def loaded(*happens):
        reader = SlowReader(*happens)
        monkeypatch.setattr(base, "get_task", lambda name: reader)
        return base.load_run(open_run(tmp_path / "run"))

    found = []
    for change in range(1, 100):
        save(tmp_path / "run", OLD)
        killed = []
        found.append(loaded(lambda folder, n=change, how=killed: how.append(killed_at(n, folder))))
        if not killed[0]:
            break
    assert {*found} == {("old", "old"), ("new", "new")}
    assert found[-1] == ("new", "new")
    save(tmp_path / "run", OLD)
    assert loaded(lambda folder: save(folder, NEW), lambda folder: save(folder, OLD)) == ("new", "new")
    with pytest.raises(UserError, match="replaced by another run again and again; try later"):
        loaded(*[lambda folder: save(folder, NEW)] * base.LOADINGS)


def test_a_save_that_fails_leaves_the_old_run(tmp_path):
    save(tmp_path / "run", OLD)
    with pytest.raises(ZeroDivisionError), writing_run(tmp_path / "run", {"task": "toy"}) as aside:
        (aside / "config.json").write_text("half")
        raise ZeroDivisionError
    assert content(tmp_path / "run") == OLD


def test_a_folder_with_half_a_save_and_nothing_else_is_free(tmp_path):
    (tmp_path / ".saving").mkdir()
    (tmp_path / ".saving" / "config.json").write_text("half")
    assert not holds_anything(tmp_path)
    save(claim_output(tmp_path, resume=False, overwrite=False), NEW)
    assert content(tmp_path) == NEW


def test_a_run_that_cannot_be_moved_into_place_is_said(tmp_path, monkeypatch):
    (tmp_path / ".saved").mkdir()
    (tmp_path / ".saved" / ".names.json").write_text('["run.json"]')
    (tmp_path / ".saved" / "run.json").write_text('{"task": "toy", "saved": {}}')

    def refuse(*places):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(UserError, match="cannot be moved.*may write there"):
            open_run(tmp_path)
    assert open_run(tmp_path).task == "toy"
    finish_saving(tmp_path)  # nothing is left to do


def test_two_commands_do_not_write_to_one_folder(tmp_path):
    with unharmed(tmp_path), pytest.raises(UserError, match="another command is writing there"), unharmed(tmp_path):
        pass
