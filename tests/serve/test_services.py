"""What tasks do for whoever asks: explain, recommend, score, summarize."""

import json
import threading

import pytest
from fastapi.testclient import TestClient

from fastformer.serve import Limits, create_app
from fastformer.tasks.conversion import serving as scoring_routes
from fastformer.tasks.verbs import load


def serving(run, **options):
    return TestClient(create_app({"model": run}, **options))


def test_explain_shades_the_pieces_of_the_text(classifier):
    text = "The soup, with bread"
    with serving(classifier) as client:
        found = client.post("/explain", json={"text": text}).json()
        page = client.post("/explain", json={"text": text, "html": True})
        other = client.post("/explain", json={"text": text, "label": "tool"}).json()
        wrong = client.post("/explain", json={"text": text, "label": "nothing"})
        long = client.post("/explain", json={"text": "a" * 100_001})
        typo = client.post("/explain", json={"text": text, "labels": "tool"})
    assert found["explained"] == found["prediction"] == "food"
    assert [text[start:end] for start, end, _ in found["pieces"]] == ["The", "soup", ",", "with", "bread"]
    effects = {text[start:end]: effect for start, end, effect in found["pieces"]}
    assert max(effects, key=effects.get) in ("soup", "bread")
    assert other["explained"] == "tool"
    assert page.headers["content-type"].startswith("text/html")
    assert "<title>food" in page.text
    assert wrong.status_code == 422
    assert "no label 'nothing'" in wrong.json()["error"]
    assert (long.status_code, typo.status_code) == (422, 422)
    assert "labels" in typo.json()["error"]


def test_recommendations_follow_what_was_read(trained):
    run = trained("recommendation")
    with serving(run) as client:
        some = client.post("/articles", json={"query": "", "top": 5}).json()
        assert [one["id"] for one in some] == ["N0", "N1", "N2", "N3", "N4"]
        words = client.post("/articles", json={"query": f"NEWS {some[0]['title'].split()[1]}"}).json()
        assert some[0] in words
        history = [one["id"] for one in some[:3]]
        found = client.post("/recommend", json={"history": history, "top": 4}).json()
        assert found == load(run).recommend(history, 4)
        assert not {one["id"] for one in found} & set(history)
        by_text = client.post("/recommend", json={"texts": [one["title"] for one in some[:3]], "top": 40}).json()
        by_id = client.post("/recommend", json={"history": history, "top": 40}).json()
        scores = {one["id"]: one["score"] for one in by_text}
        assert [scores[one["id"]] for one in by_id] == pytest.approx([one["score"] for one in by_id], abs=2e-4)
        assert client.post("/recommend", json={"history": ["X1"]}).status_code == 422
        assert client.post("/predict", json={"inputs": "a text"}).status_code == 422
        ranks = client.post("/predict", json={"inputs": [{"history": history, "candidates": ["N5", "N30"]}]}).json()
        assert sorted(ranks[0]["ranks"]) == [1, 2]
        assert client.post("/embed", json={"inputs": "a title"}).status_code == 200


def test_behaviours_are_there_again_after_a_restart(trained, tmp_path):
    run = trained("conversion")
    side = {"price": 3.0, "device": "phone"}
    did = ["the soup", "a bread", "the cheese"]
    with serving(run, state=tmp_path / "state") as client:
        assert client.post("/behaviors", json={"user": "ann", "add": did[:2]}).json()["behaviors"] == did[:2]
        assert client.post("/behaviors", json={"user": "ann", "add": did[2:]}).json()["behaviors"] == did
        before = client.post("/score", json={"user": "ann", "ads": ["soup", "saw"], "side": side}).json()
        assert client.post("/reload", json={}).status_code == 200
        assert client.post("/score", json={"user": "ann", "ads": ["soup", "saw"], "side": side}).json() == before
    with serving(run, state=tmp_path / "state") as client:
        after = client.post("/score", json={"user": "ann", "ads": ["soup", "saw"], "side": side, "moved": True}).json()
        by_hand = client.post("/score", json={"behaviors": did, "ads": ["soup", "saw"], "side": side}).json()
        client.post("/behaviors", json={"user": "ann", "forget": True})
        assert client.post("/behaviors", json={"user": "ann"}).json()["behaviors"] == []
        assert client.post("/score", json={"ads": ["soup"]}).status_code == 422
        assert "price" in client.post("/score", json={"user": "b", "ads": ["a"], "side": {"prize": 1}}).json()["error"]
    expected = [one["probability"] for one in before]
    assert [one["probability"] for one in after] == expected
    assert [one["probability"] for one in by_hand] == pytest.approx(expected, abs=2e-6)
    assert [one["behavior"] for one in after[0]["moved"]] == did
    alone = load(run).predict([{"behaviors": did[1:], "ad": "soup", **side}])
    assert after[0]["moved"][0]["change"] == pytest.approx(expected[0] - next(alone)["probability"], abs=2e-6)


