"""`--device` and `--dtype`: what can be shown without a GPU."""

import io
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers import TrainingArguments

from fastformer import FastformerConfig, FastformerForConditionalGeneration, FastformerForSequenceClassification
from fastformer.cli import main
from fastformer.engine import devices
from fastformer.engine.devices import Place, choose
from fastformer.engine.training import _BucketTrainer, _Watch, use_one_device
from fastformer.errors import UserError
from fastformer.mixers import available_mixers
from fastformer.tasks.masked_words.objective import MaskedWordLearner
from fastformer.tasks.verbs import evaluate, load, predict, train

from ..tasks.samples import SAMPLES

quiet = {"show_progress": False}
SMALL = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("verb", ["train", "predict", "evaluate", "serve"])
def test_a_device_that_is_not_here_is_one_line(verb, tmp_path, monkeypatch, capsys):
    sample = SAMPLES["classification"](tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"task": "classification"}')
    commands = {
        "train": ["train", "classification", "--train", sample.train, "--output", str(tmp_path / "new")],
        "predict": ["predict", str(tmp_path / "run"), sample.test],
        "evaluate": ["evaluate", str(tmp_path / "run"), sample.test],
        "serve": ["serve", str(tmp_path / "run"), "--port", "0"],
    }
    monkeypatch.setattr("sys.argv", ["fastformer", *commands[verb], "--device", "cuda"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said == "fastformer: --device cuda: PyTorch sees no such device here; leave it out, or give cpu\n"
    assert not (tmp_path / "new").exists()


def test_names_that_nobody_knows_are_refused():
    with pytest.raises(UserError, match="unknown device 'gpu'"):
        choose("gpu")
    with pytest.raises(UserError, match="unknown dtype 'float16'; did you mean"):
        choose("cpu", "float16")


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch):
    assert choose("cpu", "bfloat16").told() == {"device": "cpu", "dtype": "bfloat16"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose().device == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose().device == "cuda"
    choose().refuse_unless_usual("an export")  # nobody asked for the GPU: what cannot use it does not
    with pytest.raises(UserError, match="an export runs on the CPU"):
        choose("cuda").refuse_unless_usual("an export")


def test_two_gpus_are_never_used_by_one_process_in_silence(tmp_path, monkeypatch, capsys):
    said = []
    monkeypatch.setattr(devices, "say", said.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    Place("cuda").say_idle_gpus()
    assert "torchrun --nproc-per-node 2" in said[0]
    Place("cpu").say_idle_gpus()
    assert len(said) == 1

    model = nn.Linear(1, 1)
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    wrapped = []
    for prevent in (lambda _: None, use_one_device):
        arguments._n_gpu = 2  # what the library finds on such a machine
        prevent(arguments)
        watch = _Watch(False, tmp_path, 0.0, None)
        trainer = _BucketTrainer(None, None, None, model=model, args=arguments, callbacks=[watch])
        wrapped.append(type(trainer._wrap_model(model)))
    assert wrapped == [nn.DataParallel, nn.Linear]


class EveryTensorHasItsPlace(TorchFunctionMode):
    """Refuses new tensors that nobody gave a device: on a GPU they would be on the CPU."""

    MAKERS = {getattr(torch, name) for name in ("arange", "eye", "full", "ones", "rand", "randn", "randperm", "zeros")}

    def __torch_function__(self, function, types, given=(), options=None):
        assert function not in self.MAKERS or (options or {}).get("device") is not None, f"{function} without a device"
        return function(*given, **(options or {}))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mixer", available_mixers())
def test_models_make_no_tensor_without_a_device(mixer, training):
    torch.manual_seed(0)
    ids = torch.randint(3, 50, (3, 24))
    mask = torch.ones_like(ids)
    mask[0, 9:] = 0
    options = {**SMALL, "mixer": mixer, "bigram_buckets": 20, "neighbor_size": 8}
    models = [
        (FastformerForSequenceClassification(FastformerConfig(**options)), torch.zeros(3, dtype=torch.long)),
        (FastformerForConditionalGeneration(FastformerConfig(**SMALL, mixer=mixer, eos_token_id=2)), ids[:, :5]),
        (MaskedWordLearner(FastformerConfig(**SMALL, mixer=mixer), 1, [0, 1, 2]), ids),
    ]
    for model, labels in models:
        model.train(training)
        with EveryTensorHasItsPlace():
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()


def numbers(answer):
    if isinstance(answer, dict):
        return [number for value in answer.values() for number in numbers(value)]
    if isinstance(answer, list):
        return [number for value in answer for number in numbers(value)]
    return [answer] if isinstance(answer, float) else []


def slow(task):
    return pytest.param(task, marks=pytest.mark.slow)


@pytest.mark.parametrize("task", ["masked-words", *map(slow, sorted({*SAMPLES} - {"masked-words", "loudness"}))])
def test_bfloat16_trains_and_answers_on_a_cpu(task, tmp_path):
    sample = SAMPLES[task](tmp_path)
    metrics = train(task, sample.train, output=tmp_path / "run", dtype="bfloat16", **sample.options, **quiet)
    assert metrics["trained_on"] == {"processes": 1, "device": "cpu", "dtype": "bfloat16"}
    assert load(tmp_path / "run").model.dtype == torch.float32  # what was trained, and what is kept
    half = load(tmp_path / "run", dtype="bfloat16")
    if hasattr(half.model, "dtype"):
        assert half.model.dtype == torch.bfloat16
    source = sample.test or sample.train
    scores = [evaluate(tmp_path / "run", source, dtype=dtype, **quiet) for dtype in ("float32", "bfloat16")]
    found = []
    for dtype in ("float32", "bfloat16"):
        out = io.StringIO()
        assert predict(tmp_path / "run", source, out, device="cpu", dtype=dtype, **quiet)
        found.append([json.loads(line) if line.startswith("{") else line for line in out.getvalue().splitlines()])
    assert len(found[0]) == len(found[1])
    if task not in ("summarization", "recommendation"):  # one other word, or two equal scores, and all is different
        assert np.mean(np.abs(np.subtract(*map(numbers, scores)))) < 0.1 * max(1, np.mean(np.abs(numbers(scores[0]))))
