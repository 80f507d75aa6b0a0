"""A server under load, measured: with real tools, on a small run, for seconds."""

import shutil

import pytest

from fastformer.bench.serving import serving, texts_of_words
from fastformer.runs.folder import open_run
from fastformer.tasks.verbs import train

from ..tasks.samples import SAMPLES

tools = pytest.mark.skipif(
    shutil.which("wrk") is None or shutil.which("hey") is None, reason="measures with wrk and hey: apt-get install both"
)


def test_texts_have_so_many_words():
    texts = texts_of_words(50, 20)
    assert {len(text.split()) for text in texts} == {50}
    assert len(set(texts)) == 20


@tools
@pytest.mark.slow
def test_every_row_is_measured(tmp_path):
    sample = SAMPLES["classification"](tmp_path)
    train("classification", sample.train, output=tmp_path / "run", **sample.options, show_progress=False)
    options = {"clients": (1, 8), "words": (20,), "seconds": 1, "overload_seconds": 3, "threads": 1}
    result = serving(open_run(tmp_path / "run"), tmp_path / "out", **options, show_progress=False)
    assert len(result["rows"]) == 2 + 2 * 2
    assert all(row["requests_per_second"] > 0 for row in result["rows"])
    assert not any(row.get("failed") for row in result["rows"])
    assert set(result["half_load"]["statuses"]) == {"200"}
    assert set(result["twice_the_capacity"]["statuses"]) <= {"200", "429"}
    assert "wrong" not in result["twice_the_capacity"]["looked_at"]
    assert result["twice_the_capacity"]["answers_afterwards"]
    assert all((tmp_path / "out" / name).stat().st_size for name in ("serving.json", "serving.png"))
