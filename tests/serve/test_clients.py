"""Clients that nobody here wrote: OpenAI's, Hugging Face's, and schemathesis over the description of the routes."""

import re
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from huggingface_hub import InferenceClient

from fastformer.serve import Limits, create_app

from .conftest import running

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "serving.md"
TEXTS = ["the hammer and a saw", "the soup and a bread"]


@pytest.fixture(scope="module")
def address(classifier):
    with running(create_app({"model": classifier}, api_key="secret")) as address:
        yield address


def test_openais_client(address, offline):
    openai = pytest.importorskip("openai", reason="asks as OpenAI's client does: pip install openai")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="secret", max_retries=0)
    expected = np.stack(list(offline.vectors(TEXTS)))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    for form in ("float", "base64"):
        found = client.embeddings.create(model="model", input=TEXTS, encoding_format=form)
        vectors = [one.embedding for one in found.data]
        if isinstance(vectors[0], str):  # who asks for base64 decodes it
            continue
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    found = client.embeddings.create(model="model", input=TEXTS[0])  # asks for base64, and decodes it
    np.testing.assert_allclose(found.data[0].embedding, expected[0], atol=1e-5)
    assert found.usage.total_tokens > 0
    assert [one.id for one in client.models.list()] == ["model"]
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
        client.embeddings.create(model="gpt", input="a")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{address}/v1", api_key="wrong", max_retries=0).models.list()


def test_openais_client_comes_back_when_too_many_ask(classifier):
    openai = pytest.importorskip("openai", reason="asks as OpenAI's client does: pip install openai")
    with running(create_app({"model": classifier}, limits=Limits(queue=0))) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0)
        with pytest.raises(openai.RateLimitError, match="too many requests wait already"):
            client.embeddings.create(model="model", input="a")


def test_hugging_faces_client(address, offline, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # the tests are; this stays on the machine
    client = InferenceClient(address, token="secret")
    [answer] = offline.predict(TEXTS[:1])
    found = client.text_classification(TEXTS[0])
    assert {one.label: one.score for one in found} == pytest.approx(answer["probabilities"], abs=2e-6)
    assert [one.label for one in client.text_classification(TEXTS[0], top_k=1)] == [answer["label"]]
    features = InferenceClient(f"{address}/embed", token="secret").feature_extraction(TEXTS[0])
    [expected] = offline.vectors(TEXTS[:1])
    np.testing.assert_allclose(features, [expected / np.linalg.norm(expected)], atol=1e-5)


def test_the_clients_of_the_guide(classifier, monkeypatch):
    pytest.importorskip("openai", reason="asks as OpenAI's client does: pip install openai")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    clients = [block for block in blocks if "127.0.0.1:8000" in block]
    assert len(clients) == 2
    found: dict[str, object] = {}
    with running(create_app({"quickstart": classifier})) as address:
        for block in clients:
            exec(block.replace("http://127.0.0.1:8000", address), found)
    assert len(found["vectors"].data) == 2
    assert found["labels"][0].score >= found["labels"][1].score
    assert found["vector"].shape == (1, len(found["vectors"].data[0].embedding))


@pytest.mark.parametrize(
    "task",
    [
        "classification",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("recommendation", "conversion", "loudness")),
    ],
)
def test_whatever_is_sent_the_answer_is_as_described(task, trained, tmp_path):
    """schemathesis makes requests out of the description, right and wrong ones: no answer is a server's failure."""
    schemathesis = pytest.importorskip("schemathesis", reason="makes requests from the description: pip install it")
    from hypothesis import HealthCheck, given, settings

    app = create_app({"model": trained(task)}, limits=Limits(inputs=20), state=tmp_path)
    torch.set_flush_denormal(False)  # hypothesis wants all floats there are; the model has a thread of its own
    described = schemathesis.openapi.from_asgi("/openapi.json", app).exclude(path="/reload")
    tried = set()
    for found in described.get_all_operations():
        operation = found.ok()
        tried.add(operation.path)

        @settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def check(case):
            case.call_and_validate(checks=[schemathesis.checks.not_a_server_error])

        check()
    assert {"/predict", "/tokenize", "/info", "/v2/models/{name}/infer", "/v1/embeddings"} <= tried
