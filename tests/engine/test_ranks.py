"""Several processes train one model together: what comes out is what one process makes of the same batches."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from fastformer.data.batches import LengthBuckets
from fastformer.engine.optimizer import DenseAndRowAdam
from fastformer.errors import Interrupted, UserError
from fastformer.surroundings import ranks
from fastformer.tasks.base import get_task
from fastformer.tasks.verbs import train

from ..ranks import run_ranks
from ..tasks.conftest import make_rows, write_csv
from ..tasks.samples import SAMPLES


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "token_dropout": 0.0, "classifier_dropout": 0.0}


def train_and_watch(task, source, output, options, resume=False):
    """Train without dropout, which each process would draw for itself; the loss of every epoch, and the metrics.

    The encoder alone, unless `channel` is among the options: the n-gram channel is the first process' own work.
    """
    import fastformer.engine.training

    losses, check = [], fastformer.engine.training._check_loss
    fastformer.engine.training._check_loss = lambda epochs, folder: losses.append(epochs) or check(epochs, folder)
    options = {**options}
    channel = options.pop("channel", False)
    settings = get_task(task).settings(**options)
    if task == "classification":
        settings = replace(settings, ngrams=channel)
    settings = replace(settings, model=settings.model | {name: NO_DROPOUT[name] for name in droppable(settings)})
    try:
        metrics = train(task, source, output=output, preset=settings, resume=resume, show_progress=False)
    finally:
        fastformer.engine.training._check_loss = check
    return losses[0], metrics


def droppable(settings):
    return [name for name in NO_DROPOUT if name in settings.model or name == "hidden_dropout_prob"]


def numbers(metrics):
    return [
        value
        for scores in (*metrics["epochs"], metrics["validation"])
        for name, value in scores.items()
        if name != "seconds"
    ]


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("classification", {}),
        slow("classification", {"channel": True}),  # and a second training, on the held-out texts too
        slow("classification", {"class_weight": "balanced"}),
        slow("recommendation", {}),
        slow("summarization", {}),
        slow("conversion", {}),
    ],
)
def test_two_processes_learn_what_one_learns(task, more, tmp_path, all_known_words):  # the processes know them all too
    sample = SAMPLES[task](tmp_path)
    options = {**sample.options, "batch_size": 32, **more}
    losses, metrics = train_and_watch(task, sample.train, tmp_path / "one", options)
    [(first, said), (second, heard)] = run_ranks(
        2, train_and_watch, task, sample.train, tmp_path / "two", options, join=False
    )
    assert first == second == pytest.approx(losses, rel=1e-4)
    assert said == heard
    assert numbers(said) == pytest.approx(numbers(metrics), rel=1e-3, abs=1e-3)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, weight in one.items():
        if name.endswith("pooler.score.bias"):  # a softmax is the same whatever it is: only rounding moves it
            continue
        message = partial("{}: {}".format, name)
        torch.testing.assert_close(two[name].float(), weight.float(), atol=2e-3, rtol=2e-3, msg=message)


def train_and_stop(step, *given, resume=False):
    """Train; in the last process somebody asks to stop after `step`."""
    import fastformer.engine.training

    watch = fastformer.engine.training._Watch
    original = watch.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == step and ranks.rank() == ranks.size() - 1:
            signal.raise_signal(signal.SIGTERM)
        original(self, args, state, control, **kwargs)

    watch.on_step_end = on_step_end
    try:
        return train_and_watch(*given, resume=resume)[1]
    except Interrupted as stopped:
        return str(stopped)
    finally:
        watch.on_step_end = original


def test_all_stop_together_and_any_number_goes_on(tmp_path):
    sample = SAMPLES["classification"](tmp_path)
    options = {**sample.options, "batch_size": 32}
    given = "classification", sample.train, tmp_path / "run", options
    first, second = run_ranks(2, train_and_stop, 2, *given, join=False)
    assert first == second
    assert "stopped at step 2 of 10; run the same command with --resume" in first
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    [whole, _] = run_ranks(2, train_and_stop, 0, *given[:2], tmp_path / "whole", options, join=False)
    [resumed, _] = run_ranks(2, partial(train_and_stop, resume=True), 0, *given, join=False)
    alone = train_and_watch(*given[:2], tmp_path / "other", options, resume=True)[1]
    assert numbers(resumed) == numbers(whole)
    assert numbers(alone) == pytest.approx(numbers(whole), rel=1e-3, abs=1e-3)
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    assert not (tmp_path / "run" / "checkpoints").exists()


def refused(source, output):
    ranks.LAST_WORDS = 0.0  # nobody ends the others here
    try:
        train("classification", source, output=output, show_progress=False)
    except UserError as error:
        return type(error).__name__, str(error), error.exit_code


def test_a_mistake_ends_all_and_is_said_once(tmp_path):
    first, second = run_ranks(2, refused, str(tmp_path / "missing.csv"), tmp_path / "run", join=False)
    assert first[0] == "UserError"
    assert second == ("Elsewhere", *first[1:])  # which the command line does not print
    assert "missing.csv: no such file" in first[1]
    assert not (tmp_path / "run").exists()


def other_data(folder):
    """Each process has a file of its own under the same settings."""
    return refused(str(folder / f"{os.environ['RANK']}.csv"), folder / "run")


def test_machines_with_different_data_are_refused(tmp_path):
    for number in range(2):
        write_csv(tmp_path / f"{number}.csv", make_rows(60, number))
    first, second = run_ranks(2, other_data, tmp_path, join=False)
    assert first[:2] == ("UserError", "process 1 reads other data than process 0; give all machines the same files")
    assert second[0] == "Elsewhere"


def step_of_tables(rows):
    """Two steps of a model with a large table, through the library's DistributedDataParallel and our optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(50, 4, sparse=True), torch.nn.Linear(4, 1))
    optimizer = DenseAndRowAdam(model, lr=0.1, betas=(0.9, 0.99), weight_decay=0.01)
    together = torch.nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
    mine = rows[dist.get_rank() :: dist.get_world_size()] if dist.is_initialized() else rows
    for _ in range(2):
        optimizer.zero_grad()
        together(torch.tensor(mine)).square().mean().backward()
        assert model[0].weight.grad.is_sparse
        optimizer.step()
    return model[0].weight.detach().numpy()


