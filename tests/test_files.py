"""Files appear complete or not at all, and a full disk is called by its name."""

import sys
from pathlib import Path

import pytest
import torch

from fastformer.errors import UserError
from fastformer.files import content_hash, explain_full_disk, writing_aside, writing_text


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full, the disk that is always full")
@pytest.mark.parametrize(
    "write",
    [
        lambda: Path("/dev/full").write_text("x" * 100_000),
        lambda: torch.save(torch.zeros(100_000), "/dev/full"),
    ],
    ids=["python", "torch"],
)
def test_a_full_disk_is_one_clear_line(write):
    with pytest.raises(UserError, match=r"here: the disk is full"), explain_full_disk(Path("here")):
        write()


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="something else"), explain_full_disk(Path("here")):
        raise RuntimeError("something else")


def test_an_older_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), writing_text(path) as file:
        file.write("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    with writing_text(path) as file:
        file.write("new")
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]


def test_a_place_that_cannot_be_written_is_named_before_the_work(tmp_path):
    worked = False
    with pytest.raises(UserError, match="is a folder"), writing_aside(tmp_path):
        worked = True
    with pytest.raises(UserError, match="cannot be written"), writing_aside(tmp_path / "no" / "file"):
        worked = True
    assert not worked


def test_a_hash_is_of_the_content_and_not_of_name_or_size(tmp_path):
    for name, content in (("a", "one"), ("b", "two"), ("c", "one")):
        (tmp_path / name).write_text(content)
    assert content_hash(tmp_path / "a") == content_hash(tmp_path / "c") != content_hash(tmp_path / "b")
    (tmp_path / "a").write_text("three")
    assert content_hash(tmp_path / "a") != content_hash(tmp_path / "c")
    with pytest.raises(UserError, match="none: cannot be read"):
        content_hash(tmp_path / "none")
