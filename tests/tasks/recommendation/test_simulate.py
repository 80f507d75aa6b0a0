"""Simulated clicks: MIND's layout, the same for a seed, and nothing of the user's overwritten."""

import pytest

from fastformer.errors import UserError
from fastformer.tasks.recommendation import simulate
from fastformer.tasks.recommendation.mind import read_mind
from fastformer.tasks.recommendation.simulate import CANDIDATES, IMPRESSIONS, SPLITS, simulate_clicks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield simulate_clicks(tmp_path_factory.mktemp("simulated"), users=40, seed=3)


def test_three_folders_as_mind_has_them(folder):
    found = {split: read_mind(folder / split) for split in SPLITS}
    for split, clicks in found.items():
        assert len(clicks) == 40 * IMPRESSIONS[split]
        assert set(clicks.quirks) <= {"empty_histories"}
        assert (clicks.candidates.lengths == CANDIDATES).all()
        for history, candidates in zip(clicks.history_of, range(len(clicks)), strict=True):
            read = clicks.histories.row(history).tolist()
            shown = clicks.candidates.row(candidates).tolist()
            assert len(set(read)) == len(read)
            assert not set(read) & set(shown)
    assert found["test"].labels is None
    assert found["train"].labels is not None
    fresh = set(found["dev"].news["id"].to_pylist()) - set(found["train"].news["id"].to_pylist())
    assert len(fresh) > 100
    assert (folder / "test" / "news.tsv").read_text("utf-8").count("\t") % 7 == 0


def test_the_seed_decides(folder, tmp_path):
    def contents(place) -> list[bytes]:
        return [path.read_bytes() for path in sorted(place.rglob("*.tsv"))]

    assert contents(simulate_clicks(tmp_path / "same", users=40, seed=3)) == contents(folder)
    assert contents(simulate_clicks(tmp_path / "other", users=40, seed=4)) != contents(folder)


def test_mistakes(folder, tmp_path):
    with pytest.raises(UserError, match="is not an empty folder"):
        simulate_clicks(folder)
    with pytest.raises(UserError, match="give at least one"):
        simulate_clicks(tmp_path / "none", users=0)


def test_builtin_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path / "cache"))
    read_mind("builtin:train")
    [made] = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    before = (made / "dev" / "behaviors.tsv").stat().st_mtime_ns
    read_mind("builtin:dev")
    assert (made / "dev" / "behaviors.tsv").stat().st_mtime_ns == before
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set FASTFORMER_CACHE"):
        read_mind("builtin:train")


def test_what_another_process_reads_is_not_deleted(tmp_path, monkeypatch):
    """Two processes make the built-in clicks at once: the second to be done leaves the folder of the first."""
    monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path))
    write, others = simulate._write, []

    def write_slowly(folder, *rest):
        if not others:
            others.append(None)
            others[0] = simulate.builtin_folder("train").parent  # the other process begins later and is done first
            (others[0] / "mark").touch()
        write(folder, *rest)

    monkeypatch.setattr(simulate, "_write", write_slowly)
    folder = simulate.builtin_folder("dev").parent
    assert folder == others[0]
    assert sorted(path.name for path in folder.iterdir()) == ["dev", "mark", "sums.json", "test", "train"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [folder.name]


def test_a_file_that_was_lost_is_made_again_and_the_others_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path))
    folder = simulate.builtin_folder("train").parent
    (folder / "mark").touch()
    (folder / "dev" / "news.tsv").unlink()
    assert (simulate.builtin_folder("dev") / "news.tsv").is_file()
    assert (folder / "mark").is_file()
