"""Requests that run together: nobody notices, nobody pays for another's mistake, and too many are refused."""

import asyncio
import threading

import pytest
from fastapi.testclient import TestClient

from fastformer.errors import UserError
from fastformer.serve import Limits, create_app
from fastformer.serve.batching import Batcher
from fastformer.serve.failures import Failure
from fastformer.serve.metrics import Metrics


class Model:
    """Doubles numbers, notes its batches, and refuses 13; `gate` holds it."""

    def __init__(self):
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.busy = threading.Event()

    def __call__(self, numbers: list[int]) -> list[int]:
        self.busy.set()
        assert self.gate.wait(10)
        self.batches.append(numbers)
        if 13 in numbers:
            raise UserError("13 brings bad luck")
        return [2 * number for number in numbers]


@pytest.fixture
def model():
    return Model()


def make(**limits):
    return Batcher("m", Limits(**{"wait": 0.02, **limits}), Metrics())


async def hold(batcher, model):
    """Keep the model busy: a task that waits in it."""
    model.gate.clear()
    task = asyncio.create_task(batcher.submit("first", model, [0], 1))
    await asyncio.to_thread(model.busy.wait, 10)
    return task


def test_requests_that_arrive_together_run_together(model):
    async def main():
        batcher = make()
        found = await asyncio.gather(*(batcher.submit("double", model, [n, n + 1], 2) for n in range(10)))
        assert found == [[2 * n, 2 * n + 2] for n in range(10)]

    asyncio.run(main())
    assert len(model.batches) == 1


def test_a_batch_has_so_many_tokens_and_one_kind_and_nobody_overtakes(model):
    async def main():
        batcher = make(batch_tokens=10)
        first = await hold(batcher, model)
        asked = [
            ("a", 1, 4),
            ("a", 2, 4),
            ("b", 3, 4),
            ("a", 4, 4),
            ("a", 5, 1),
            (None, 6, 1),
            (None, 7, 1),
            ("a", 8, 99),
        ]
        others = [asyncio.create_task(batcher.submit(kind, model, [n], tokens)) for kind, n, tokens in asked]
        await asyncio.sleep(0.02)
        model.gate.set()
        assert await asyncio.gather(first, *others) == [[0], *([2 * n] for _, n, _ in asked)]

    asyncio.run(main())
    assert model.batches == [[0], [1, 2], [3], [4, 5], [6], [7], [8]]


def test_a_mistake_meets_whoever_made_it(model):
    async def main():
        batcher = make()
        asked = (batcher.submit("double", model, [n], 1) for n in (1, 13, 2))
        return await asyncio.gather(*asked, return_exceptions=True)

    one, mistake, two = asyncio.run(main())
    assert (one, two) == ([2], [4])
    assert str(mistake) == "13 brings bad luck"


def test_too_many_are_refused_with_a_time_to_come_back(model):
    async def main():
        batcher = make(queue=2)
        held = await hold(batcher, model)
        waiting = [asyncio.create_task(batcher.submit("double", model, [n], 1)) for n in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(Failure) as refused:
            await batcher.submit("double", model, [3], 1)
        assert (refused.value.status, refused.value.kind) == (429, "Overloaded")
        assert int(refused.value.headers["Retry-After"]) >= 1
        waiting[0].cancel()  # whoever goes makes room
        await asyncio.sleep(0)
        last = asyncio.create_task(batcher.submit("double", model, [4], 1))
        await asyncio.sleep(0)
        model.gate.set()
        assert await asyncio.gather(held, waiting[1], last) == [[0], [4], [8]]

    asyncio.run(main())
    assert [n for batch in model.batches for n in batch] == [0, 2, 4]


def test_a_queue_of_long_texts_is_full_too(model):
    async def main():
        batcher = make(queue_tokens=100)
        held = await hold(batcher, model)
        waiting = asyncio.create_task(batcher.submit("double", model, [1], 1000))  # alone, any length is taken
        await asyncio.sleep(0)
        with pytest.raises(Failure):
            await batcher.submit("double", model, [2], 1)
        model.gate.set()
        assert await asyncio.gather(held, waiting) == [[0], [2]]

    asyncio.run(main())


def test_once_it_is_closed_it_finishes_what_it_has(model):
    async def main():
        batcher = make()
        held = await hold(batcher, model)
        waiting = asyncio.create_task(batcher.submit("double", model, [1], 1))
        await asyncio.sleep(0)
        batcher.close()
        with pytest.raises(Failure, match="being stopped"):
            await batcher.submit("double", model, [2], 1)
        model.gate.set()
        assert await asyncio.gather(held, waiting) == [[0], [2]]

    asyncio.run(main())


def test_company_changes_no_answer(classifier):
    """Long and short texts, mistakes and other columns at once: each answer is what it is alone."""
    bodies = [{"inputs": "the soup and a bread " * n} for n in range(1, 30, 4)]
    bodies += [
        {"inputs": [{"title": "a cat"}]},
        {"inputs": [{"body": "the saw", "size": 1}]},
        {"inputs": ["", "a saw"]},
    ]
    with TestClient(create_app({"model": classifier}, limits=Limits(wait=0))) as client:
        alone = [client.post("/predict", json=body) for body in bodies]
    with TestClient(create_app({"model": classifier}, limits=Limits(wait=0.05))) as client:
        together: dict[int, object] = {}

        def ask(number):
            together[number] = client.post("/predict", json=bodies[number])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        batches = client.get("/metrics").text
    assert 'fastformer_batch_examples_bucket{le="4.0",model="model"}' in batches
    for number, expected in enumerate(alone):
        found = together[number]
        assert found.status_code == expected.status_code
        if expected.status_code == 200:
            assert flat(found.json()) == pytest.approx(flat(expected.json()), abs=2e-5)


def flat(answers):
    """Probabilities by label, of one answer or of several."""
    many = answers if isinstance(answers[0], list) else [answers]
    return {(place, one["label"]): one["score"] for place, answer in enumerate(many) for one in answer}
