"""The routes, on real runs, in this process."""

import base64
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fastapi.testclient import TestClient

from fastformer.data.tokenizers import encode_batch
from fastformer.serve import Limits, create_app, tei
from fastformer.serve import model as serve_model
from fastformer.serve.open_inference import outputs_of
from fastformer.tasks.verbs import load

TEXTS = ["a hammer and the saw", "the soup with a bread", "a cat", ""]


def client_for(run, **options):
    return TestClient(create_app({"model": run}, **options))


@pytest.fixture(scope="module")
def client(classifier):
    with client_for(classifier) as client:
        yield client


def test_a_text_gets_its_labels_the_likeliest_first(client, offline):
    [answer] = offline.predict(TEXTS[:1])
    found = client.post("/predict", json={"inputs": TEXTS[0]}).json()
    assert found[0]["label"] == answer["label"]
    assert {one["label"]: one["score"] for one in found} == pytest.approx(answer["probabilities"], abs=2e-6)
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)


@pytest.mark.parametrize("inputs", [TEXTS, [[text] for text in TEXTS], [{"text": text} for text in TEXTS]])
def test_a_list_in_is_a_list_out_in_order(client, offline, inputs):
    expected = [answer["label"] for answer in offline.predict(TEXTS)]
    found = client.post("/predict", json={"inputs": inputs}).json()
    assert [one[0]["label"] for one in found] == expected
    [single] = client.post("/predict", json={"inputs": inputs[:1]}).json()
    assert single[0]["label"] == expected[0]


def test_the_whole_answer_is_that_of_predict(client, offline):
    found = client.post("/predict", json={"inputs": TEXTS, "full": True, "parameters": {"top": 2}}).json()
    assert [one["label"] for one in found] == [one["label"] for one in offline.predict(TEXTS)]
    assert all(len(one["probabilities"]) == 2 for one in found)
    assert [len(one) for one in client.post("/predict", json={"inputs": TEXTS, "parameters": {"top_k": 1}}).json()] == [
        1
    ] * 4


def test_a_task_that_only_these_tests_know_is_served(trained):
    run = trained("loudness")
    expected = list(load(run).predict([{"text": "SHOUT hush"}, {"text": "sing"}]))
    with client_for(run) as client:
        assert client.post("/predict", json={"inputs": "SHOUT hush"}).json() == pytest.approx(expected[0], abs=1e-5)
        found = client.post("/predict", json={"inputs": ["SHOUT hush", {"text": "sing"}]}).json()
        assert [one["loud"] for one in found] == pytest.approx([one["loud"] for one in expected], abs=1e-5)
        info = client.get("/info").json()
        assert (info["task"], info["has_vectors"], info["max_input_length"]) == ("loudness", False, 32)
        assert client.post("/embed", json={"inputs": "a"}).status_code == 404
        long = {"inputs": "hush " * 40}
        refused = client.post("/predict", json=long)
        assert refused.status_code == 422
        assert "a text of more than 32 tokens" in refused.json()["error"]
        assert client.post("/predict", json=long | {"truncate": True}).status_code == 200
        wrong = client.post("/predict", json={"inputs": {"words": "hush"}})  # the task does not look, and trips
        assert (wrong.status_code, wrong.json()["error"]) == (422, "the inputs cannot be read (KeyError: 'text')")


@pytest.mark.slow  # the same Predictor, whose answers tests/export holds equal
def test_an_export_answers_as_its_run(classifier, client, tmp_path):
    from fastformer.export.exporting import export

    pytest.importorskip("onnxruntime")
    export(classifier, tmp_path / "onnx", show_progress=False)
    with client_for(tmp_path / "onnx") as other:
        for route in ("/predict", "/embed"):
            ours, theirs = (one.post(route, json={"inputs": TEXTS}).json() for one in (client, other))
            if route == "/embed":
                np.testing.assert_allclose(ours, theirs, atol=1e-4)
            else:
                assert [one[0]["label"] for one in ours] == [one[0]["label"] for one in theirs]


def test_vectors_are_those_of_embed(client, offline):
    expected = np.stack(list(offline.vectors(TEXTS)))
    found = np.array(client.post("/embed", json={"inputs": TEXTS, "normalize": False}).json())
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.shape(client.post("/embed", json={"inputs": "a cat"}).json()) == (1, offline.width)
    lengths = np.linalg.norm(client.post("/embed", json={"inputs": TEXTS[:3]}).json(), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)


