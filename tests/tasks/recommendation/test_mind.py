"""MIND's files, published and odd, into arrays: what is read, what is counted, and what is refused."""

import re
from datetime import UTC, datetime

import numpy as np
import pytest

from fastformer.errors import UserError
from fastformer.tasks.recommendation import behaviors, mind
from fastformer.tasks.recommendation.mind import format_quirks, has_labels, read_mind

NEWS = """\
N1\tsports\tgolf\tA "quoted title\tAn abstract\thttps://x\t[]\t[]
N2\tnews\tpolitics\tSecond\t\t\t[]\t[]

N3\tfood\tsoup\tThird
N2\tnews\tpolitics\tSecond again\t\t\t[]\t[]
"""
BEHAVIORS = """\
7\tU1\t11/11/2019 9:05:58 AM\tN1 N2 N1\tN3-1 N2-0
8\tU2\t11/11/2019 9:06:00 AM\t\tN1-0 N9-0 N3-0
\x20\x20
5\tU1\t11/11/2019 9:07:00 AM\tN1 N2 N1\tN9-1

6\tU3\t11/11/2019 9:08:00 AM\tN8 N9  N3\tN2-0 N9-1
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    def write(news: str | bytes = NEWS, behaviors: str | bytes = BEHAVIORS):
        place = tmp_path / "mind"
        place.mkdir(exist_ok=True)
        for name, text in (("news.tsv", news), ("behaviors.tsv", behaviors)):
            (place / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return place

    return write


def rows(ragged) -> list[list[int]]:
    return [ragged.row(index).tolist() for index in range(len(ragged.offsets) - 1)]


@pytest.mark.parametrize("block", [1 << 25, 200])
def test_everything_a_folder_says(folder, monkeypatch, block):
    monkeypatch.setattr(behaviors, "_BLOCK_BYTES", block)
    clicks = read_mind(folder())
    assert clicks.news.to_pydict() == {
        "id": ["N1", "N2", "N3", "N9"],
        "category": ["sports", "news", "food", ""],
        "subcategory": ["golf", "politics", "soup", ""],
        "title": ['A "quoted title', "Second", "Third", ""],
        "abstract": ["An abstract", "", "", ""],
    }
    assert clicks.impression_ids.tolist() == [7, 8, 5, 6]
    assert rows(clicks.histories) == [[0, 1, 0], [], [2]]
    assert clicks.history_of.tolist() == [0, 1, 0, 2]
    assert clicks.users.tolist() == [0, 1, 0, 2]
    assert rows(clicks.candidates) == [[2, 1], [0, 3, 2], [3], [1, 3]]
    assert clicks.labels.tolist() == [1, 0, 0, 0, 0, 1, 0, 1]
    assert clicks.quirks == {
        "missing_in_histories": 2,
        "missing_candidates": 1,
        "repeated_clicks": 1,
        "empty_histories": 1,
        "without_positive": 1,
        "without_negative": 1,
        "repeated_news": 1,
        "blank_lines": 3,
    }
    kinds = [array.dtype for array in (clicks.impression_ids, clicks.users, clicks.history_of, clicks.labels)]
    kinds += [array.dtype for ragged in (clicks.histories, clicks.candidates) for array in ragged]
    assert kinds == [np.int64, np.int32, np.int32, np.int8, np.int32, np.int64, np.int32, np.int64]


def test_quirks_are_one_line(folder):
    said = format_quirks(read_mind(folder()).quirks)
    assert "2 clicks in histories dropped" in said
    assert "3 lines left blank" in said
    assert "\n" not in said
    assert format_quirks({}) == ""


def test_a_test_folder_has_no_labels(folder):
    place = folder(behaviors="1\tU1\tnow\tN1\tN1 N2\n2\tU1\tnow\t\tN-7 N3\n")
    clicks = read_mind(place)
    assert clicks.labels is None
    assert clicks.quirks == {"missing_candidates": 1, "empty_histories": 1, "repeated_news": 1, "blank_lines": 1}
    with pytest.raises(UserError, match=r"behaviors.tsv: its candidates have no labels .*dev"):
        read_mind(place, labels="required")
    assert read_mind(folder(), labels="required").labels is not None


def test_the_first_impression_says_whether_there_are_labels(folder):
    assert has_labels(folder())
    assert not has_labels(folder(behaviors="\n1\tU1\tnow\tN1\tN1 N2\nbroken\n"))  # no more is read
    assert not has_labels(folder(NEWS.replace("N1\t", "a-1\t"), "1\tU1\tnow\ta-1\ta-1 N2\n"))
    assert not has_labels(folder(behaviors="\n\n"))


def test_ids_may_hold_dashes(folder):
    news = NEWS.replace("N1\t", "a-1\t")
    labelled = read_mind(folder(news, "1\tU1\tnow\ta-1\ta-1-1 N2-0\n"))
    assert (rows(labelled.candidates), labelled.labels.tolist()) == ([[0, 1]], [1, 0])
    unlabelled = read_mind(folder(news, "1\tU1\tnow\ta-1\ta-1 N2\n"))
    assert (rows(unlabelled.candidates), unlabelled.labels) == ([[0, 1]], None)


def test_times_are_read_where_they_are_as_published(folder):
    times = ("11/15/2019 8:55:22 AM", " 11/15/2019 08:55:22 PM ", "yesterday", "")
    lines = "".join(f"1\tU1\t{time}\tN1\tN2-1\n" for time in times)
    first, second, *others = read_mind(folder(behaviors=lines)).times
    assert (first, second - first) == (datetime(2019, 11, 15, 8, 55, 22, tzinfo=UTC).timestamp(), 12 * 3600)
    assert np.isnan(others).all()


def test_who_has_no_id_is_nobody(folder):
    lines = "1\tU9\tnow\tN1\tN2-1\n2\t\tnow\tN1\tN2-1\n3\tU3\tnow\tN1\tN2-1\n4\tU9\tnow\tN1\tN2-1\n"
    assert read_mind(folder(behaviors=lines)).users.tolist() == [0, -1, 1, 0]


@pytest.mark.parametrize("line", ["\tU1\tnow\tN1\t", "\tU1\t\t\t", "\t\t\tN1\t"])
def test_a_line_with_anything_in_it_is_not_blank(folder, line):
    assert read_mind(folder(behaviors=GOOD + "\t\t\t\t\n")).quirks["blank_lines"] == 2  # and one of news.tsv
    with pytest.raises(UserError, match="behaviors.tsv, line 2: no impression id or no candidates"):
        read_mind(folder(behaviors=f"{GOOD}{line}\n"))


@pytest.mark.parametrize("ids", [["a", "b"], ["01", "2"], ["1", "99999999999999999999"]])
def test_impression_ids_stay_as_they_are_written(folder, ids):
    place = folder(behaviors="".join(f"{one}\tU1\tnow\tN1\tN2-1 N3-0\n" for one in ids))
    for _ in range(2):  # parsed, then from the cache
        assert read_mind(place).impression_ids.tolist() == ids


def test_windows_lines_are_lines(folder):
    clicks = read_mind(folder(NEWS.replace("\n", "\r\n"), BEHAVIORS.replace("\n", "\r\n")))
    assert clicks.labels.tolist() == [1, 0, 0, 0, 0, 1, 0, 1]
    assert clicks.news["title"].to_pylist() == ['A "quoted title', "Second", "Third", ""]


GOOD = "1\tU1\tnow\tN1\tN2-1 N3-0\n"


@pytest.mark.parametrize(
    ("behaviors", "says"),
    [
        (f"{GOOD}\n2\tU1\tnow\tN1\n", "line 3: 4 fields between tabs; expected impression id, user id, time, history"),
        (f"{GOOD}   \n{GOOD}{GOOD}2\tU1\tnow\tN1\tN2-1\tmore\n", "line 5: 6 fields"),
        (f"{GOOD}\n   \n2\tU1\tnow\tN1\tN2-1 N3-2\n", "line 4: the candidate 'N3-2'; .*labels 0 or 1"),
        (f"{GOOD}2\tU1\tnow\tN1\tN2-1 N3\n", "line 2: the candidate 'N3'; .*labels 0 or 1"),
        (f"{GOOD}2\tU1\tnow\tN1\tN2-1 -1\n", "line 2: the candidate '-1'"),
        ("1\tU1\tnow\tN1\tN2-5\n", "line 1: the candidate 'N2-5'"),
        (f"1\tU1\tnow\tN1\tN2 N3\n{GOOD}", r"line 2: the candidate 'N2-1' has a label and those before have none"),
        (f"{GOOD}2\tU1\tnow\tN1\t \n", "line 2: no impression id or no candidates"),
        (f"{GOOD}\tU1\tnow\tN1\tN2-1\n", "line 2: no impression id or no candidates"),
        (f"{GOOD}2\tU1\tnow\tN1\tN2-1 N\xff-0\n".encode("latin-1"), "line 2: .*UTF-8"),
        ("nothing of the kind\n", "line 1: 1 fields between tabs"),
        (f"{GOOD}{GOOD}{GOOD}nothing\nof\nthe\nkind\n", "line 4: 1 fields between tabs"),
        ("\n  \n", "behaviors.tsv: holds blank lines only"),
        ("", "behaviors.tsv: is empty"),
    ],
)
@pytest.mark.parametrize("block", [1 << 25, 60])
def test_a_malformed_line_is_named(folder, monkeypatch, behaviors, says, block):
    monkeypatch.setattr("fastformer.tasks.recommendation.behaviors._BLOCK_BYTES", block)
    with pytest.raises(UserError, match=says):
        read_mind(folder(behaviors=behaviors))


@pytest.mark.parametrize(
    ("news", "says"),
    [
        ("N1\tsports\tgolf\n", "news.tsv, line 1: 3 fields between tabs; expected id, category"),
        (f"{NEWS}N7{9 * chr(9)}\n", "news.tsv, line 6: 10 fields"),
        ("\tsports\tgolf\tA title\n", "news.tsv, line 1"),
        (b"N1\tsports\tgolf\tcaf\xe9\n", "news.tsv, line 1: .*UTF-8"),
        ("\n", "news.tsv: holds blank lines only"),
    ],
)
def test_a_malformed_line_of_news_is_named(folder, news, says):
    with pytest.raises(UserError, match=says):
        read_mind(folder(news))


def test_what_is_not_there_is_named(folder, tmp_path):
    (tmp_path / "clicks.csv").write_text("user,item\n")
    with pytest.raises(UserError, match="clicks.csv: is a file.*`fastformer import-clicks` makes"):
        read_mind(tmp_path / "clicks.csv")
    with pytest.raises(UserError, match="nowhere: no such folder"):
        read_mind(tmp_path / "nowhere")
    place = folder()
    with pytest.raises(UserError, match=re.escape(f"{place.parent}: has no news.tsv") + ".*folders in it: mind"):
        read_mind(place.parent)
    (place / "behaviors.tsv").unlink()
    with pytest.raises(UserError, match="has no behaviors.tsv.*check the path"):
        read_mind(place)
    with pytest.raises(UserError, match="builtin:valid: no such split.*builtin:train, builtin:dev, builtin:test"):
        read_mind("builtin:valid")


class TestCache:
    @pytest.fixture
    def parsings(self, monkeypatch):
        """How often the files were parsed."""
        calls, parse = [], mind._parse
        monkeypatch.setattr(mind, "_parse", lambda *given: calls.append(1) or parse(*given))
        return calls

    def test_the_same_contents_are_parsed_once(self, folder, tmp_path, parsings):
        first = read_mind(folder())
        (tmp_path / "mind").rename(tmp_path / "elsewhere")
        again = read_mind(tmp_path / "elsewhere")
        assert len(parsings) == 1
        assert again.news.equals(first.news)
        assert again.quirks == first.quirks
        assert again.histories.values.tolist() == first.histories.values.tolist()

    def test_other_contents_are_parsed(self, folder, parsings):
        assert len(read_mind(folder())) == 4
        assert len(read_mind(folder(behaviors=GOOD))) == 1
        assert read_mind(folder(NEWS.replace("Third", "3rd"))).news["title"][2].as_py() == "3rd"
        assert len(parsings) == 3

    @pytest.mark.parametrize("damage", [lambda old: b"", lambda old: old[: len(old) // 2], lambda old: b"x" * len(old)])
    def test_a_damaged_file_is_made_anew(self, folder, cache, parsings, damage):
        read_mind(folder())
        [file] = cache.iterdir()
        whole = file.read_bytes()
        file.unlink()  # the old one is mapped: it is replaced, as everywhere, and not written over
        file.write_bytes(damage(whole))
        assert read_mind(folder()).labels.tolist() == [1, 0, 0, 0, 0, 1, 0, 1]
        assert len(parsings) == 2
        assert file.read_bytes() == whole

    def test_numbers_that_point_nowhere_are_damage(self, folder, cache, parsings):
        clicks = read_mind(folder())
        [file] = cache.iterdir()
        history_of = clicks.history_of.copy()
        history_of[0] = 99
        mind.replace(clicks, history_of=history_of).save(file)
        assert read_mind(folder()).history_of.tolist() == [0, 1, 0, 2]
        assert len(parsings) == 2

    def test_no_cache_is_no_error(self, folder, tmp_path, monkeypatch, capsys):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path / "file"))
        assert len(read_mind(folder())) == 4
        assert "not kept for the next time" in capsys.readouterr().err


def test_some_impressions(folder):
    clicks = read_mind(folder()).take(np.array([3, 0]))
    assert len(clicks) == 2
    assert clicks.impression_ids.tolist() == [6, 7]
    assert rows(clicks.candidates) == [[1, 3], [2, 1]]
    assert clicks.labels.tolist() == [0, 1, 1, 0]
    assert [clicks.histories.row(row).tolist() for row in clicks.history_of] == [[2], [0, 1, 0]]
    assert rows(clicks.histories) == [[0, 1, 0], [2]]  # the empty one belongs to an impression that was not taken
    assert clicks.users.tolist() == [2, 0]
    assert read_mind(folder(behaviors="1\tU\tnow\t\tN1 N2\n")).take(np.array([0])).labels is None


def test_every_line_of_a_folder_in_minds_layout(fixtures):
    clicks = check_every(1, fixtures / "mind", impressions=5, news=6)
    assert clicks.quirks == {
        "missing_in_histories": 1,
        "missing_candidates": 1,
        "repeated_clicks": 1,
        "empty_histories": 1,
    }
    assert clicks.news["title"].to_pylist()[2] == 'What a "soft landing" would look like'
    assert np.argsort(clicks.times).tolist() == [1, 2, 0, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize(("fragment", "impressions", "news"), [("a", 5000, 2000), ("b", 2000, 500)])
def test_real_fragments(data, fragment, impressions, news):
    check_every(97, data / "mind-fragments" / fragment, impressions, news)


def check_every(step: int, place, impressions: int, news: int):
    """Compare what is read with the lines of the file, every so many impressions."""
    clicks = read_mind(place, labels="required")
    lines = [line.split("\t") for line in (place / "behaviors.tsv").read_text(encoding="utf-8").splitlines()]
    assert len(clicks) == len(lines) == impressions
    assert clicks.news.num_rows - clicks.quirks["missing_candidates"] == news
    ids = np.array(clicks.news["id"].to_pylist())
    known = set(ids[:news])
    for row in range(0, impressions, step):
        number, _, _, history, candidates = lines[row]
        assert str(clicks.impression_ids[row]) == number
        assert ids[clicks.candidates.row(row)].tolist() == [word[:-2] for word in candidates.split()]
        begin, end = clicks.candidates.offsets[row : row + 2]
        assert clicks.labels[begin:end].tolist() == [int(word[-1]) for word in candidates.split()]
        read = ids[clicks.histories.row(clicks.history_of[row])].tolist()
        assert read == [word for word in history.split() if word in known]
    return clicks
