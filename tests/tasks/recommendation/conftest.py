"""Small simulated clicks, and recommenders trained on them for a moment."""

from functools import partial

import pytest
import torch
from transformers import BertConfig, BertModel

from fastformer.data import corpus
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.tasks import verbs
from fastformer.tasks.recommendation.mind import read_mind
from fastformer.tasks.recommendation.simulate import simulate_clicks

fit = partial(verbs.train, "recommendation", show_progress=False)
TINY = {"epochs": 1, "max_length": 8, "history_length": 6, "model": {"hidden_size": 16}}
MODELS = ("fastformer", "nrms", "fim", "plm-nr", "fastformer+plm-nr")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """What is cached while testing goes with the tests; the built-in corpus takes long to build and is kept."""
    corpus._load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A folder with train/, dev/ and test/."""
    return simulate_clicks(tmp_path_factory.mktemp("clicks") / "clicks", users=30)


@pytest.fixture(scope="session")
def clicks(folders):
    """Training and validation clicks."""
    return {split: read_mind(folders / split) for split in ("train", "dev", "test")}


@pytest.fixture(scope="session")
def plm(clicks, tmp_path_factory):
    """The folder of a small BERT that has learned nothing."""
    folder = tmp_path_factory.mktemp("plm")
    tokenizer = train_tokenizer("word", clicks["train"].news["title"].to_pylist(), vocab_size=300)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **size)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def runs(clicks, plm, tmp_path_factory):
    """A run folder of every model."""
    home = tmp_path_factory.mktemp("runs")
    for model in MODELS:
        options = {"plm": plm, "plm_layers": 2 if model == "plm-nr" else 0} if "plm" in model else {}
        fit(clicks["train"], clicks["dev"], output=home / model, recommender=model, **options, **TINY)
    return {model: home / model for model in MODELS}