def test_half_a_character_costs_nobody_a_history(trained):
    with serving(trained("conversion")) as client:
        client.post("/behaviors", json={"user": "ann", "add": ["a soup"]})
        body = b'{"user": "ann", "forget": true, "add": ["\\ud83d"]}'
        found = client.post("/behaviors", content=body, headers={"content-type": "application/json"})
        assert (found.status_code, found.json()["behaviors"]) == (200, ["?"])
        assert client.post("/behaviors", json={"user": "ann"}).json()["behaviors"] == ["?"]


def test_what_one_request_may_ask_for_is_bounded(trained, monkeypatch):
    monkeypatch.setattr(scoring_routes, "MOST_CHANGES", 6)
    with serving(trained("conversion")) as client:
        body = {"behaviors": ["a soup", "a saw"], "ads": ["a"] * 3, "moved": True}
        assert client.post("/score", json=body).status_code == 200
        more = client.post("/score", json=body | {"ads": ["a"] * 4})
        assert client.post("/score", json=body | {"ads": ["a"] * 4, "moved": False}).status_code == 200
    assert (more.status_code, "4 ads by 2 behaviours are 8 changes, and 6 are the most" in more.text) == (422, True)
    with serving(trained("recommendation")) as client:
        [first] = client.post("/articles", json={"query": "", "top": 1}).json()
        assert first in client.post("/articles", json={"query": f"{first['title']} " * 1000, "top": 1000}).json()
        more = client.post("/articles", json={"query": " ".join(map(str, range(33)))})
    assert (more.status_code, "33 different words, and 32 are the most" in more.text) == (422, True)


def test_a_summary_can_be_watched(trained):
    run = trained("summarization")
    article = "Today Clara bought a boat. Then it rained. It was late. Nobody came."
    [expected] = load(run).predict([article])
    with serving(run) as client:
        found = client.post("/summarize", json={"text": article}).json()
        assert found["summary"] == expected["summary"]
        assert found["lead"].splitlines() == ["Today Clara bought a boat.", "Then it rained.", "It was late."]
        streamed = client.post("/summarize", json={"text": article, "stream": True})
        assert streamed.headers["content-type"].startswith("text/event-stream")
        events = [event.split("\n") for event in streamed.text.strip().split("\n\n")]
        kinds = [kind for kind, _ in events]
        assert set(kinds[:-1]) == {"event: part"}
        assert kinds[-1] == "event: done"
        assert len(events) > 3
        assert json.loads(events[-1][1].removeprefix("data: ")) == found
        assert client.post("/predict", json={"inputs": [article]}).json() == [expected]
        assert client.post("/summarize", json={"text": "", "stream": True}).text.startswith("event: done")


def test_a_full_server_refuses_a_stream_with_its_own_status(trained):
    with serving(trained("summarization"), limits=Limits(queue=1)) as client:
        found = []
        body = {"text": "Today Clara bought a boat. " * 50, "beams": 8, "stream": True}
        threads = [
            threading.Thread(target=lambda: found.append(client.post("/summarize", json=body))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {one.status_code for one in found} == {200, 429}
    assert all("retry-after" in one.headers for one in found if one.status_code == 429)


def test_masked_words_are_served(trained):
    with serving(trained("masked-words")) as client:
        found = client.post("/predict", json={"inputs": "the [MASK] and a [MASK]"}).json()
    assert len(found["blanks"]) == 2
