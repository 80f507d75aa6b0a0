"""Many files with one command: the answers of one file at a time, nothing twice, nothing half."""

import json
import os
import pickle
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import fastformer.scale.work
from fastformer.errors import Interrupted, UserError
from fastformer.runs.saving import InUse, locked
from fastformer.scale.processes import on_this_machine
from fastformer.scale.scoring import score_files
from fastformer.scale.shards import Shard, are_many, find_shards
from fastformer.scale.work import Job, ShardWorker
from fastformer.surroundings.files import FullDisk
from fastformer.tasks.verbs import embed, evaluate, load, predict

from .conftest import write_files

here = {"workers": 1, "show_progress": False}  # in this process
quiet = {"show_progress": False}


@pytest.fixture
def source(tmp_path) -> Path:
    return write_files(tmp_path / "in")


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "out"


def lines(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "manifest.jsonl").read_text().splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.jsonl"
    }


def answered_one_by_one(run: Path, source: Path, to: Path, **options) -> dict[str, bytes]:
    """What `predict` writes for each file by itself."""
    for shard in find_shards("predict", source, to):
        (to / shard.output_name).parent.mkdir(parents=True, exist_ok=True)
        predict(run, shard.source, to / shard.output_name, **options, **quiet)
    return contents(to)


def test_every_file_has_the_answers_that_it_has_alone(run, source, output, tmp_path):
    done = score_files("predict", run, source, output, keep=("label",), **here)
    assert (done.files, done.before, done.rows) == (5, 0, 100)
    assert contents(output) == answered_one_by_one(run, source, tmp_path / "alone", keep=("label",))
    assert sorted(contents(output)) == [
        *("lang=en/more.parquet", "lang=en/rest.jsonl"),
        *(f"part-{number}.csv" for number in range(3)),
    ]
    asked, *entries = lines(output)
    assert asked["verb"] == "predict"
    for entry in entries:
        path = source / entry["input"]
        assert (entry["bytes"], entry["rows"]) == (path.stat().st_size, 20)
        assert entry["output_bytes"] == (output / entry["output"]).stat().st_size
        assert len(entry["checksum"]) == len(entry["output_checksum"]) == 32
        assert entry["seconds"] > 0


def test_processes_give_the_same_and_one_that_is_killed_is_replaced(run, source, output, tmp_path):
    shards = find_shards("predict", source, output)
    os.mkfifo(tmp_path / "stuck.csv")  # whoever opens it waits for ever
    stuck = Shard("stuck.csv", str(tmp_path / "stuck.csv"), str(output / "stuck.csv"), "stuck.csv", 0, "")
    killed: list[int] = []

    def kill_who_waits() -> None:
        while len(killed) < 2:
            time.sleep(0.05)
            try:
                writer = os.open(stuck.source, os.O_WRONLY | os.O_NONBLOCK)  # fails unless somebody reads
            except OSError:
                continue
            while not (readers := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if reads(pid)]):
                pass
            os.kill(readers[0], signal.SIGKILL)
            killed.append(readers[0])
            while reads(readers[0]):  # while it dies it could be taken for the next one
                time.sleep(0.01)
            os.close(writer)

    def reads(pid: int) -> bool:
        with suppress(OSError):  # it has ended meanwhile
            opened = (os.path.realpath(fd) for fd in Path(f"/proc/{pid}/fd").iterdir())
            return pid != os.getpid() and stuck.source in opened
        return False

    threading.Thread(target=kill_who_waits, daemon=True).start()
    outcomes = {one.entry["input"]: one for one in on_this_machine(Job("predict", str(run)), [stuck, *shards], 2)}
    assert len(killed) == 2
    assert "killed 2 times" in outcomes.pop("stuck.csv").error
    assert all(one.error is None for one in outcomes.values())
    assert contents(output) == answered_one_by_one(run, source, tmp_path / "alone")