def test_rerank_puts_the_same_text_first(client):
    found = client.post("/rerank", json={"query": TEXTS[1], "texts": TEXTS[:3], "return_text": True}).json()
    assert found[0]["index"] == 1
    assert found[0]["score"] == pytest.approx(1)
    assert found[0]["text"] == TEXTS[1]
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)


def test_rerank_finds_what_one_passage_of_a_long_text_says(client):
    long = "the hammer and a saw " * 100
    texts = ["a cat " * 60, f"{long} {TEXTS[1]} {long}", long]
    found = client.post("/rerank", json={"query": TEXTS[1], "texts": texts, "return_text": True}).json()
    scores = {one["index"]: one["score"] for one in found}
    assert scores[1] > scores[2]
    assert TEXTS[1] in next(one["passage"] for one in found if one["index"] == 1)
    many = {"query": "a", "texts": ["the cat and a dog " * 12_000]}  # more passages than one request may have texts
    assert len(client.post("/rerank", json=many).json()) == 1


def test_tokens_stand_where_they_are_said_to(client):
    text = "The soup,  with bread"
    [found] = client.post("/tokenize", json={"inputs": text}).json()
    assert [text[one["start"] : one["stop"]].strip() for one in found] == ["The", "soup", ",", "with", "bread"]


def test_openai_embeddings_in_both_forms(client, offline):
    body = {"model": "model", "input": TEXTS[:2]}
    found = client.post("/v1/embeddings", json=body).json()
    assert [one["index"] for one in found["data"]] == [0, 1]
    assert found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"] > 0
    coded = client.post("/v1/embeddings", json=body | {"encoding_format": "base64"}).json()
    vector = np.frombuffer(base64.b64decode(coded["data"][1]["embedding"]), "<f4")
    np.testing.assert_allclose(vector, found["data"][1]["embedding"], atol=1e-6)
    wrong = client.post("/v1/embeddings", json=body | {"model": "other"})
    assert wrong.status_code == 404
    assert wrong.json()["error"]["message"] == "there is no model 'other'; there is: model"
    assert client.get("/v1/models").json()["data"][0]["id"] == "model"
    assert client.post("/v1/embeddings", json=body | {"dimensions": 3}).status_code == 422


def test_vectors_of_an_encoder_may_be_cut(trained):
    with client_for(trained("encoder")) as client:
        body = {"model": "model", "input": TEXTS[:2]}
        whole, cut = (
            np.array([one["embedding"] for one in client.post("/v1/embeddings", json=one_body).json()["data"]])
            for one_body in (body, body | {"dimensions": 4})
        )
        np.testing.assert_allclose(cut, whole[:, :4] / np.linalg.norm(whole[:, :4], axis=1, keepdims=True), atol=1e-5)
        assert client.post("/v1/embeddings", json=body | {"dimensions": 1000}).status_code == 422


def test_the_open_inference_protocol(client, offline):
    about = client.get("/v2/models/model").json()
    assert {one["name"] for one in about["outputs"]} == {"label", "probabilities", "vector"}
    tensor = {"name": "text", "shape": [2], "datatype": "BYTES", "data": TEXTS[:2]}
    body = {"id": "7", "inputs": [tensor], "outputs": [{"name": "vector"}, {"name": "label"}]}
    found = client.post("/v2/models/model/infer", json=body).json()
    assert found["id"] == "7"
    vectors, labels = found["outputs"]
    assert vectors["shape"] == [2, offline.width]
    assert labels["data"] == [one["label"] for one in offline.predict(TEXTS[:2])]
    every = client.post("/v2/models/model/infer", json={"inputs": [tensor]}).json()["outputs"]
    chances = next(one for one in every if one["name"] == "probabilities")
    columns = chances["parameters"]["columns"]
    rows = np.reshape(chances["data"], chances["shape"])
    assert [columns[place] for place in rows.argmax(axis=1)] == labels["data"]
    tensor = {"name": "json", "shape": [1], "datatype": "BYTES", "data": [json.dumps({"text": TEXTS[0]})]}
    assert client.post("/v2/models/model/infer", json={"inputs": [tensor]}).status_code == 200
    assert client.post("/v2/models/model/infer", json={"inputs": [tensor | {"shape": [2]}]}).status_code == 422
    assert client.get("/v2/models/other").status_code == 404
    assert client.get("/v2/health/ready").json() == {"ready": True}


