"""The trainer's own: what it shows while it works."""

import time

from fastformer.training import _Watch


def test_a_task_may_score_by_metrics_that_nobody_knows(tmp_path):
    watch, notes = _Watch(False, tmp_path, time.monotonic()), []
    watch.advance = lambda count, note: notes.append(note)
    watch.on_evaluate(None, None, None, metrics={"eval_hits": 0.25})
    assert not notes
    watch.on_evaluate(None, None, None, metrics={"eval_hits": 0.25, "eval_auc": 0.5})
    assert notes == [", validation auc 0.500"]