def test_vectors_and_scores(run, source, output, tmp_path):
    score_files("embed", run, source, output, **here)
    embed(run, source / "part-1.csv", tmp_path / "alone.parquet", **quiet)
    assert (output / "part-1.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()
    assert pq.read_table(output / "lang=en" / "rest.parquet").num_rows == 20
    done = score_files("evaluate", run, source / "*.csv", tmp_path / "scores", by_class=False, **here)
    alone = [evaluate(run, source / f"part-{number}.csv", by_class=False, **quiet) for number in range(3)]
    found = [json.loads((tmp_path / "scores" / f"part-{number}.json").read_text()) for number in range(3)]
    assert found == alone
    assert done.scores["accuracy"] == pytest.approx(sum(one["accuracy"] for one in alone) / 3)


def test_asked_again_it_does_what_is_missing_or_has_changed(run, source, output, monkeypatch):
    asked: list[str] = []
    call = fastformer.scale.work.ShardWorker.__call__

    def noting(self, shard):
        asked.append(shard.name)
        return call(self, shard)

    monkeypatch.setattr(fastformer.scale.work.ShardWorker, "__call__", noting)

    def again() -> list[str]:
        asked.clear()
        score_files("predict", run, source, output, **here)
        return sorted(asked)

    assert len(again()) == 5
    before = contents(output)
    assert again() == []
    (output / "part-0.csv").unlink()
    (output / "part-1.csv").write_text("cut o")  # by somebody else
    assert again() == ["part-0.csv", "part-1.csv"]
    assert contents(output) == before
    text = (source / "part-2.csv").read_text()
    (source / "part-2.csv").write_text(text + "a horse and a dog,animal\n")
    os.utime(source / "part-0.csv", (0, 0))  # the same file by another date
    stamp = (output / "part-0.csv").stat().st_mtime_ns
    assert again() == ["part-0.csv", "part-2.csv"]
    assert (output / "part-0.csv").stat().st_mtime_ns == stamp  # looked at, and left
    assert len((output / "part-2.csv").read_text().splitlines()) == 22
    assert again() == []
    with pytest.raises(UserError, match='another command .*"threshold": 0.5'):
        score_files("predict", run, source, output, threshold=0.5, **here)
    with pytest.raises(UserError, match="another command .*source .*/in/, not .*/in/lang=en/"):
        score_files("predict", run, source / "lang=en", output, **here)


def test_a_bad_file_is_said_and_the_others_are_answered(run, source, output, capsys):
    (source / "part-1.csv").write_bytes(b"PAR1 no table")
    (source / "lang=en" / "more.parquet").write_bytes(b"PAR1")
    (source / "gone.csv").symlink_to(source / "nowhere.csv")
    (source / "empty.jsonl").write_text("")
    with pytest.raises(UserError, match=r"4 of 7 files could not be answered: .*the same command does the rest"):
        score_files("predict", run, source, output, **here)
    said = capsys.readouterr().err
    assert "part-1.csv: is a Parquet file" in said
    assert "more.parquet: not a readable Parquet file" in said
    assert "empty.jsonl: the file is empty" in said
    assert sorted(contents(output)) == ["lang=en/rest.jsonl", "part-0.csv", "part-2.csv"]
    errors = {entry["input"] for entry in lines(output)[1:] if "error" in entry}
    assert errors == {"part-1.csv", "lang=en/more.parquet", "gone.csv", "empty.jsonl"}
    with pytest.raises(UserError, match="^(?!.*could not be answered)"):
        score_files("predict", run, source, output, strict=True, **here)
    for name in errors:
        (source / name).unlink()
    assert score_files("predict", run, source, output, **here).before == 3


def test_ctrl_c_leaves_whole_files_and_the_next_command_goes_on(run, source, output, tmp_path, monkeypatch):
    answer, calls = fastformer.scale.work.ShardWorker._answer, []

    def interrupted(self, path, to):
        calls.append(path)
        if len(calls) == 3:
            with fastformer.scale.work.writing_text(to) as file:
                file.write("half of it")
                raise KeyboardInterrupt
        return answer(self, path, to)

    monkeypatch.setattr(fastformer.scale.work.ShardWorker, "_answer", interrupted)
    with pytest.raises(Interrupted, match="2 of 5 files are done, and the same command continues"):
        score_files("predict", run, source, output, **here)
    assert len(contents(output)) == 2
    with open(output / "manifest.jsonl", "a") as file:
        file.write('{"input": "part-')  # as a power cut leaves it
    (output / ".part-0.csv.77-0.saving").write_text("half of it")
    assert score_files("predict", run, source, output, **here).before == 2
    assert contents(output) == answered_one_by_one(run, source, tmp_path / "alone")


def test_a_full_disk_stops_at_once_and_the_next_command_goes_on(run, source, output, tmp_path, monkeypatch):
    answer, calls = fastformer.scale.work.ShardWorker._answer, []

    def full(self, path, to):
        calls.append(path)
        if len(calls) == 2:
            raise FullDisk(f"{to}: the disk is full")
        return answer(self, path, to)

    monkeypatch.setattr(fastformer.scale.work.ShardWorker, "_answer", full)
    with pytest.raises(UserError, match="the disk is full"):
        score_files("predict", run, source, output, **here)
    assert len(calls) == 2
    assert len(contents(output)) == 1
    assert score_files("predict", run, source, output, **here).before == 1
    assert contents(output) == answered_one_by_one(run, source, tmp_path / "alone")


def test_two_commands_at_once(run, source, output):
    output.mkdir()
    with locked(output, wait=False), pytest.raises(InUse, match="another command is writing there"):
        score_files("predict", run, source, output, **here)


def test_places_that_will_not_do(run, source, output, tmp_path):
    def refused(given, to, said, **options):
        with pytest.raises(UserError, match=said) as caught:
            score_files("predict", run, given, to, **{**here, **options})
        assert "\n" not in str(caught.value)

    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", output, "no file to read; names must end in")
    refused(tmp_path / "nowhere", output, "no such file or folder")
    refused(source / "*.tsv", output, "no file matches")
    refused(source, source / "answers", "is inside .* and answers would be read as data")
    refused(source / "**" / "*.csv", source / "answers", "is inside")
    refused(source / "*.csv", source, "is inside")
    refused("nosuch://in", output, "Protocol not known")
    refused(source, tmp_path, "is inside|is not empty, and no answers of ours")
    refused(source, output, "not known; give ray", engine="hadoop")
    refused(source, output, "--address", address="auto")
    refused(source, output, "has no use for it", beams=3)
    refused(source, output, "^--top 0: no label would be left", top=0)
    refused(source, output, "^--threshold 7: a probability", threshold=7)
    (source / "b").mkdir()
    (source / "b" / "x.csv").write_text("text\na cat\n")
    (source / "b" / "x.tsv").write_text("text\na cat\n")
    refused(source, output, "answers to both would be called b/x.csv")
    assert not output.exists()


@pytest.mark.parametrize("name", ["manifest.jsonl", "manifest.txt", "manifest.json", "manifest.jsonl.gz"])
def test_no_answers_take_the_place_of_the_manifest(source, output, name):
    (source / name).write_text('{"text": "a cat"}\n')
    with pytest.raises(UserError, match=f"{name}: answers to it would be called manifest.jsonl") as caught:
        find_shards("predict", source, output)
    assert "\n" not in str(caught.value)
    (source / name).rename(source / "lang=en" / name)  # there it is in nobody's way
    assert len(find_shards("predict", source, output)) == 6


NAMES = {"no UTF-8": os.fsdecode(b"a\xff.jsonl"), "an end of line": "a\u2028b.jsonl", "a chain": "a::b.jsonl"}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_files_may_have_any_name(run, tmp_path, output, name):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text('{"text": "a cat and a dog"}\n')
    assert score_files("predict", run, tmp_path / "in", output, **here).before == 0
    assert list(contents(output)) == [name]
    assert [entry["input"] for entry in lines(output)[1:]] == [name]
    assert score_files("predict", run, tmp_path / "in", output, **here).before == 1
    (output / "manifest.jsonl").write_text(  # as earlier versions wrote what UTF-8 has
        "".join(json.dumps(line, ensure_ascii="\udcff" in name) + "\n" for line in lines(output)), encoding="utf-8"
    )
    assert score_files("predict", run, tmp_path / "in", output, **here).before == 1


def test_when_files_are_many(source, output, tmp_path):
    table = str(source / "part-0.csv")
    assert are_many(source, output)
    assert are_many(f"{source}/*.csv", output)
    assert are_many("s3://bucket/texts", "s3://bucket/answers")
    assert are_many(table, f"{output}/")
    assert are_many(tmp_path / "nowhere", output)
    assert not are_many(table, output)
    assert not are_many(source, "answers.jsonl")  # a folder may be one source
    assert not are_many("-", output)
    assert not are_many(table, None)
    with pytest.raises(UserError, match="may be many files; give --output a folder"):
        are_many(f"{source}/*.csv", "answers.jsonl")
    with pytest.raises(UserError, match="--workers: is for many files"):
        are_many(table, "answers.jsonl", workers=2)


def test_files_elsewhere(run, source, output, tmp_path):
    """On a file system that only fsspec knows: here one that lives in memory."""
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(source), "/in", recursive=True)
    done = score_files("predict", run, "memory://in", "memory://out", **here)
    assert done.rows == 100
    memory.get("/out", str(output), recursive=True)
    assert contents(output) == answered_one_by_one(run, source, tmp_path / "alone")
    assert score_files("predict", run, "memory://in", "memory://out", **here).before == 5
    memory.pipe_file("/in/part-1.csv", b"PAR1")
    with pytest.raises(UserError, match=r"1 of 5 files .*part-1.csv"):
        score_files("predict", run, "memory://in", "memory://out", **here)
    assert not [path for path in memory.find("/out") if path.endswith(".saving")]


