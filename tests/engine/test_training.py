"""The trainer's own: what it shows while it works."""

import time

import torch

from fastformer.engine.training import _Watch


def test_the_bar_shows_the_score_that_a_task_names_where_there_is_one(tmp_path):
    watch, notes = _Watch(False, tmp_path, time.monotonic(), "hits"), []
    watch.advance = lambda count, note: notes.append(note)
    watch.see(torch.tensor(2.0))
    watch.see(torch.tensor(1.0))
    watch.on_evaluate(None, None, None, metrics={"eval_auc": 0.5})
    watch.on_evaluate(None, None, None, metrics={"eval_hits": 0.25, "eval_auc": 0.5})
    assert notes == ["loss 1.900", "loss 1.900, validation hits 0.250"]
