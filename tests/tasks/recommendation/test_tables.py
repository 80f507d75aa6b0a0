"""Ratings and items of any shop become folders in MIND's layout, without the future in them."""

import json
import random
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastformer.errors import UserError
from fastformer.tasks.recommendation import import_clicks, recommend_to_all
from fastformer.tasks.recommendation.mind import read_mind
from fastformer.tasks.recommendation.model import read_users
from fastformer.tasks.verbs import evaluate, train

FOOD, TOOLS = ["bread", "soup", "cheese", "apple"], ["hammer", "saw", "drill", "ladder"]


def write_tables(folder, value="rating"):
    """Forty users, half of whom like food and the other half tools; thirty items of each."""
    pick = random.Random(0)
    items = [
        (f"I{n}", f"{pick.choice(FOOD if n < 30 else TOOLS)} {pick.choice(FOOD if n < 30 else TOOLS)} {n}th")
        for n in range(60)
    ]
    (folder / "items.csv").write_text("itemId;title;genre\n" + "".join(f"{key};{title};all\n" for key, title in items))
    rows = []
    for user in range(40):
        own, other = (range(30), range(30, 60)) if user % 2 else (range(30, 60), range(30))
        for place, item in enumerate([*pick.sample(own, 9), *pick.sample(other, 3)]):
            how = 5 if item in own else 1
            rows.append((f"u{user}", f"I{item}", how if value == "rating" else int(how > 3), 86_400 * place + user))
    pick.shuffle(rows)
    lines = [f"userId,itemId,{value},timestamp"] if value else ["userId,itemId,timestamp"]
    lines += [",".join(str(cell) for place, cell in enumerate(row) if value or place != 2) for row in rows]
    (folder / "clicks.csv").write_text("\n".join(lines) + "\n")
    return str(folder / "clicks.csv"), str(folder / "items.csv")


@pytest.mark.parametrize("value", ["rating", "click", ""])
def test_the_past_is_in_histories_and_the_splits_follow_each_other(tmp_path, value):
    found = import_clicks(*write_tables(tmp_path, value), tmp_path / "out", negatives=7)
    assert found.users == 40
    assert found.items == 60
    parts = [read_mind(tmp_path / "out" / split) for split in ("train", "dev", "test")]
    assert [len(part) for part in parts] == list(found.impressions.values())
    assert parts[0].times.max() <= parts[1].times.min() <= parts[1].times.max() <= parts[2].times.min()
    clicked: dict[str, list[str]] = {}
    for part in parts:
        users = [
            line.split("\t")[1] for line in (tmp_path / "out" / "train" / "behaviors.tsv").read_text().splitlines()
        ]
        for number, one in enumerate(part):
            user = int(part.users[number]) if part is parts[0] else None
            new = [key for key, yes in zip(one["candidates"], one["labels"], strict=True) if yes]
            assert len(one["candidates"]) == 8  # one was clicked, seven were drawn
            assert len(new) == 1
            assert not set(one["history"]) & set(one["candidates"])
            if user is not None:
                assert one["history"] == clicked.get(users[number], [])
                clicked[users[number]] = one["history"] + new