def test_a_file_system_that_this_process_lacks_costs_one_file(run):
    lost = Shard("a.csv", "nowhere://a.csv", "/tmp/a.csv", "a.csv", 1, "")
    outcome = ShardWorker(Job("predict", str(run)))(lost)
    assert outcome.error.startswith("nowhere://a.csv: cannot be reached")


def test_notes_are_those_of_each_file(run, source, output, capsys):
    (source / "part-1.csv").write_text("text,label\n,animal\na cat,animal\n")
    score_files("predict", run, source / "*.csv", output, **here)
    notes = {entry["input"]: entry["notes"] for entry in lines(output)[1:]}
    assert [name for name, said in notes.items() if said] == ["part-1.csv"]
    assert "part-1.csv: 1 of 2 texts is missing and answered like an empty one." in capsys.readouterr().err


def test_a_loaded_run_travels_by_its_path(run):
    from fastformer import TextClassifier

    predictor, texts = load(run), ["a cat and a dog", "some soup"]
    sent = pickle.dumps(predictor)
    assert len(sent) < 1000
    there = pickle.loads(sent)
    assert list(there.predict(texts)) == list(predictor.predict(texts))
    assert pickle.loads(sent) is there  # loaded once
    classifier = TextClassifier.load(run)
    sent = pickle.dumps(classifier)
    assert len(sent) < 3000
    assert (pickle.loads(sent).predict_proba(texts) == classifier.predict_proba(texts)).all()
