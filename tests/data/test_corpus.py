import sys
from collections import Counter

import pytest

from fastformer.data import corpus
from fastformer.data.corpus import LIBRARIES, ROWS_PER_LIBRARY, builtin_rows, docstrings, mask_names, split_of
from fastformer.data.tables import read_rows
from fastformer.errors import UserError


@pytest.fixture(scope="module")
def splits():
    return {split: list(builtin_rows(split)) for split in ROWS_PER_LIBRARY}


def sentence(seed: str) -> str:
    return " ".join(f"{seed}{number}" for number in range(30))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Build a package that must not be imported, and make it the only library of the corpus."""
    root = tmp_path / "untouchable"
    for name, source in {
        "__init__.py": f'"""{sentence("init")}"""\nraise SystemExit("imported")\n',
        "a.py": f'class A:\n    """{sentence("class")}"""\n    def f(self):\n        """{sentence("method")}"""\n',
        "b.py": f'async def g():\n    """{sentence("coroutine")}"""\ndef h():\n    """Too short."""\n',
        "copy.py": f'def again():\n    """{sentence("class")} and a little more"""\n',
        "licence.py": f'"""Copyright: {sentence("law")}"""\n',
        "python2.py": 'print "old"\n',
        "tests/test_a.py": f'"""{sentence("test")}"""\n',
        "_vendor/other.py": f'"""{sentence("vendored")}"""\n',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(corpus, "LIBRARIES", {"untouchable": "untouchable"})
    corpus._modules.cache_clear()
    yield "untouchable"
    corpus._modules.cache_clear()
    assert "untouchable" not in sys.modules


def test_splits_are_large_enough_and_balanced(splits):
    assert 7_000 <= len(splits["train"]) <= 12_000
    assert 1_000 <= len(splits["validation"]) <= 1_500
    assert 1_000 <= len(splits["test"]) <= 1_500
    for split, rows in splits.items():
        counts = Counter(row.label for row in rows)
        assert set(counts) == set(LIBRARIES)
        assert max(counts.values()) <= ROWS_PER_LIBRARY[split]
        assert min(counts.values()) >= ROWS_PER_LIBRARY[split] // 4


def test_texts_are_long_enough_and_name_no_library(splits):
    for row in [*splits["test"], *splits["train"][::10]]:
        assert len(row.text.split()) >= corpus.MINIMUM_WORDS // 2  # masking may join words
        assert mask_names(row.text) == row.text


def test_no_text_stands_twice(splits):
    texts = [" ".join(row.text.split()) for rows in splits.values() for row in rows]
    assert len(set(texts)) == len(texts)


def test_no_test_row_mostly_repeats_training_rows(splits):
    seen = set().union(*(corpus._runs(row.text) for row in splits["train"]))
    for row in splits["test"]:
        runs = corpus._runs(row.text)
        assert 2 * len(runs & seen) <= len(runs)


def test_builtin_is_a_source_with_splits(splits):
    assert list(read_rows("builtin", split="test")) == splits["test"]
    assert list(read_rows("builtin:validation", split="test")) == splits["validation"]
    assert next(read_rows("builtin")) == splits["train"][0]
    with pytest.raises(UserError, match="builtin has no split 'dev': use one of train, validation, test"):
        read_rows("builtin:dev")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("import numpy as np; np.array", "import LIBRARY as LIBRARY; LIBRARY.array"),
        ("torch.nn.functional.relu", "LIBRARY.LIBRARY.functional.relu"),
        ("PyTorch, Torchscript and is_torch_available", "LIBRARY, LIBRARY and LIBRARY"),
        ("sklearn or scikit-learn", "LIBRARY or LIBRARY-learn"),
        ("HfApi, hf_hub_download, Hugging\nFace", "LIBRARY, LIBRARY, LIBRARY"),
        ("a transformer half of a dataset", "a transformer half of a dataset"),
        ("an input of the inner inp", "an input of the inner inp"),
    ],
)
def test_names_and_aliases_are_masked_and_other_words_are_not(text, masked):
    assert mask_names(text) == masked


def test_a_module_keeps_its_side_on_every_machine():
    assert split_of("torch.nn.functional") == "test"
    assert split_of("sklearn.svm._base") == "validation"
    assert split_of("numpy.fft") == "train"
    shares = Counter(split_of(f"package.module{number}") for number in range(8000))
    assert 900 < shares["validation"] < 1100
    assert 900 < shares["test"] < 1100


def test_docstrings_are_parsed_without_importing(package):
    found = {(item.module, item.name): item.text for item in docstrings(package)}
    assert found.pop(("untouchable.copy", "again")).startswith("class0")
    assert found == {
        ("untouchable", ""): sentence("init"),
        ("untouchable.a", "A"): sentence("class"),
        ("untouchable.a", "A.f"): sentence("method"),
        ("untouchable.b", "g"): sentence("coroutine"),
    }


def test_docstrings_of_one_split_come_from_its_modules(package):
    by_split = {split: set(docstrings(package, split)) for split in ROWS_PER_LIBRARY}
    assert set.union(*by_split.values()) == set(docstrings(package))
    assert all(split_of(item.module) == split for split, items in by_split.items() for item in items)


def test_copies_are_dropped_and_the_same_corpus_is_built_again(package):
    built = corpus._build()
    texts = [text for rows in built.values() for text, _ in rows]
    assert len(texts) == 4
    assert sum("class0" in text for text in texts) == 1
    assert corpus._build() == built


def test_the_corpus_is_kept_and_a_broken_cache_is_built_again(monkeypatch, tmp_path):
    built = {split: [("text", "numpy")] for split in ROWS_PER_LIBRARY}
    monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path))
    monkeypatch.setattr(corpus, "_build", lambda: built)
    load = corpus._load.__wrapped__
    assert load() == built
    (kept,) = tmp_path.iterdir()
    monkeypatch.setattr(corpus, "_build", lambda: pytest.fail("built again"))
    assert [tuple(row) for row in load()["test"]] == built["test"]
    kept.write_bytes(b"broken")
    monkeypatch.setattr(corpus, "_build", lambda: built)
    assert load() == built
    monkeypatch.setenv("FASTFORMER_CACHE", str(kept))  # a file: nothing can be kept in it
    assert load() == built


def test_a_missing_library_is_told(monkeypatch):
    monkeypatch.setattr(corpus, "LIBRARIES", {"no-such-library": "no_such_library"})
    with pytest.raises(UserError, match="sources of no-such-library, not installed here: pip install no-such-library"):
        next(docstrings("no-such-library"))
    with pytest.raises(UserError, match="needs the docstrings of no-such-library; run: pip install no-such-library"):
        corpus.need_libraries(["no-such-library"])


def test_the_corpus_leaves_out_what_is_not_installed(package, monkeypatch):
    monkeypatch.setattr(corpus, "LIBRARIES", {**corpus.LIBRARIES, "no-such-library": "no_such_library"})
    assert {label for rows in corpus._build().values() for _, label in rows} == {package}
