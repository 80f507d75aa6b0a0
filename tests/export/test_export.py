"""An export gives the run's answers: at any length, in any company, with any mixer, through the same verbs."""

import copy
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from fastformer import FastformerConfig, FastformerForSequenceClassification, TextClassifier, available_mixers
from fastformer.errors import UserError
from fastformer.export.exporting import export, verify, write_onnx
from fastformer.export.int8 import Int8Linear, to_int8
from fastformer.export.onnx_model import OnnxClassifier
from fastformer.runs.folder import open_run
from fastformer.tasks.answering import light_predictor, load_export
from fastformer.tasks.base import get_task
from fastformer.tasks.classification.declaration import Predicting
from fastformer.tasks.verbs import embed, evaluate, predict, train

from ..tasks.conftest import files, make_rows, run_folder, write_jsonl  # noqa: F401  the small task and its run
from ..test_cli import fastformer  # noqa: F401  runs a command

SMALL = {
    "vocab_size": 500,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "num_labels": 3,
    "max_position_embeddings": 20_000,
    "initializer_range": 0.2,  # far from zero, so that a wrong graph cannot hide
}


def build(**settings) -> FastformerForSequenceClassification:
    torch.manual_seed(0)
    return FastformerForSequenceClassification(FastformerConfig(**{**SMALL, **settings})).eval()


def exported(model, folder: Path, int8: bool = False) -> OnnxClassifier:
    write_onnx(to_int8(model) if int8 else model, folder / "model.onnx")
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]  # one file
    return OnnxClassifier(folder / "model.onnx", model.config)


def batch(*lengths: int, left: bool = False) -> dict[str, torch.Tensor]:
    """Random texts, padded on either side; what stands in the padding is random too."""
    ids = torch.randint(500, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]
    return {"input_ids": ids, "attention_mask": (mask.flip(1) if left else mask).long()}


@torch.inference_mode()
def assert_equal(model, other: OnnxClassifier, inputs, atol: float = 1e-4) -> None:
    for ours, theirs in (
        (model(**inputs).logits, other(**inputs).logits),
        (model.fastformer(**inputs).pooler_output, other.fastformer(**inputs).pooler_output),
    ):
        assert theirs.isfinite().all()
        torch.testing.assert_close(theirs, ours, atol=atol, rtol=0)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A model without layers, its export, and the file: quick to make."""
    model, folder = build(num_hidden_layers=0), tmp_path_factory.mktemp("bare")
    return model, exported(model, folder), folder / "model.onnx"


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A model wide enough for integer products, its int8 export, and the file."""
    settings = {"position_embedding_type": "none", "bigram_buckets": 512, "norm": "pre", "initializer_range": 0.05}
    model = build(mixer="linear", hidden_size=256, intermediate_size=64, **settings)
    model.fastformer.embeddings.apply(_fill)
    folder = tmp_path_factory.mktemp("int8")
    return model, exported(model, folder, int8=True), folder / "model.onnx"


