"""Standard input: what came is answered when it pauses, and nothing is slower while it does not."""

import json
import os
import sys
import threading
import time

import pytest

from fastformer.data.standard_input import PAUSE, input_pauses, some_at_a_time, standard_input
from fastformer.tasks.verbs import predict

from ..tasks.conftest import files, run_folder  # noqa: F401  the small task and its run


class Pipe:
    """Standard input as a pipe, and the lines that come out of another one."""

    def __init__(self):
        ends = os.pipe()
        self.stdin, self._in = os.fdopen(ends[0]), os.fdopen(ends[1], "wb", buffering=0)

    def send(self, data: bytes) -> None:
        self._in.write(data)

    def close(self) -> None:
        self._in.close()


@pytest.fixture
def pipe(monkeypatch):
    pipe = Pipe()
    monkeypatch.setattr(sys, "stdin", pipe.stdin)
    return pipe


def test_whole_lines_are_no_pause_and_half_a_line_is_one(pipe):
    pipe.send(b"one\ntwo\nthr")
    lines = iter(standard_input())
    assert next(lines) == b"one\n"
    assert not input_pauses()
    assert next(lines) == b"two\n"
    assert input_pauses(time.monotonic())
    pipe.send(b"ee\n")
    assert not input_pauses()
    assert next(lines) == b"three\n"
    pipe.close()
    assert not input_pauses()  # the end is no pause
    assert list(lines) == []


def test_a_text_does_not_wait_for_company_for_ever(pipe):
    """Lines that trickle in more often than a pause is long still come out in parts."""

    def trickle():
        for number in range(40):
            pipe.send(b"%d\n" % number)
            time.sleep(PAUSE / 4)
        pipe.close()

    threading.Thread(target=trickle, daemon=True).start()
    parts = list(some_at_a_time(standard_input(), 1000))
    assert 2 <= len(parts) <= 30
    assert b"".join(line for part in parts for line in part).split() == [b"%d" % number for number in range(40)]


def test_a_stream_without_a_pause_comes_in_large_parts(pipe):
    lines = b"".join(b"line %d\n" % number for number in range(100_000))
    threading.Thread(target=lambda: (pipe.send(lines), pipe.close()), daemon=True).start()
    parts = list(some_at_a_time(standard_input(), 10_000))
    assert sum(map(len, parts)) == 100_000
    assert len(parts) < 40


def test_predict_answers_while_the_pipe_is_open(pipe, run_folder):  # noqa: F811
    ends = os.pipe()
    answers = os.fdopen(ends[0])
    with os.fdopen(ends[1], "w") as output:
        work = threading.Thread(
            target=predict,
            args=(run_folder, "-", output),
            kwargs={"format": "jsonl", "keep": ["id"], "show_progress": False},
            daemon=True,
        )
        work.start()
        for number in range(3):
            pipe.send(b'{"text": "a cat and a dog", "id": %d}\n' % number)
            assert json.loads(answers.readline())["id"] == number  # while more may come
        pipe.send(b'{"text": "some soup", "id": 3}\n{"text": "a horse", "id": 4}\n')
        pipe.close()
        work.join(timeout=60)
    assert [json.loads(line)["id"] for line in answers] == [3, 4]
