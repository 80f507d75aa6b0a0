"""GloVe: each word gets its vector, missing words get plausible ones, and a broken file says where."""

import gzip
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastformer.data.glove import load_glove
from fastformer.errors import UserError

RANDOM = np.random.default_rng(0)
TABLE = {f"word{index}": RANDOM.normal(size=8).round(4) @ np.diag(range(1, 9)) + 3 for index in range(200)}
VOCABULARY = {"[PAD]": 0, "[UNK]": 1} | {word: index for index, word in enumerate(TABLE, 2)}


def lines(table):
    return "".join(f"{word} {' '.join(f'{value:.6f}' for value in vector)}\n" for word, vector in table.items())


def write(folder, text, name="glove.txt"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def glove(tmp_path):
    return write(tmp_path, lines(TABLE))


def test_each_word_gets_its_vector_and_padding_is_zero(glove):
    matrix, found = load_glove(glove, VOCABULARY, 8, seed=1)
    assert (matrix.shape, matrix.dtype, found) == ((202, 8), np.float32, 200)
    np.testing.assert_allclose(matrix[2:], np.array([*TABLE.values()]), rtol=1e-5)
    assert not matrix[0].any()
    assert matrix[1].any()


def test_padding_may_have_another_name(glove):
    matrix, _ = load_glove(glove, {"<pad>": 3, "word1": 0}, 8, seed=1, pad_token="<pad>")
    assert matrix.shape == (4, 8)
    assert not matrix[3].any()


def test_lookup_is_exact_then_lower_case(tmp_path):
    path = write(tmp_path, "us 1 1\nUS 2 2\npolish 3 3\n")
    vocabulary = {"US": 0, "us": 1, "Polish": 2, "POLISH": 3, "Us": 4, "nowhere": 5}
    matrix, found = load_glove(path, vocabulary, 2, seed=0)
    assert matrix[:5, 0].tolist() == [2, 1, 3, 3, 1]
    assert found == 5


def test_missing_words_share_mean_and_covariance_of_the_found(glove):
    missing = {f"missing{index}": 202 + index for index in range(20_000)}
    matrix, found = load_glove(glove, VOCABULARY | missing, 8, seed=1)
    assert found == 200
    known, invented = matrix[2:202], matrix[202:]
    deviation = known.std(axis=0)
    assert np.abs((invented.mean(axis=0) - known.mean(axis=0)) / deviation).max() < 0.05
    difference = np.cov(invented.T) - np.cov(known.T, bias=True)
    assert np.abs(difference / np.outer(deviation, deviation)).max() < 0.05


def test_the_seed_decides_and_the_order_of_lines_does_not(glove, tmp_path):
    backwards = write(tmp_path, lines(dict(reversed(TABLE.items()))), "backwards.txt")
    for width in (5, 8, 11):
        first, _ = load_glove(glove, VOCABULARY, width, seed=1)
        again, _ = load_glove(backwards, VOCABULARY, width, seed=1)
        other, _ = load_glove(glove, VOCABULARY, width, seed=2)
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first[1], other[1])


def test_a_wider_embedding_keeps_every_dot_product(glove):
    narrow, _ = load_glove(glove, VOCABULARY, 8, seed=1)
    wide, found = load_glove(glove, VOCABULARY, 20, seed=1)
    assert (wide.shape, found) == ((202, 20), 200)
    np.testing.assert_allclose(wide @ wide.T, narrow @ narrow.T, rtol=1e-4, atol=1e-3)


def test_a_narrower_embedding_keeps_the_main_directions(tmp_path):
    plane = RANDOM.normal(size=(50, 2)) @ RANDOM.normal(size=(2, 6))  # six numbers, but two dimensions
    path = write(tmp_path, lines({f"word{index}": vector for index, vector in enumerate(plane)}))
    matrix, _ = load_glove(path, {f"word{index}": index for index in range(50)}, 2, seed=1)
    centred = plane - plane.mean(axis=0)
    np.testing.assert_allclose(matrix @ matrix.T, centred @ centred.T, atol=1e-3)