class TestGraph:
    # Tracing takes up to ten seconds each.
    @pytest.mark.parametrize(
        "mixer",
        [
            pytest.param(name, marks=[pytest.mark.slow] * (name not in ("fastformer", "transformer")))
            for name in available_mixers()
        ],
    )
    def test_equals_the_model_with_every_mixer(self, mixer, tmp_path):
        model = build(mixer=mixer, window_size=6, pooling_window_size=8, num_global_tokens=2, num_random_tokens=4)
        other = exported(model, tmp_path)
        for inputs in (batch(1), batch(7), batch(512), batch(33, 20, 1), batch(33, 20, 1, left=True), batch(9, 0)):
            assert_equal(model, other, inputs)

    @pytest.mark.parametrize(
        "settings",
        [
            # The default preset's model: word pairs through a hash of 64-bit integers, nothing but the mixer.
            {"bigram_buckets": 2**12, "position_embedding_type": "none", "norm": "none", "feed_forward": False},
            {"position_embedding_type": "sinusoidal", "norm": "pre", "pooling": "first"},
            pytest.param(
                {"head_form": "full", "interaction": "concat", "pooling": "mean", "num_hidden_layers": 2},
                marks=pytest.mark.slow,
            ),
        ],
        ids=["word-pairs", "sinusoidal-pre-norm", "full-concat-mean"],
    )
    def test_equals_the_model_at_any_length(self, settings, tmp_path):
        model = build(**settings)
        model.fastformer.embeddings.apply(_fill)
        other = exported(model, tmp_path)
        for length in (1, 2, 7, 512, 4096, 20_000):
            assert_equal(model, other, batch(length))
        assert_equal(model, other, batch(300, 4096, left=True))
        assert_equal(model, other, batch(5, 0, 3))

    def test_holds_nothing_of_this_machine(self, bare):
        _, _, path = bare
        graph = onnx.load(path).graph
        assert not any(node.metadata_props or node.doc_string for node in graph.node)
        assert {node.domain for node in graph.node} == {""}  # standard operators only
        shapes = [[axis.dim_param for axis in value.type.tensor_type.shape.dim] for value in graph.input]
        assert shapes == [["batch", "length"]] * 2
        assert b"site-packages" not in path.read_bytes()

    def test_a_wrong_graph_is_found(self, bare):
        model, other, _ = bare
        assert verify(model, other, tolerance=1e-4) < 1e-4
        changed = copy.deepcopy(model)
        with torch.no_grad():
            changed.classifier.bias += 0.001
        with pytest.raises(UserError, match="away from the run"):
            verify(changed, other, tolerance=1e-4)
        changed.classifier.bias.data[:] = torch.nan
        with pytest.raises(UserError, match="away from the run"):
            verify(changed, other, tolerance=1e-4)

    def test_what_cannot_be_exported_is_said_in_one_line(self, tmp_path):
        model = build(num_hidden_layers=0)
        model.fastformer.pooler.forward = lambda x, mask: x[:, int(mask.sum()) % 2]
        with pytest.raises(UserError, match="mixer 'fastformer' cannot be exported") as error:
            write_onnx(model, tmp_path / "model.onnx")
        assert "\n" not in str(error.value)


def _fill(module) -> None:
    """Tables start at zero where training fills them: random rows show whether the right ones are read."""
    if isinstance(module, torch.nn.Embedding):
        torch.nn.init.normal_(module.weight, std=0.5)


class TestInt8:
    def test_products_of_wide_layers_are_integer(self, wide):
        _, _, path = wide
        operators = [node.op_type for node in onnx.load(path).graph.node]
        assert (
            operators.count("MatMulInteger") == 4 + 1
        )  # the mixer's and the pooling's; the feed-forward block is narrow

    def test_equals_the_same_integers_in_pytorch(self, wide):
        model, other, _ = wide
        for inputs in (batch(1), batch(7), batch(512), batch(40, 7, 0)):
            assert_equal(to_int8(model), other, inputs)

    def test_is_close_to_the_floats_and_small(self, wide):
        model, other, path = wide
        for inputs in (batch(1), batch(7), batch(512), batch(40, 7, 0)):
            with torch.inference_mode():
                ours, theirs = (each.fastformer(**inputs).pooler_output for each in (model, other))
            assert (theirs - ours).norm() < 0.03 * ours.norm()
        floats = sum(parameter.numel() for parameter in model.parameters()) * 4
        assert path.stat().st_size < 0.35 * floats  # the narrow feed-forward block keeps its floats

    def test_company_and_padding_change_nothing(self, wide):
        _, other, _ = wide
        inputs = batch(40, 25, 7)
        together = other(**inputs).logits
        for row, length in enumerate((40, 25, 7)):
            alone = {name: tensor[row : row + 1, :length] for name, tensor in inputs.items()}
            torch.testing.assert_close(other(**alone).logits, together[row : row + 1], atol=1e-5, rtol=0)

    def test_narrow_products_stay_float(self):
        quantized = to_int8(build(mixer="transformer"))
        assert not any(isinstance(module, Int8Linear) for module in quantized.modules())

    def test_weights_can_still_be_read(self):
        linear = torch.nn.Linear(300, 256)
        quantized = Int8Linear(linear)
        torch.testing.assert_close(quantized.weight, linear.weight.detach(), atol=1e-3, rtol=0)


