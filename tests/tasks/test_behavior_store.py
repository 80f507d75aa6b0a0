"""The behaviour store answers as the model does on whole rows, and encodes no text twice."""

import io
import json
import random
import subprocess
import sys
import threading

import pytest
import torch

from fastformer.errors import UserError
from fastformer.runs.folder import open_run
from fastformer.tasks.conversion import BehaviorStore
from fastformer.tasks.conversion.log import BehaviorLog
from fastformer.tasks.conversion.scoring import encode_lists
from fastformer.tasks.verbs import predict, train

from .conftest import write_jsonl
from .conversions import TINY, make_events

ROWS = make_events(12, 7)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    options = {"preset": TINY, "epochs": 1, "numeric": ["price"], "categorical": ["device"], "show_progress": False}
    train("conversion", write_jsonl(folder / "train.jsonl", make_events(100, 0)), output=folder / "run", **options)
    return folder / "run"


@pytest.fixture
def store(run):
    return BehaviorStore.open(run)


def side(row):
    return {"price": row["price"], "device": row["device"]}


def test_it_equals_the_model_on_whole_rows(store, run, tmp_path):
    rows = [*ROWS, {**ROWS[0], "behaviors": []}]
    out = io.StringIO()
    predict(open_run(run), write_jsonl(tmp_path / "rows.jsonl", rows), out, show_progress=False)
    expected = [json.loads(line)["probability"] for line in out.getvalue().splitlines()]
    for number, row in enumerate(rows):
        for text in row["behaviors"]:  # up to seven, of which the model reads five
            store.add(f"user {number}", text)
    found = [store.score(f"user {number}", row["ad"], side(row)) for number, row in enumerate(rows)]
    assert found == pytest.approx(expected, abs=1e-5)
    assert len({round(chance, 4) for chance in found}) > 5


def test_it_equals_one_forward_pass(store):
    """`forward` itself, texts and all, not the path that `predict` shares with the store."""
    row, model, tokenizer = ROWS[3], store.model, store.predictor.items.tokenizer
    texts = [*row["behaviors"][-5:], row["ad"]]
    inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    count = len(texts) - 1
    features = store.predictor.features
    event = store._event(row["ad"], side(row))
    with torch.no_grad():
        logit = model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            behaviors=torch.arange(count)[None],
            behavior_mask=torch.ones(1, count, dtype=torch.long),
            ads=torch.tensor([count]),
            **features.of_events([event]),
        ).logits
    store.add("ann", *row["behaviors"])
    assert store.score("ann", row["ad"], side(row)) == pytest.approx(logit.sigmoid().item(), abs=1e-5)


def test_only_new_texts_are_encoded(store):
    items = store.predictor.items
    store.add("ann", "bought a cat", "bought a dog")
    assert items.encoded == 2
    before = store.score("ann", "bread for sale")
    assert items.encoded == 3
    store.add("ann", "bought a cat")
    store.add("bob", "bought a dog")
    assert store.score("ann", "bread for sale") != before
    assert items.encoded == 3


def test_several_ads_at_once(store):
    store.add("ann", "bought a cat")
    ads = ["otter for sale", "soup for sale"]
    one_by_one = [store.score("ann", ad) for ad in ads]
    assert store.score_all("ann", ads) == pytest.approx(one_by_one, abs=1e-6)
    assert store.score_all("ann", []) == []


def test_a_list_where_a_text_should_be_is_one_line(store):
    for call in (
        lambda: store.add("ann", ["bought a cat", "bought a dog"]),
        lambda: store.score("ann", ["otter for sale"]),
        lambda: store.score_all("ann", ["otter for sale", None]),
    ):
        with pytest.raises(UserError, match="must be a string, not a "):
            call()
    for call in (lambda: store.add(["ann"], "bought a cat"), lambda: store.score(["ann"], "otter for sale")):
        with pytest.raises(UserError, match="a user must be a name or a number, not a list"):
            call()
    assert not store.users


def test_memory_is_bounded(run):
    store = BehaviorStore.open(run, max_items=3, max_users=2)
    for number in range(10):
        store.add(f"user {number}", f"text {number}")
        store.add("ann", "bought a cat")
    assert list(store.users) == ["user 9", "ann"]
    assert len(store.users["ann"].behaviors) == 5
    assert list(store.predictor.items.kept) == ["text 8", "text 9", "bought a cat"]
    store.score("user 9", "soup for sale")  # whoever is asked for is met, too
    assert list(store.users) == ["ann", "user 9"]
    store.add("bob", "bought a dog")
    assert list(store.users) == ["user 9", "bob"]
    store.score("nobody", "soup for sale")
    assert "nobody" not in store.users
    store.forget("bob")
    assert list(store.users) == ["user 9"]


def test_items_are_saved_and_loaded(store, run, tmp_path):
    store.add("ann", "bought a cat", "bought a dog")
    expected = store.score("ann", "soup for sale")
    store.save_items(tmp_path / "items")
    assert sorted(path.name for path in (tmp_path / "items").iterdir()) == ["items.safetensors"]
    again = BehaviorStore.open(run)
    assert again.load_items(tmp_path / "items") == 3
    again.add("ann", "bought a cat", "bought a dog")
    assert again.score("ann", "soup for sale") == pytest.approx(expected, abs=1e-6)
    assert again.predictor.items.encoded == 0


