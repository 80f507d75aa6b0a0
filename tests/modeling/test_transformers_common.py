"""Our models under transformers' own common model tests, taken from its source release of the installed version.

Slow, and needs a package index: the source archive is fetched with pip and unpacked in a temporary folder.
"""

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

import fastformer
from fastformer import available_mixers

pytestmark = pytest.mark.slow

ENCODERS = """
import os
import unittest

import torch
import transformers.models.auto.modeling_auto as auto

from fastformer import (
    FastformerConfig,
    FastformerForMaskedLM,
    FastformerForSequenceClassification,
    FastformerForTokenClassification,
    FastformerModel,
)

from .test_configuration_common import ConfigTester
from .test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask

auto.MODEL_MAPPING_NAMES["fastformer"] = "FastformerModel"  # tells the tests which class has no loss
MIXER = os.environ["MIXER"]


class Tester:
    batch_size, seq_length, hidden_size, num_hidden_layers, num_attention_heads, is_training = 13, 7, 32, 2, 4, True

    def get_config(self):
        return FastformerConfig(
            vocab_size=99, hidden_size=32, num_attention_heads=4, intermediate_size=37, max_position_embeddings=64,
            window_size=4, num_global_tokens=2, num_random_tokens=2, block_size=2, pooling_window_size=8,
            pooling_stride=2, mixer=MIXER, share_layers=MIXER == "fastformer",
        )

    def prepare_config_and_inputs_for_common(self):
        inputs = {"input_ids": ids_tensor([13, 7], 99), "attention_mask": random_attention_mask([13, 7])}
        return self.get_config(), inputs


class FastformerTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (
        FastformerModel, FastformerForMaskedLM, FastformerForSequenceClassification, FastformerForTokenClassification
    )
    has_attentions = MIXER == "fastformer"

    def setUp(self):
        self.model_tester = Tester()
        self.config_tester = ConfigTester(self, config_class=FastformerConfig, hidden_size=32)

    def test_config(self):
        self.config_tester.run_common_tests()

    def test_attention_outputs(self):
        self.skipTest("attentions are global: (batch, 2, heads, length), tested in the project")

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels and model_class is not FastformerModel:
            shape = (13,) if model_class is FastformerForSequenceClassification else (13, 7)
            inputs["labels"] = torch.zeros(shape, dtype=torch.long)
        return inputs
"""

WRITERS = """
import os
import unittest

import torch

from fastformer import FastformerConfig, FastformerForCausalLM, FastformerForConditionalGeneration

from .test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask

MIXER = os.environ["MIXER"]


class Tester:
    batch_size, seq_length, hidden_size, num_hidden_layers, num_attention_heads, is_training = 13, 7, 32, 2, 4, True
    encoder_seq_length = decoder_seq_length = 7

    def __init__(self, encoder_decoder):
        self.encoder_decoder = encoder_decoder

    def get_config(self):
        return FastformerConfig(
            vocab_size=99, hidden_size=32, num_attention_heads=4, intermediate_size=37, max_position_embeddings=64,
            mixer=MIXER, decoder_mixer=MIXER, share_layers=False, is_encoder_decoder=self.encoder_decoder,
        )

    def prepare_config_and_inputs_for_common(self):
        inputs = {"input_ids": ids_tensor([13, 7], 99), "attention_mask": random_attention_mask([13, 7])}
        if self.encoder_decoder:
            inputs["decoder_input_ids"] = ids_tensor([13, 7], 99)
        return self.get_config(), inputs


class WriterTest(ModelTesterMixin):
    all_generative_model_classes = ()  # their tests are no part of the release
    has_attentions = False

    def setUp(self):
        self.model_tester = Tester(self.is_encoder_decoder)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels:
            inputs["labels"] = torch.zeros((13, 7), dtype=torch.long)
        return inputs


class CausalTest(WriterTest, unittest.TestCase):
    all_model_classes = (FastformerForCausalLM,)


class ConditionalTest(WriterTest, unittest.TestCase):
    all_model_classes = (FastformerForConditionalGeneration,)
    is_encoder_decoder = True
"""


@pytest.fixture(scope="module")
def common_tests(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("transformers")
    release = f"transformers=={version('transformers')}"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    fetch = [*pip, "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", str(folder), release]
    install = [*pip, "install", "--no-deps", "--target", str(folder / "libraries"), "parameterized"]
    for command in (fetch, install):
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip(f"needs a package index: {' '.join(command[2:])} failed")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    tests = next(folder.glob("transformers-*/tests"))
    (tests / "__init__.py").touch()
    # Parts that the release leaves out.
    for package, content in {
        "exporters/test_export": "class ExportTesterMixin: pass",
        "generation/test_utils": "class GenerationTesterMixin: pass",
        "utils/test_configuration_utils": "config_common_kwargs = {}",
    }.items():
        path = tests / f"{package}.py"
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(content)
    (tests / "test_encoders.py").write_text(ENCODERS)
    (tests / "test_writers.py").write_text(WRITERS)
    return tests


@pytest.mark.parametrize(
    ("models", "mixer"),
    [("encoders", mixer) for mixer in available_mixers()]
    + [("writers", mixer) for mixer in available_mixers(causal=True)],
)
def test_common_model_tests_pass(common_tests, models, mixer):
    ours = Path(fastformer.__file__).parents[1]
    path = os.pathsep.join(map(str, [common_tests.parent, common_tests.parents[1] / "libraries", ours]))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "ignore", f"tests/test_{models}.py"],
        cwd=common_tests.parent,
        env={**os.environ, "MIXER": mixer, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-5000:]
    assert " passed" in result.stdout
