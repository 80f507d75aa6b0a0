"""Who converts on which ad: train on simulated events, then serve from a store that never reads a history twice."""

import tempfile
import time
from pathlib import Path

from fastformer import ConversionPredictor
from fastformer.tasks.conversion import BehaviorStore

with tempfile.TemporaryDirectory() as folder:
    run = Path(folder) / "ads"
    model = ConversionPredictor(numeric=["price"], categorical=["device"]).fit("builtin")
    found = model.evaluate("builtin:test")
    scores = ", ".join(f"{name} {value:.3f}" for name, value in found.items() if isinstance(value, float))
    print(f"on {found['rows']:,} test events: {scores}")
    model.save(run)

    store = BehaviorStore.open(run)
    ads = ("A minimum spanning tree.", "Expand a polynomial.", "Fill missing values of a column.")
    behaviors = {
        "ann": ["Draw a graph.", "Shortest paths between all nodes.", "The degree of every node."],
        "bob": ["Simplify an expression.", "The roots of a polynomial.", "Differentiate a function."],
    }
    for user, done in behaviors.items():
        store.add(user, *done)
        for ad in ads:
            start = time.perf_counter()
            chance = store.score(user, ad, {"price": 9.5, "device": "phone"})
            print(f"  {user}  {ad:<34} {chance:.1%}  in {1e3 * (time.perf_counter() - start):.1f} ms")
