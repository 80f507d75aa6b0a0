"""A run, and a folder of files for it to answer."""

from pathlib import Path

import pytest

from tests.tasks.conftest import make_rows, write_csv, write_jsonl


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """A classifier that has learned little; tests only read it."""
    from fastformer.tasks.verbs import train

    folder = tmp_path_factory.mktemp("runs") / "animals"
    rows = write_csv(folder.parent / "train.csv", make_rows(120, 0))
    train("classification", rows, output=folder, preset="encoder", epochs=1, show_progress=False)
    return folder


def write_files(folder: Path, count: int = 3, rows: int = 20) -> Path:
    """Files of all kinds, in folders, and what others leave beside data."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "lang=en").mkdir(parents=True)
    for number in range(count):
        write_csv(folder / f"part-{number}.csv", make_rows(rows, number + 1))
    records = [{"id": n, "text": text, "label": label} for n, (text, label) in enumerate(make_rows(rows, 9))]
    write_jsonl(folder / "lang=en" / "rest.jsonl", records)
    pq.write_table(pa.Table.from_pylist(records), folder / "lang=en" / "more.parquet")
    (folder / f"part-{count - 1}.csv").rename(folder.parent / "elsewhere.csv")
    (folder / f"part-{count - 1}.csv").symlink_to(folder.parent / "elsewhere.csv")
    (folder / "_SUCCESS").write_text("")
    (folder / "notes.md").write_text("not data")
    (folder / ".part-9.csv.crc").write_text("")
    return folder
