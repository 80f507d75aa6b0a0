"""A run folder may be damaged, or come from a stranger: one line names the file and the field, and nothing runs."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from fastformer.data.opening import reads_once
from fastformer.engine.word_encoder import open_encoder
from fastformer.errors import UserError, enough_memory, shortened
from fastformer.runs.claiming import claim_output, unharmed
from fastformer.runs.folder import open_run
from fastformer.runs.record import read_json
from fastformer.tasks.answering import _finite
from fastformer.tasks.base import Predictor
from fastformer.tasks.model import TaskModel
from fastformer.tasks.verbs import load


@pytest.fixture
def copy(run_folder, tmp_path):
    return shutil.copytree(run_folder, tmp_path / "run")


def change(path, fields, value):
    """Set a field, given by its keys, of a JSON file."""
    content = here = json.loads(path.read_text())
    *before, last = fields.split(".")
    for key in before:
        here = here[key]
    here[last] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("file", "field", "value", "says"),
    [
        ("run.json", "task", 5, "run.json: task is 5, not a string"),
        ("run.json", "task", "x", "unknown task"),
        ("run.json", "settings", [], "run.json: settings is a list"),
        ("run.json", "settings.max_length", "long", 'run.json: settings.max_length is "long", not a whole number'),
        ("run.json", "settings.max_length", 10**400, "run.json: settings.max_length is 1000.*at most 1,000,000"),
        ("run.json", "settings.training", None, "run.json: settings.training is null"),
        ("run.json", "settings.training.betas", [1], r"settings.training.betas is a list, not \[a finite number, "),
        ("run.json", "settings.training.batch_size", 0, "settings.training.batch_size is 0; give at least 1"),
        ("run.json", "data.strict", "yes", 'data.strict is "yes", not true or false'),
        ("run.json", "label_kind", "odd", "label_kind is \"odd\", not 'single' or 'multi' or 'number'"),
        ("run.json", "files", ["../secret"], "files names '../secret', which is not in the folder"),
        ("config.json", "hidden_size", "wide", "the model cannot be loaded.*hidden_size"),
        ("config.json", "vocab_size", -1, "the model cannot be loaded"),
        ("config.json", "id2label", {"x": 1}, "the model cannot be loaded"),
        ("tokenizer_config.json", "model_max_length", "x", "tokenizer_config.json: model_max_length is"),
        ("tokenizer_config.json", "model_input_names", 3, "tokenizer_config.json: model_input_names is 3"),
        ("tokenizer.json", "model", 3, "no tokenizer in"),
    ],
)
def test_a_wrong_field_is_named(copy, file, field, value, says):
    change(copy / file, field, value)
    with pytest.raises(UserError, match=says) as refused:
        load(copy)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("file", ["run.json", "config.json", "metrics.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b'{"a": ' + b"[" * 100_000, b"NaN"])
def test_a_file_that_is_no_json_is_named(copy, file, content):
    (copy / file).write_bytes(content)
    with pytest.raises(UserError):
        load(copy)


def test_weights_that_are_no_numbers_do_not_answer(copy):
    weights = load_file(copy / "model.safetensors")
    name = next(name for name in weights if weights[name].is_floating_point())
    weights[name].view(-1)[0] = torch.nan
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="numbers that are not finite"):
        load(copy)


def test_an_answer_that_is_no_number_is_refused_and_a_kept_field_is_null():
    with pytest.raises(UserError, match="not finite"):
        list(_finite([{"probabilities": {"a": 0.5}}, {"probabilities": {"a": float("nan")}}]))
    line = Predictor.line(None, {"label": "a", "price": float("nan"), "more": [float("inf"), 1]})
    assert json.loads(line) == {"label": "a", "price": None, "more": [None, 1]}


def test_a_tokenizer_that_numbers_further_than_the_model_is_refused(copy):
    content = json.loads((copy / "tokenizer.json").read_text())
    content["model"]["vocab"][next(iter(content["model"]["vocab"]))] = 10**8
    (copy / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="token ids up to 100,000,000|no tokenizer"):
        load(copy)


def test_an_index_of_weights_names_files_of_its_own_folder(copy):
    index = {"metadata": {}, "weight_map": {"x": "../../secret.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="which is not a file of this folder"):
        load(copy)
    with pytest.raises(UserError, match="which is not a file of this folder"):
        open_encoder(copy)


@pytest.mark.parametrize("left", ["", "settings.json", ".settings.json.12-0.saving"])
def test_what_a_killed_training_left_blocks_no_folder(tmp_path, left):
    (tmp_path / "checkpoints").mkdir()
    if left:
        (tmp_path / "checkpoints" / left).touch()
    assert claim_output(tmp_path, resume=False, overwrite=False) == tmp_path
    (tmp_path / "checkpoints" / "diary.txt").touch()
    with pytest.raises(UserError, match="not a run folder"):
        claim_output(tmp_path, resume=False, overwrite=False)


def test_a_folder_whose_name_is_not_utf8_is_refused_before_any_work(tmp_path):
    with pytest.raises(UserError, match="a name that is not UTF-8"):
        claim_output(tmp_path / "caf\udce9", resume=False, overwrite=False)


def test_two_saves_at_once_are_one_and_a_line(run_folder, tmp_path):
    class Model(TaskModel):
        task = "classification"

    model = Model.load(run_folder)
    with unharmed(tmp_path / "run"), pytest.raises(UserError, match="another command is writing there"):
        model.save(tmp_path / "run")
    model.save(tmp_path / "run")
    assert open_run(tmp_path / "run").task == "classification"


def test_long_messages_are_short_and_say_both_ends():
    said = str(UserError(f"{'a' * 5000}: no such file; {'b ' * 2000}check the name"))
    assert len(said) < 1000
    assert said.startswith("aaa")
    assert "no such file" in said
    assert said.endswith("check the name")
    assert shortened("short: it stays") == "short: it stays"
    escaped = str(UserError(f"history: {chr(0xDCE2)} " + f"{chr(0xDCE2)} " * 400))  # six characters each when printed
    assert len(escaped.encode()) < 1000


def test_memory_that_is_not_there_is_said_with_its_size():
    with pytest.raises(UserError, match=r"4,398.0 GB at once|ran out"), enough_memory():
        torch.empty(2**40)
    with pytest.raises(RuntimeError), enough_memory():
        raise RuntimeError("something else")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_what_never_ends_is_refused(device):
    with pytest.raises(UserError, match="never ends"):
        reads_once(device)
    assert reads_once("/dev/null")


def test_a_file_that_is_not_there_is_no_damage(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "missing.json")