def test_items_of_another_model_are_refused(store, run, tmp_path):
    store.add("ann", "bought a cat")
    store.save_items(tmp_path)
    other = BehaviorStore.open(run)
    with torch.no_grad():
        other.model.get_input_embeddings().weight[3, 0] += 1
    with pytest.raises(UserError, match="another model's"):
        other.load_items(tmp_path)
    (tmp_path / "items.safetensors").write_bytes(b"{}")
    with pytest.raises(UserError, match="cannot be read"):
        store.load_items(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        store.load_items(tmp_path / "nowhere")


def test_unknown_side_features_are_refused(store):
    with pytest.raises(UserError, match="no side feature 'prize'; the model was trained with: price, device"):
        store.score("ann", "soup for sale", {"prize": 3})


def expected_vector(store, user):
    return encode_lists(store.model, [torch.stack([*store.users[user].behaviors])])[0]


def test_what_happens_while_a_vector_is_made_is_not_forgotten(store, monkeypatch):
    store.add("ann", "bought a cat")

    def encode_slowly(*args):
        monkeypatch.undo()
        other = threading.Thread(target=store.add, args=("ann", "bought some bread"))
        other.start()
        other.join()
        return encode_lists(*args)

    monkeypatch.setattr("fastformer.tasks.conversion.store.encode_lists", encode_slowly)
    before = store.vector("ann")  # of the cat alone: it was asked for first
    assert not torch.equal(store.vector("ann"), before)
    torch.testing.assert_close(store.vector("ann"), expected_vector(store, "ann"))


@pytest.mark.parametrize("limits", [{}, {"max_items": 5, "max_users": 3}], ids=["roomy", "tight"])
def test_eight_threads_share_a_store(run, limits):
    store = BehaviorStore.open(run, **limits)
    users, words = [f"user {number}" for number in range(6)], [row["ad"] for row in ROWS]
    before, errors = sys.getswitchinterval(), []
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can

    def work(seed):
        pick = random.Random(seed)
        try:
            for _ in range(60):
                user, what = pick.choice(users), pick.random()
                if what < 0.5:
                    store.add(user, *pick.choices(words, k=2))
                elif what < 0.95:
                    assert 0 <= store.score(user, pick.choice(words)) <= 1
                else:
                    store.forget(user)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors
    assert len(store.users) <= limits.get("max_users", len(users))
    assert len(store.predictor.items.kept) <= limits.get("max_items", len(words))
    for user in [*store.users]:
        torch.testing.assert_close(store.vector(user), expected_vector(store, user))


def test_a_log_brings_back_every_user(run, tmp_path):
    kept = {"log": tmp_path / "log" / "behaviors.sqlite"}
    store = BehaviorStore.open(run, max_users=1, **kept)
    for number, row in enumerate(ROWS):
        for text in row["behaviors"]:
            store.add(f"user {number}", text)
    asked = [(f"user {number}", row["ad"], side(row)) for number, row in enumerate(ROWS)]
    found = [store.score(*one) for one in asked]  # all but the last had left memory
    again = BehaviorStore.open(run, **kept)
    whole = BehaviorStore.open(run)
    for number, row in enumerate(ROWS):
        whole.add(f"user {number}", *row["behaviors"])
    assert found == pytest.approx([whole.score(*one) for one in asked], abs=1e-6)
    assert [again.score(*one) for one in asked] == pytest.approx(found, abs=1e-6)
    assert len(again.log.of("user 0")) <= again.model.config.max_behaviors
    again.forget("user 0")
    assert BehaviorStore.open(run, **kept).log.of("user 0") == []


def test_what_is_added_anew_takes_the_place_of_all_or_nothing_does(run, tmp_path):
    log = tmp_path / "behaviors.sqlite"
    store = BehaviorStore.open(run, log=log)
    store.add("ann", *ROWS[0]["behaviors"])
    before = store.score("ann", "soup"), store.log.of("ann")
    with pytest.raises(UnicodeEncodeError):  # which SQLite cannot keep
        store.add("ann", "\ud83d", anew=True)
    assert (store.score("ann", "soup"), store.log.of("ann")) == before
    store.add("ann", "the soup", anew=True)
    assert store.log.of("ann") == BehaviorStore.open(run, log=log).log.of("ann") == ["the soup"]
    other = BehaviorStore.open(run)
    other.add("ann", "a saw")
    other.add("ann", "the soup", anew=True)
    assert other.score("ann", "soup") == pytest.approx(store.score("ann", "soup"), abs=1e-6)
    assert store.score("ann", "soup") != before[0]


def test_threads_that_share_a_log_lose_and_double_nothing(run, tmp_path):
    for turn in range(3):
        path = tmp_path / f"{turn}.sqlite"
        BehaviorStore.open(run, log=path).add("ann", "soup")
        store = BehaviorStore.open(run, log=path)  # knows ann from the log alone
        threads = [threading.Thread(target=store.add, args=("ann", f"bread {number}")) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        texts = store.log.of("ann")
        assert texts[0] == "soup"
        assert sorted(texts[1:]) == [f"bread {number}" for number in range(4)]
        vectors = store.predictor.items(texts)
        torch.testing.assert_close(
            torch.stack([*store.users["ann"].behaviors]), torch.stack([vectors[t] for t in texts])
        )


def test_what_was_added_survives_a_kill(tmp_path):
    path = tmp_path / "behaviors.sqlite"
    code = (
        "import os, sys; from fastformer.tasks.conversion.log import BehaviorLog; log = BehaviorLog(sys.argv[1], 3)\n"
        "for number in range(5): log.add('ann', [f'did {number}'])\n"
        "log._database.execute('BEGIN'); log._database.execute(\"DELETE FROM behaviors\"); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    assert BehaviorLog(path, 3).of("ann") == ["did 2", "did 3", "did 4"]
    (tmp_path / "broken.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(UserError, match="cannot be used to keep behaviours"):
        BehaviorLog(tmp_path / "broken.sqlite", 3)