def test_the_same_seed_gives_the_same_files_and_ratings_have_a_median(tmp_path):
    tables = write_tables(tmp_path)
    for name in ("a", "b"):
        assert import_clicks(*tables, tmp_path / name).positive == 5
    for file in ("train/behaviors.tsv", "test/behaviors.tsv", "dev/news.tsv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_what_was_shown_at_one_time_is_one_impression(tmp_path):
    (tmp_path / "items.csv").write_text("id,name\n" + "".join(f"{n},thing {n}\n" for n in range(9)))
    rows = [f"u{n},{place},{int(place == n % 3)},2020-01-{n + 1:02}T10:00" for n in range(12) for place in range(3)]
    (tmp_path / "log.csv").write_text("user,item,click,time\n" + "\n".join(rows))
    import_clicks(tmp_path / "log.csv", tmp_path / "items.csv", tmp_path / "out")
    for one in read_mind(tmp_path / "out" / "train"):
        assert sorted(one["candidates"]) == ["0", "1", "2"]  # real non-clicks: none is drawn
        assert sum(one["labels"]) == 1


def test_a_date_without_a_time_is_its_midnight(tmp_path):
    (tmp_path / "items.csv").write_text("id,name\n" + "".join(f"{n},thing {n}\n" for n in range(9)))
    rows = [
        {"user": f"u{n}", "item": place, "click": int(place == n % 3), "date": date(2020, 1, n + 1)}
        for n in range(12)
        for place in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    import_clicks(tmp_path / "log.parquet", tmp_path / "items.csv", tmp_path / "out")
    first = (tmp_path / "out" / "train" / "behaviors.tsv").read_text().splitlines()[0]
    assert first.split("\t")[2] == "01/01/2020 12:00:00 AM"


def test_a_model_of_it_stands_beside_its_floors_and_recommends_to_a_file_of_users(tmp_path):
    found = import_clicks(*write_tables(tmp_path), tmp_path / "out", negatives=8)
    folders = {split: str(found.folder / split) for split in found.impressions}
    options = {"epochs": 4, "batch_size": 16, "show_progress": False}
    train("recommendation", folders["train"], folders["dev"], output=tmp_path / "run", **options)
    scored = evaluate(tmp_path / "run", folders["test"], show_progress=False)
    assert set(scored["floors"]) == {"popularity", "co-occurrence"}
    assert scored["auc"] > max(0.6, scored["floors"]["popularity"]["auc"])
    assert "floors" not in evaluate(tmp_path / "run", folders["test"], floors=False, show_progress=False)

    histories = {"food": ["I1", "I2", "I3"], "tools": "I31 I32,I33", "new": None}
    users = tmp_path / "users.jsonl"
    users.write_text("".join(json.dumps({"user": user, "history": ids}) + "\n" for user, ids in histories.items()))
    assert recommend_to_all(tmp_path / "run", users, tmp_path / "best.jsonl", top=5, show_progress=False) == 3
    answers = [json.loads(line) for line in (tmp_path / "best.jsonl").read_text().splitlines()]
    assert [answer["user"] for answer in answers] == list(histories)
    for answer, own in zip(answers[:2], (FOOD, TOOLS), strict=True):
        assert len(answer["recommendations"]) == 5
        words = [one["title"].split()[0] in own for one in answer["recommendations"]]
        assert sum(words) >= 4


def test_mistakes_are_one_line(tmp_path):
    clicks, items = write_tables(tmp_path)
    odd = tmp_path / "odd.csv"

    def check(message, *arguments, **options):
        with pytest.raises(UserError, match=message) as caught:
            import_clicks(*arguments, tmp_path / "out", **options)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()

    odd.write_text("who,what,when\na,I1,1\n")
    check(
        "cannot tell which column holds the user; columns found: who, what, when; name it with --user-column",
        odd,
        items,
    )
    named = {"user": "who", "item": "what", "time": "when"}
    check("0 impressions have a click and a non-click; give 10 or more", odd, items, columns=named)
    check("no column 'nobody'", odd, items, columns={"user": "nobody"})
    odd.write_text("user,item,time\na,I1,noon\n")
    check("odd.csv, line 2: a time is a number or a date", odd, items)
    odd.write_text("user,item,time\na,Z1,3\n")
    check(r"no row is left \(1 on items that are not in .*items.csv\)", odd, items)
    rows = tmp_path / "odd.jsonl"
    rows.write_text('{"user": "a", "item": "I1", "time": [3]}\n')
    check("odd.jsonl, line 1: a time is a number or a date", rows, items)
    rows.write_text('{"user": {"a": 1}, "item": "I1", "time": 3}\n')
    check("odd.jsonl, line 1: the user is an object", rows, items)
    rows.write_text('{"user": "a", "item": [{"a": 1}], "time": 3}\n')
    check("odd.jsonl, line 1: the item is an object", rows, items)
    rows.write_text('{"id": "a", "title": {"en": "x"}}\n')
    check("odd.jsonl, line 1: the title is an object", clicks, rows)
    odd.write_text("id,title\nI 1,x\n")
    check("line 2: the id 'I 1' has a space in it", clicks, odd)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    with pytest.raises(UserError, match="is not an empty folder"):
        import_clicks(clicks, items, tmp_path / "full")


def test_users_are_not_read_from_folders_of_texts(tmp_path):
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "a.txt").write_text("bread")
    with pytest.raises(UserError, match=r"a folder of LABEL/\*.txt; give a table with the columns"):
        list(read_users(tmp_path))
