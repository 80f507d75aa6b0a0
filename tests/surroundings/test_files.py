"""Files appear complete or not at all, and a full disk is called by its name."""

import os
import stat
import sys
from pathlib import Path

import pytest
import torch

from fastformer.errors import UserError
from fastformer.surroundings.files import content_hash, explain_full_disk, writing_aside, writing_text


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full, the disk that is always full")
@pytest.mark.parametrize(
    "write",
    [
        lambda: Path("/dev/full").write_text("x" * 100_000),
        lambda: torch.save(torch.zeros(100_000), "/dev/full"),
        lambda: torch.save(torch.zeros(10), "/dev/full"),
    ],
    ids=["python", "torch", "a little by torch"],
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


def test_a_link_to_itself_is_no_place_to_write_to(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="loop: is a link that leads to itself"), writing_text(tmp_path / "loop"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_a_link_stays_a_link_and_permissions_stay(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    with writing_text(link) as file:
        file.write("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with writing_text(tmp_path / "pipe") as file:
        file.write("words")
    assert os.read(reader, 100) == b"words"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_of_two_writers_one_wins_whole(tmp_path):
    with writing_text(tmp_path / "out") as first:
        with writing_text(tmp_path / "out") as second:
            first.write("a" * 10_000)
            second.write("bbb")
        assert (tmp_path / "out").read_text() == "bbb"
    assert (tmp_path / "out").read_text() == "a" * 10_000
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "message",
    [
        "[enforce fail at inline_container.cc:145] . PytorchStreamReader failed reading zip archive",
        "[enforce fail at inline_container.cc:402] . file in archive is not in a subdirectory",
    ],
)
def test_a_damaged_archive_is_not_a_full_disk(message):
    with pytest.raises(RuntimeError, match="archive"), explain_full_disk(Path("here")):
        raise RuntimeError(message)