@pytest.fixture(scope="module")
def export_folder(run_folder, tmp_path_factory) -> Path:  # noqa: F811
    folder = tmp_path_factory.mktemp("exports") / "animals-onnx"
    export(run_folder, folder, show_progress=False)
    return folder


class TestVerbs:
    """`evaluate`, `predict` and `embed` cannot tell an export from its run."""

    def predictions(self, folder, source) -> list[dict]:
        out = io.StringIO()
        predict(open_run(folder), source, out, show_progress=False)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def test_give_the_same_answers(self, run_folder, export_folder, files, tmp_path):  # noqa: F811
        for ours, theirs in zip(
            self.predictions(run_folder, files["test"]), self.predictions(export_folder, files["test"]), strict=True
        ):
            assert ours["label"] == theirs["label"]
            assert ours["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-4)
        same = [
            evaluate(open_run(folder), files["test"], by_class=False, show_progress=False)
            for folder in (run_folder, export_folder)
        ]
        assert same[0] == pytest.approx(same[1], rel=1e-4)
        for name, folder in (("run", run_folder), ("export", export_folder)):
            embed(open_run(folder), files["test"], tmp_path / f"{name}.npy", show_progress=False)
        ours, theirs = np.load(tmp_path / "run.npy"), np.load(tmp_path / "export.npy")
        np.testing.assert_allclose(theirs, ours, atol=1e-4)

    def test_the_command_needs_neither_torch_nor_transformers(self, export_folder, files, tmp_path):  # noqa: F811
        code = f"""
import sys
for name in ("torch", "transformers"):
    sys.modules[name] = None  # importing it fails
sys.argv = ["fastformer", "predict", {str(export_folder)!r}, {str(files["test"])!r}, "--keep", "label", "--top", "2"]
from fastformer.cli import main
main()
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        out = io.StringIO()
        predict(open_run(export_folder), files["test"], out, keep=("label",), top=2, show_progress=False)
        light, whole = ([json.loads(line) for line in text.splitlines()] for text in (done.stdout, out.getvalue()))
        assert [one.pop("probabilities") for one in light] == [
            pytest.approx(one.pop("probabilities"), abs=1e-5) for one in whole
        ]
        assert light == whole

    def test_python_needs_neither_torch_nor_transformers(self, export_folder, run_folder, tmp_path):  # noqa: F811
        code = f"""
import json, sys
import fastformer
model = fastformer.load_export({str(export_folder)!r})
print(json.dumps(model.predict(["a cat and a dog", "some soup"], top=1)))
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        whole = get_task("classification").load(open_run(export_folder))
        expected = list(whole.predict(["a cat and a dog", "some soup"], Predicting(top=1)))
        for ours, theirs in zip(json.loads(done.stdout), expected, strict=True):
            assert ours.pop("probabilities") == pytest.approx(theirs.pop("probabilities"), abs=1e-5)
            assert ours == theirs
        for folder in (run_folder, tmp_path / "nothing"):
            with pytest.raises(UserError, match="not an export"):
                load_export(folder)
        for one in ("a cat", {"text": "a cat"}):
            with pytest.raises(UserError, match="give a list of examples, not one"):
                load_export(export_folder).predict(one)

    def test_a_light_predictor_cuts_and_refuses_as_the_other(self, export_folder, tmp_path):
        light = light_predictor(export_folder)
        light.longest = 3
        [cut, same] = light.predict(["a cat and soup and soup and soup", "a cat and"])
        assert cut == same
        assert list(light.notes()) == ["1 text was cut after 3 tokens."]
        with pytest.raises(UserError, match="--top 0: no label would be left"):
            light.predict(["a cat"], Predicting(top=0))
        assert list(light.predict([])) == []

    def test_a_foreign_tokenizer_takes_the_long_way(self, export_folder, run_folder, tmp_path):  # noqa: F811
        other = shutil.copytree(export_folder, tmp_path / "other")
        told = json.loads((other / "tokenizer_config.json").read_text())
        (other / "tokenizer_config.json").write_text(json.dumps(told | {"split_special_tokens": False}))
        assert light_predictor(other) is None
        with pytest.raises(UserError, match="needs transformers"):
            load_export(other)
        assert light_predictor(run_folder) is None
        assert light_predictor(tmp_path / "nothing") is None

    def test_of_a_text_without_words(self, export_folder, tmp_path):
        (tmp_path / "texts.txt").write_text("the cat\n \nsome soup\n")
        assert len(self.predictions(export_folder, tmp_path / "texts.txt")) >= 2

    def test_of_numbers(self, tmp_path):
        rows = [{"text": text, "label": len(text.split())} for text, _ in make_rows(40, 0)]
        source = write_jsonl(tmp_path / "numbers.jsonl", rows)
        train("classification", source, output=tmp_path / "run", regression=True, epochs=1, show_progress=False)
        result = export(tmp_path / "run", evaluate_on=source, show_progress=False)
        assert result["output"] == str(tmp_path / "run-onnx")
        assert result["evaluation"]["onnx"]["r2"] == pytest.approx(result["evaluation"]["run"]["r2"], abs=1e-4)
        ours, theirs = (self.predictions(tmp_path / name, source) for name in ("run", "run-onnx"))
        assert [p["prediction"] for p in ours] == pytest.approx([p["prediction"] for p in theirs], abs=1e-4)

    def test_the_folder_says_what_it_is(self, export_folder, run_folder):  # noqa: F811
        assert sorted(path.name for path in export_folder.iterdir()) == [
            "README.md",
            "config.json",
            "metrics.json",
            "model.onnx",
            "run.json",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
        run = open_run(export_folder)
        assert run.record["export"] == {"format": "onnx", "int8": False}
        assert run.load_metrics()["test"] == open_run(run_folder).load_metrics()["test"]
        card = (export_folder / "README.md").read_text()
        assert "fastformer predict animals-onnx" in card
        assert "tags: [fastformer, onnx]" in card


class TestCommand:
    @pytest.mark.slow  # half a minute; by default the README's command does the same
    def test_compares_run_onnx_and_int8(self, fastformer, run_folder, files, tmp_path):  # noqa: F811
        arguments = ("--int8", "--evaluate-on", files["test"], "--output", tmp_path / "small")
        code, out, _ = fastformer("export", run_folder, *arguments)
        assert code == 0
        assert all(part in out for part in ("accuracy", "MB", "onnx int8", str(tmp_path / "small")))
        rows = json.loads((tmp_path / "small" / "metrics.json").read_text())["export"]["evaluation"]
        assert list(rows) == ["run", "onnx", "onnx int8"]
        assert rows["onnx"]["largest_difference"] < 1e-4
        assert rows["onnx int8"]["accuracy"] == pytest.approx(rows["run"]["accuracy"], abs=0.05)
        assert rows["onnx int8"]["megabytes"] < 0.4 * rows["onnx"]["megabytes"]
        assert not list((tmp_path / "small").glob("float*"))
        code, out, _ = fastformer("predict", tmp_path / "small", "-", stdin="a cat and a horse\n")
        assert json.loads(out)["label"] == "animal"

    def refused(self, result, *parts):
        code, _, err = result
        assert code == 2
        [line] = [line for line in err.splitlines() if line.startswith("fastformer: ")]
        for part in parts:
            assert part in line

    def test_answers_mistakes_in_one_line(self, fastformer, run_folder, export_folder, files, tmp_path):  # noqa: F811
        self.refused(fastformer("export", tmp_path / "nothing"), "no such run folder")
        self.refused(fastformer("export", tmp_path), "not a run folder")
        self.refused(fastformer("export", run_folder, "--format", "gguf"), "unknown format 'gguf'", "onnx")
        self.refused(fastformer("export", export_folder), "is an export itself")
        self.refused(fastformer("export", run_folder, "--output", run_folder, "--overwrite"), "is the run itself")
        self.refused(fastformer("export", run_folder, "--output", export_folder), "--overwrite")
        (tmp_path / "loop").symlink_to("loop")
        self.refused(fastformer("export", run_folder, "--output", tmp_path / "loop"), "loop: cannot be written")
        new = tmp_path / "new"
        self.refused(fastformer("export", run_folder, "--output", new, "--evaluate-on", "no.csv"), "no such file")
        self.refused(fastformer("export", run_folder, "--output", new, "--evaluate-on", "-"), "standard input")
        assert not new.exists()

    def test_never_replaces_a_trained_run_or_foreign_files(self, fastformer, run_folder, tmp_path):  # noqa: F811
        other = shutil.copytree(run_folder, tmp_path / "other")
        before = sorted((path.name, path.stat().st_mtime_ns) for path in other.iterdir())
        self.refused(fastformer("export", run_folder, "--output", other, "--overwrite"), "holds a trained run")
        assert sorted((path.name, path.stat().st_mtime_ns) for path in other.iterdir()) == before
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "notes.txt").write_text("precious")
        self.refused(fastformer("export", run_folder, "--output", tmp_path / "mine", "--overwrite"), "not empty")

    def test_a_failure_leaves_the_old_export(self, fastformer, run_folder, export_folder, tmp_path, monkeypatch):  # noqa: F811
        old = shutil.copytree(export_folder, tmp_path / "old")
        before = {path.name: path.read_bytes() for path in old.iterdir()}
        wrong = onnx.load(old / "model.onnx")
        [bias] = [weight for weight in wrong.graph.initializer if weight.name == "ngrams.bias"]
        bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) * 1.1, bias.name))
        monkeypatch.setattr("fastformer.export.exporting.write_onnx", lambda model, path: onnx.save(wrong, path))
        self.refused(fastformer("export", run_folder, "--output", old, "--overwrite"), "away from the run")
        assert {path.name: path.read_bytes() for path in old.iterdir()} == before
        self.refused(fastformer("export", run_folder, "--output", tmp_path / "new"), "away from the run")
        assert not (tmp_path / "new").exists()

    def test_says_what_to_install(self, fastformer, run_folder, export_folder, tmp_path, monkeypatch):  # noqa: F811
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        self.refused(fastformer("predict", export_folder, "-", stdin="a cat\n"), "pip install onnxruntime")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        self.refused(fastformer("export", run_folder, "--output", tmp_path / "new"), "pip install", "onnxscript")

    def test_says_when_an_export_is_broken(self, fastformer, export_folder, tmp_path):  # noqa: F811
        broken = shutil.copytree(export_folder, tmp_path / "broken")
        (broken / "model.onnx").write_bytes(b"nonsense")
        self.refused(fastformer("predict", broken, "-", stdin="a cat\n"), "model.onnx: cannot be loaded")
        (broken / "model.onnx").unlink()
        self.refused(fastformer("predict", broken, "-", stdin="a cat\n"), "model.onnx: cannot be loaded")

    def test_the_estimator_answers_with_it(self, run_folder, export_folder, tmp_path):  # noqa: F811
        texts = [text for text, _ in make_rows(20, 5)]
        ours, theirs = (TextClassifier.load(folder) for folder in (run_folder, export_folder))
        np.testing.assert_allclose(theirs.predict_proba(texts), ours.predict_proba(texts), atol=1e-4)
        with pytest.raises(UserError, match="an export cannot be saved again"):
            theirs.save(tmp_path / "again")
        with pytest.raises(UserError, match="an export cannot be explained"):
            theirs.explain("a cat")