def test_info_tells_in_which_numbers_a_model_answers(client, trained):
    assert client.get("/info").json()["model_dtype"] == "float32"
    with client_for(trained("loudness"), dtype="bfloat16") as other:
        assert other.get("/info").json()["model_dtype"] == "bfloat16"


def test_metrics_count_requests(client):
    client.post("/predict", json={"inputs": TEXTS})
    text = client.get("/metrics").text
    assert 'fastformer_requests_total{route="/predict",status="200"}' in text
    assert 'fastformer_batch_examples_count{model="model"}' in text


def test_several_models_have_names(classifier, trained):
    with TestClient(create_app({"first": classifier, "second": trained("loudness")})) as client:
        assert isinstance(client.post("/predict", json={"inputs": "a cat"}).json(), list)
        assert "loud" in client.post("/models/second/predict", json={"inputs": "hush"}).json()
        assert client.get("/models/second/info").json()["task"] == "loudness"
        assert client.get("/v2/models/second").json()["name"] == "second"
        assert client.post("/v1/embeddings", json={"model": "second", "input": "a"}).status_code == 422


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 422, "JSON decode error"),
        (b"{}", 422, "`inputs`: Field required"),
        (b'{"inputs": []}', 422, "`inputs` is empty"),
        (b'{"inputs": 3}', 422, "`inputs"),
        (b'{"inputs": [["a", "b"]]}', 422, "no model here reads pairs"),
        (b'{"inputs": "a", "raw_scores": true}', 422, "raw scores are not offered"),
        (b'{"inputs": {"number": 1, "size": 2}}', 422, "cannot tell which column holds the text"),
        (b'{"inputs": "a", "parameters": {"beams": 2}}', 422, "has no use for it"),
        (b'{"inputs": ["a", "b", "c", "d"]}', 413, "4 inputs in one request; 3 are the most"),
        (b'{"inputs": "%s"}' % (b"a " * 60), 413, "120 characters; 100 are the most"),
        (b'{"inputs": "%s"}' % (b"a " * 600), 413, "bytes; 1,000 are the most"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(classifier, body, status, said):
    limits = Limits(body=1000, text=100, inputs=3)
    with client_for(classifier, limits=limits) as client:
        answer = client.post("/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    content = answer.json()
    assert set(content) == {"error", "error_type"}
    assert said in content["error"]
    assert "\n" not in content["error"]


def test_no_such_route_says_where_they_are(client):
    found = client.get("/nothing")
    assert found.status_code == 404
    assert "GET /docs lists what there is" in found.json()["error"]
    assert client.get("/predict").status_code == 405


def test_only_who_has_the_key_is_answered(classifier):
    with client_for(classifier, api_key="söcret") as client:
        assert client.post("/predict", json={"inputs": "a"}).status_code == 401
        wrong = {"Authorization": "Bearer other"}
        assert client.post("/predict", json={"inputs": "a"}, headers=wrong).status_code == 401
        right = {"Authorization": "Bearer söcret".encode()}
        assert client.post("/predict", json={"inputs": "a"}, headers=right).status_code == 200
        assert client.get("/metrics").status_code == 401
        assert client.get("/health").status_code == 200


def test_other_origins_may_ask_only_where_that_is_wanted(classifier, client):
    asking = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in client.options("/predict", headers=asking).headers
    with client_for(classifier, cors=["https://app.example"], api_key="k") as allowed:
        answer = allowed.options("/predict", headers=asking)
    assert answer.headers["access-control-allow-origin"] == "https://app.example"


def test_a_page_of_another_origin_may_not_reload(classifier, client):
    for origin, status in (("http://testserver", 200), ("https://other.example", 403), ("null", 403), (None, 200)):
        found = client.post("/reload", headers={} if origin is None else {"Origin": origin})
        assert found.status_code == status, origin
    refused = client.post("/reload", headers={"Origin": "https://other.example"}).json()["error"]
    assert refused == "a page of https://other.example may not reload this server; --cors lets it"
    for cors in (["https://app.example"], ["*"]):
        with client_for(classifier, cors=cors) as allowed:
            assert allowed.post("/reload", headers={"Origin": "https://app.example"}).status_code == 200


def test_a_run_that_offers_something_else_is_not_reloaded(classifier, tmp_path):
    from fastformer.export.exporting import export

    pytest.importorskip("onnxruntime")
    run = tmp_path / "run"
    shutil.copytree(classifier, run)
    with client_for(run) as client:
        export(classifier, tmp_path / "onnx", show_progress=False)
        shutil.rmtree(run)
        shutil.copytree(tmp_path / "onnx", run)
        refused = client.post("/reload")
        assert (refused.status_code, "has other routes now (explain)" in refused.json()["error"]) == (409, True)
        assert client.post("/explain", json={"text": "a soup"}).status_code == 200
        assert client.post("/predict", json={"inputs": "a soup"}).status_code == 200


def test_the_short_way_answers_as_the_long_one(client):
    """A route that is asked directly, and the same through FastAPI, which a body in UTF-16 is left to."""
    for path in ("/predict", "/models/model/predict", "/embed"):
        for inputs in (TEXTS[0], TEXTS, "süß \ud83c\udf6f", {"text": "a cat"}, 3, [], [["a", "b"]]):
            body = json.dumps({"inputs": inputs, "unknown": 1})
            kind = {"content-type": "application/json"}
            short, long = (client.post(path, content=body.encode(code), headers=kind) for code in ("utf-8", "utf-16"))
            assert (short.status_code, short.headers) == (long.status_code, long.headers)
            assert short.content == long.content


def test_what_is_no_json_is_not_taken_for_it(client):
    content = json.dumps({"inputs": "a cat"})
    for kind, status in (
        ("application/json; charset=utf-8", 200),
        ("application/problem+json", 200),
        ("text/plain", 422),
    ):
        assert client.post("/predict", content=content, headers={"content-type": kind}).status_code == status


@pytest.mark.parametrize(
    ("task", "route", "field"),
    [
        ("loudness", "/predict", "text"),
        ("summarization", "/predict", "article"),
        ("summarization", "/embed", "article"),
        ("conversion", "/predict", "behaviors"),
        ("conversion", "/predict", "ad"),
        ("recommendation", "/embed", "title"),
    ],
)
def test_a_text_in_an_object_that_would_be_cut_is_refused(trained, task, route, field):
    long = "a hammer and the saw " * 400
    with client_for(trained(task)) as client:
        about = client.get("/info").json()
        given = about["sample"] if task == "conversion" else {}
        body = {"inputs": [given | {field: [long] if field == "behaviors" else long}]}
        refused = client.post(route, json=body)
        assert refused.status_code == 422
        assert f"a text of more than {about['max_input_length']:,} tokens" in refused.json()["error"]
        assert client.post(route, json=body | {"truncate": True}).status_code == 200


def test_who_sends_too_long_a_text_does_not_spoil_the_batch_of_others(trained):
    """Both may wait for the model's turn together."""
    with client_for(trained("loudness"), limits=Limits(wait=0.2)) as client, ThreadPoolExecutor(2) as asking:
        found = [asking.submit(client.post, "/predict", json={"inputs": one}) for one in ("hush " * 40, "hush")]
        assert [one.result().status_code for one in found] == [422, 200]


@pytest.mark.parametrize("task", ["classification", "encoder", "summarization", "masked-words"])
def test_an_object_without_the_field_that_is_read_is_refused(trained, task):
    with client_for(trained(task)) as client:
        for route in ("/predict", "/embed"):
            wrong = client.post(route, json={"inputs": [{"text": "a soup", "id": 1}, {"body": "a hammer"}]})
            assert wrong.status_code == 422
            assert wrong.json()["error"].startswith("example 2: no column 'text'; columns found: body")
            rest = client.post(route, json={"inputs": [{"text": "a soup", "id": 1}, {"text": "a"}, {"text": None}]})
            assert (rest.status_code, len(rest.json())) == (200, 3)


def test_top_k_and_threshold_count_in_both_forms(client):
    def ask(**body):
        return client.post("/predict", json={"inputs": TEXTS[0], **body}).json()

    every = ask()
    whole = ask(full=True, parameters={"top_k": 1})
    assert whole["probabilities"] == {every[0]["label"]: every[0]["score"]}
    assert whole["label"] == every[0]["label"]
    least = (every[0]["score"] + every[1]["score"]) / 2
    assert ask(parameters={"threshold": least}) == every[:1]
    assert ask(parameters={"threshold": 1}) == []


def test_what_is_not_offered_is_refused(client, trained):
    for route in ("/predict", "/embed"):
        assert client.post(route, json={"inputs": "a", "truncation_direction": "Right"}).status_code == 200
        wrong = client.post(route, json={"inputs": "a", "truncation_direction": "left"})
        assert wrong.status_code == 422
        assert wrong.json()["error"] == "`truncation_direction`: Input should be 'right' or 'Right'"
    with client_for(trained("loudness")) as other:
        wrong = other.post("/predict", json={"inputs": "a", "parameters": {"top_k": 1}})
    assert (wrong.status_code, "does not answer with labels" in wrong.json()["error"]) == (422, True)


def test_fields_of_any_answer_are_outputs():
    found = outputs_of([{"rank": 1}, {"rank": 2, "name": "a"}])
    assert [(one["name"], one["data"]) for one in found] == [("rank", [1.0, 2.0]), ("name", ["null", '"a"'])]


@pytest.mark.parametrize("shape", [[-1], [-1, -1], [1] * 9, [10**4000] * 1000])
def test_a_shape_that_is_none_is_refused_before_it_is_reckoned(client, shape):
    tensor = {"name": "text", "shape": shape, "datatype": "BYTES", "data": ["a"]}
    wrong = client.post("/v2/models/model/infer", json={"inputs": [tensor]})
    assert (wrong.status_code, wrong.json()["error"].startswith("the shape has ")) == (422, True)


def test_more_tokens_than_an_answer_should_have_are_refused(client, monkeypatch):
    monkeypatch.setattr(tei, "MOST_TOKENS", 1000)
    assert len(client.post("/tokenize", json={"inputs": "(" * 1000}).json()[0]) == 1000
    for inputs in ("(" * 1001, "(" * 1_000_000, ["( " * 600] * 2):
        refused = client.post("/tokenize", json={"inputs": inputs})
        assert (refused.status_code, "more than 1,000 tokens" in refused.json()["error"]) == (413, True)


def test_texts_are_tokenized_in_the_models_turn_and_only_as_far_as_it_reads(client, monkeypatch):
    seen = []

    def noting(tokenizer, texts, most):
        seen.append((threading.current_thread().name, most))
        return encode_batch(tokenizer, texts, most)

    monkeypatch.setattr(serve_model, "encode_batch", noting)
    longest = client.get("/info").json()["max_input_length"]
    long = "( " * max(longest, 500)
    client.post("/predict", json={"inputs": long})
    client.post("/v1/embeddings", json={"model": "model", "input": "a"})
    assert {name for name, _ in seen} == {"model model"}
    assert {most for _, most in seen} <= {longest, longest + 1}
    assert longest in {most for _, most in seen}


@pytest.mark.parametrize("half", [b"\\ud83d", b"\\udf6f x", b"a \\\\ \\ud83d"])
def test_half_a_character_is_answered_as_any_other(client, half):
    kind = {"content-type": "application/json"}
    tensor = b'{"name": "%s", "shape": [1], "datatype": "BYTES", "data": ["%s"]}'
    asked = {
        "/predict": b'{"inputs": "%s"}' % half,
        "/embed": b'{"inputs": [{"text": "%s", "%s": 1}]}' % (half, half),
        "/rerank": b'{"query": "%s", "texts": ["%s"], "return_text": true}' % (half, half),
        "/tokenize": b'{"inputs": "%s"}' % half,
        "/explain": b'{"text": "%s"}' % half,
        "/v1/embeddings": b'{"model": "model", "input": "%s"}' % half,
        "/v2/models/model/infer": b'{"id": "%s", "inputs": [%s]}' % (half, tensor % (b"text", half)),
    }
    for path, body in asked.items():
        assert client.post(path, content=body, headers=kind).status_code == 200, path
    inner = tensor % (b"json", json.dumps(f'{{"text": "{half.decode()}"}}')[1:-1].encode())
    assert client.post("/v2/models/model/infer", content=b'{"inputs": [%s]}' % inner, headers=kind).status_code == 200
    other = client.post("/v1/embeddings", content=b'{"model": "%s", "input": "a"}' % half, headers=kind)
    assert other.status_code == 404


def test_what_is_nested_too_deeply_is_refused(client):
    for depth in (500, 900, 5_000, 1_000_000):
        deep = "[" * depth + "]" * depth
        for path, body in (
            ("/predict", f'{{"inputs": [{{"text": {deep}}}]}}'),
            ("/tokenize", f'{{"inputs": {deep}}}'),
            ("/explain", f'{{"text": {deep}}}'),
        ):
            found = client.post(path, content=body, headers={"content-type": "application/json"})
            assert found.status_code in (400, 422), (path, depth)
            assert "\n" not in found.json()["error"]