@settings(max_examples=50, deadline=None)
@given(
    words=st.sets(
        st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1),
        min_size=2,
        max_size=5,
    ),
    width=st.integers(2, 4),
)
def test_any_word_is_found(tmp_path_factory, words, width):
    table = {word: np.arange(width) + index for index, word in enumerate(sorted(words))}
    path = write(tmp_path_factory.mktemp("glove"), lines(table))
    matrix, found = load_glove(path, {word: index for index, word in enumerate(table)}, width, seed=0)
    assert found == len(table)
    np.testing.assert_array_equal(matrix, [*table.values()])


def test_gzip_and_zip_read_the_same(glove, tmp_path):
    expected, _ = load_glove(glove, VOCABULARY, 8, seed=1)
    zipped, squeezed = tmp_path / "glove.zip", tmp_path / "glove.txt.gz"
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(glove, "glove.8d.txt")
    squeezed.write_bytes(gzip.compress(glove.read_bytes()))
    for path in (zipped, squeezed):
        np.testing.assert_array_equal(load_glove(path, VOCABULARY, 8, seed=1)[0], expected)


def test_of_several_in_a_zip_the_fitting_width_is_read_or_the_largest(tmp_path):
    path = tmp_path / "glove.6B.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("README.txt", "Vectors made long ago. " * 100)
        for width in (2, 4, 3):
            archive.writestr(f"glove.{width}d.txt", f"a {'1 ' * width}\nb {'-1 ' * width}\n")
    for width in (2, 3, 4):
        assert load_glove(path, {"a": 0, "b": 1}, width, seed=0)[0].tolist() == [[1] * width, [-1] * width]
    matrix, _ = load_glove(path, {"a": 0, "b": 1}, 9, seed=0)
    np.testing.assert_allclose((matrix**2).sum(axis=1), [4, 4], rtol=1e-5)


def test_headers_spaces_in_words_and_blank_ends_are_tolerated(tmp_path):
    path = write(tmp_path, "4 3\n. . . 1 1 1\r\nat name@domain.com 2 2 2 \n7 3 3 3\nplain 4 4 4\n\n")
    vocabulary = {"plain": 0, ". . .": 1, "7": 2, "at name@domain.com": 3}
    matrix, found = load_glove(path, vocabulary, 3, seed=0)
    assert matrix[:, 0].tolist() == [4, 1, 3, 2]
    assert found == 4


def test_progress_is_told(tmp_path):
    told = []
    load_glove(write(tmp_path, "a 1 2\n" * 25_000), {"a": 0}, 2, seed=0, progress=told.append)
    assert told == [10_000, 20_000]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2 3\nb 1 2\n", r"line 2: 2 numbers, not 3"),
        ("a 1 2 3\nb 1 2 3\nc 1 2 3 4\n", r"line 3: 4 numbers, not 3"),
        ("a 1 2 3\nb 1 x 3\n", r"line 2: .*x"),
        ("a 1 2 3\nb 1 nan 3\n", "not finite"),
        ("Once upon a time\nthere was a file\n", "not a GloVe file: line 1"),
        ('{"text": "a"}\n', "not a GloVe file: line 1"),
        ("", "empty"),
        ("c 1 2 3\n", "none of the 2 words"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(UserError, match=message) as caught:
        load_glove(path, {"a": 0, "b": 1}, 3, seed=0)
    assert "glove.txt" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"a 1 2\n" * 1000)[:40])
    (tmp_path / "cut.zip").write_bytes(b"PK\x03\x04 and nothing more")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("picture.png", "not words")
    for name in ("missing.txt", "cut.gz", "cut.zip", "other.zip", "."):
        with pytest.raises(UserError, match=name):
            load_glove(tmp_path / name if name != "." else tmp_path, {"a": 0}, 2, seed=0)


@pytest.mark.slow
def test_the_real_glove_knows_its_neighbours(data):
    names = ["king", "queen", "banana", "Paris", "france", "zzzunknownzzz"]
    vocabulary = {"[PAD]": 0} | {word: index for index, word in enumerate(names, 1)}
    matrix, found = load_glove(data / "glove" / "glove.100d.100k.txt.gz", vocabulary, 300, seed=1)
    assert (matrix.shape, found) == ((7, 300), 5)
    king, queen, banana, paris, france, _ = matrix[1:] / np.linalg.norm(matrix[1:], axis=1, keepdims=True)
    assert king @ queen > 0.6 > king @ banana
    assert paris @ france > 0.6 > paris @ banana
