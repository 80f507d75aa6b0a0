import datasets
import huggingface_hub

from fastformer.data.tables import Row, detect_label_kind, read_rows

from .table_files import error_of, write


def classed(count: int) -> datasets.Dataset:
    features = datasets.Features(
        text=datasets.Value("string"),
        label=datasets.ClassLabel(names=["bad", "fine"]),
        tags=datasets.List(datasets.ClassLabel(names=["x", "y"])),
    )
    columns = {
        "text": [f"t{i}" for i in range(count)],
        "label": [i % 2 for i in range(count)],
        "tags": [[1, 0]] * count,
    }
    return datasets.Dataset.from_dict(columns, features=features)


def test_class_numbers_become_names_in_saved_datasets_and_parquet(tmp_path):
    classed(3).save_to_disk(tmp_path / "saved")
    classed(3).to_parquet(tmp_path / "saved.parquet")
    for source in (tmp_path / "saved", tmp_path / "saved.parquet"):
        assert list(read_rows(source)) == [Row("t0", "bad"), Row("t1", "fine"), Row("t2", "bad")]
        rows = read_rows(source, label_column="tags", label_kind="multi")
        assert next(rows) == Row("t0", ["y", "x"])
        assert detect_label_kind(source, label_column="tags") == "multi"
        assert list(read_rows(source, label_kind="none"))[2] == Row("t2")


def test_columns_of_saved_datasets_are_joined(tmp_path):
    classed(2).add_column("title", ["T", None]).save_to_disk(tmp_path / "saved")
    rows = read_rows(tmp_path / "saved", text_column="title,text")
    assert list(rows) == [Row("T\n\nt0", "bad"), Row("t1", "fine")]


def test_a_row_without_class_is_a_missing_label(tmp_path):
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["a"]))
    datasets.Dataset.from_dict({"text": ["x", "y"], "label": [0, -1]}, features=features).save_to_disk(
        tmp_path / "saved"
    )
    assert list(read_rows(tmp_path / "saved")) == [Row("x", "a")]
    says = error_of(tmp_path / "saved", strict=True)
    assert says.startswith(f"{tmp_path / 'saved'}, row 2: the label is missing")


def test_splits_are_named_or_taken_by_role(tmp_path):
    saved = tmp_path / "saved"
    datasets.DatasetDict(train=classed(3), test=classed(1)).save_to_disk(saved)
    assert len(list(read_rows(f"{saved}:test"))) == 1
    assert len(list(read_rows(saved, split="train"))) == 3
    assert len(list(read_rows(f"{saved}:train", split="test"))) == 3
    assert "several splits; splits found: train, test; name one" in error_of(saved)
    assert "no split 'dev'; splits found: train, test" in error_of(f"{saved}:dev")


def test_a_broken_saved_dataset_is_told(tmp_path):
    write(tmp_path / "state.json", "{}")
    assert error_of(tmp_path).startswith(f"{tmp_path}: this saved dataset cannot be read (")


def test_a_hub_name_is_loaded_by_datasets(monkeypatch):
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *args, **options: None)
    found = datasets.DatasetDict(train=classed(3), test=classed(1))
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"owner/name": found}[name])
    assert len(list(read_rows("owner/name", split="train"))) == 3
    assert list(read_rows("owner/name:test")) == [Row("t0", "bad")]


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch):
    def unreachable(*args, **options):
        raise ConnectionError("Name or service not known\nand so on")

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    message = error_of("owner/name")
    assert message.startswith(
        "owner/name: no such file here, and the Hub gives no such dataset (Name or service not known);"
    )
    assert "check the path and the network" in message


def test_a_dataset_that_the_hub_lacks_is_one_line(monkeypatch):
    def missing(*args, **options):
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'owner/name' doesn't exist on the Hub")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *args, **options: None)
    monkeypatch.setattr(datasets, "load_dataset", missing)
    assert error_of("owner/name") == "owner/name: no such file here and no such dataset on the Hub; check the spelling"