def test_sparse_gradients_of_tables_are_those_of_all_processes():
    rows = [3, 7, 3, 9, 7, 11]  # one row is met by both processes, the others by one
    alone = step_of_tables(rows)
    for table in run_ranks(2, step_of_tables, rows):
        assert table == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize("by_tokens", [False, True])
def test_processes_share_out_the_batches_that_one_would_have(by_tokens):
    lengths = np.random.default_rng(0).integers(1, 90, 101)
    whole = LengthBuckets(lengths, 20, 5, by_tokens)
    shares = [LengthBuckets(lengths, 20, 5, by_tokens, rank=rank, size=3) for rank in range(3)]
    for epoch in range(2):
        for buckets in (whole, *shares):
            buckets.set_epoch(epoch)
        for batch, *parts in zip(whole, *shares, strict=True):
            real = [part for part in parts if not part.stands_in]
            assert sorted(itertools.chain(*real)) == sorted(batch)
            assert max(map(len, real)) - min(map(len, parts)) <= 1
            assert all(part == batch[:1] for part in parts if part.stands_in)  # the last batch has one text


LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def launched(*arguments):
    command = [*LAUNCHER, "-m", "fastformer", "train", "classification", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def until_new_checkpoint(folder):
    """Wait until an epoch has ended since now."""
    began = time.time()
    while time.time() - began < 120:
        states = folder.glob("checkpoints/steps/*/trainer_state.json")
        if any(path.stat().st_mtime > began for path in states):
            return
        time.sleep(0.2)


@pytest.mark.slow
def test_a_launcher_is_stopped_or_loses_a_process_and_the_training_goes_on(tmp_path):
    source = write_csv(tmp_path / "train.csv", make_rows(3000, 0))
    run = tmp_path / "run"
    given = "--train", source, "--output", run, "--epochs", 12
    first = launched(*given)
    until_new_checkpoint(run)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does: the launcher hands it on once more
    said = first.communicate(timeout=120)[0]
    assert said.count("run the same command with --resume to continue") == 1
    second = launched(*given, "--resume")
    until_new_checkpoint(run)
    workers = psutil.Process(second.pid).children()
    os.kill(workers[-1].pid, signal.SIGKILL)
    said = second.communicate(timeout=120)[0]
    assert second.returncode
    third = launched(*given, "--resume")
    said = third.communicate(timeout=300)[0]
    assert third.returncode == 0, said
    assert said.count(f"The model is in {run}.") == 1
    assert (run / "run.json").is_file()
    assert not (run / "checkpoints").exists()
