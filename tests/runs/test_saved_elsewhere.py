"""A folder that `save_pretrained` or a Trainer left is a run, where its configuration says of which task."""

import io
import json

import pytest
import torch
from torch.utils.data import Dataset
from transformers import AutoModelForMaskedLM, AutoTokenizer, Trainer, TrainingArguments

from fastformer import (
    FastformerConfig,
    FastformerForMaskedLM,
    FastformerForSequenceClassification,
    FastformerModel,
    TextClassifier,
)
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.errors import UserError
from fastformer.export.exporting import export
from fastformer.runs.claiming import claim_output
from fastformer.runs.folder import open_run
from fastformer.tasks.verbs import embed, evaluate, predict, train

from ..tasks.conftest import make_rows, write_csv

SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 32}
LABELS = {0: "animal", 1: "food", 2: "tool"}
quiet = {"show_progress": False}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer("word", [text for text, _ in make_rows(150, 0)], vocab_size=500)


class Rows(Dataset):
    """Labelled texts as transformers' own trainer takes them."""

    def __init__(self, tokenizer, rows):
        self.rows = [(tokenizer(text)["input_ids"], label) for text, label in rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        ids, label = self.rows[place]
        number = {name: number for number, name in LABELS.items()}[label]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": number}


@pytest.fixture(scope="module")
def trained(tokenizer, tmp_path_factory):
    """What a person's own script leaves, without one word of ours."""
    folder = tmp_path_factory.mktemp("trainer")
    torch.manual_seed(0)
    config = FastformerConfig(vocab_size=len(tokenizer), id2label=LABELS, max_position_embeddings=64, **SMALL)
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=8,
        learning_rate=5e-3,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        FastformerForSequenceClassification(config),
        arguments,
        train_dataset=Rows(tokenizer, make_rows(150, 0)),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()
    return folder


def test_what_a_trainer_left_is_evaluated_and_answers(trained, tmp_path):
    test = write_csv(tmp_path / "test.csv", make_rows(40, 1))
    assert evaluate(trained, test, **quiet)["accuracy"] > 0.9
    out = io.StringIO()
    predict(trained, output=out, text="a cat and a horse " * 40, **quiet)  # longer than it has places
    assert json.loads(out.getvalue())["label"] == "animal"
    assert embed(trained, test, tmp_path / "v.npy", **quiet) == (40, 32)
    assert TextClassifier.load(trained).predict(["some soup"]).tolist() == ["food"]
    assert export(trained, tmp_path / "onnx", evaluate_on=test, **quiet)["evaluation"]["onnx"]["accuracy"] > 0.9
    with pytest.raises(UserError, match="not a run folder"):  # it is not ours to write to
        claim_output(trained, resume=False, overwrite=True)


def test_a_training_takes_it_for_a_run(trained, tmp_path):
    source = write_csv(tmp_path / "train.csv", make_rows(60, 2))
    with pytest.raises(UserError, match="its model has width 32, this one 128"):
        train("classification", source, output=tmp_path / "run", init=str(trained), epochs=1, **quiet)


def test_masked_words(tokenizer, tmp_path):
    FastformerForMaskedLM(FastformerConfig(vocab_size=len(tokenizer), **SMALL)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    out = io.StringIO()
    predict(tmp_path, output=out, text="the [MASK] and the cat", top=3, **quiet)
    assert [len(blank) for blank in json.loads(out.getvalue())["blanks"]] == [3]
    assert AutoModelForMaskedLM.from_pretrained(tmp_path).config.mixer == "fastformer"
    assert len(AutoTokenizer.from_pretrained(tmp_path)) == len(tokenizer)


def test_a_model_of_no_task_is_no_run(tmp_path):
    FastformerModel(FastformerConfig(vocab_size=50, **SMALL)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="not a run folder"):
        open_run(tmp_path)
