"""Encoders of texts: pieces, the teacher's vectors on disk, the student, and what people do with it."""

import json
import lzma
from collections import Counter
from itertools import islice

import numpy as np
import pandas
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fastformer import FastformerConfig, FastformerModel, TextEncoder
from fastformer.data.passages import passages_of
from fastformer.data.tables import read_rows
from fastformer.engine.warm_start import check_word_vectors, kind_of
from fastformer.engine.word_encoder import open_encoder, word_vectors
from fastformer.errors import UserError
from fastformer.mixers import available_mixers
from fastformer.tasks.encoder import teacher as teaching
from fastformer.tasks.encoder.objective import VectorLearner, distance, start_as_table, token_table, turn
from fastformer.tasks.encoder.overlaps import SeenTexts
from fastformer.tasks.encoder.pieces import SHARES, Piece, pieces_of, shuffled_pieces
from fastformer.tasks.encoder.predictor import similarity_scores
from fastformer.tasks.encoder.teacher import Teacher, TeacherVectors
from fastformer.tasks.verbs import train

from .conftest import make_rows, save_teacher, write_csv, write_jsonl
from .samples import encoder as sample_of

PASSAGE = "It was late. The old man slept near the door. Nobody heard the bell. Then it rang again, and he woke up."


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return save_teacher(tmp_path_factory.mktemp("teacher"))


@pytest.fixture(scope="module")
def run(teacher, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    sample = sample_of(folder)
    pairs = write_jsonl(folder / "pairs.jsonl", [{"a": "soup", "b": text} for text, _ in make_rows(20, 5)])
    sources = {"pairs": pairs, "keep_out": sample.test, "validation": sample.test}
    train("encoder", sample.train, **sources, output=folder / "run", **sample.options, show_progress=False)
    return folder / "run"


class TestPieces:
    def test_a_passage_is_sentences_and_some_of_them_in_a_row(self):
        found = list(pieces_of(PASSAGE))
        of_kind = {kind: [text for one, text in found if one == kind] for kind in SHARES}
        assert of_kind["short"][:2] == ["It was late.", "The old man slept near the door."]
        assert of_kind["few"] == ["It was late. The old man slept near the door."]
        assert of_kind["passage"] == [PASSAGE]

    def test_what_is_said_is_a_piece_too(self):
        assert ("short", "the bell has rung") in list(pieces_of('He said: "the bell has rung" and left.'))

    def test_a_long_sentence_is_its_clauses_too(self):
        long = "When the bell rang again, and nobody knew why it did so at that hour, the old man woke up at last."
        kinds = dict((text, kind) for kind, text in pieces_of(long))
        assert kinds[long] == "sentence"
        assert kinds["the old man woke up at last."] == kinds["When the bell rang again"] == "short"
        assert "so" not in kinds

    def test_nothing_is_longer_than_the_teacher_reads(self):
        assert max(len(text.split()) for _, text in pieces_of("word " * 1000 + ". " + "word " * 500 + ".")) <= 90

    def test_any_first_part_is_a_fair_mixture(self):
        sources = {
            name: [
                ". ".join(f"{name} {row} {number}{' word' * (4 + number)}" for number in range(12)) + "."
                for row in range(count)
            ]
            for name, count in (("large", 1600), ("small", 100))
        }
        first = shuffled_pieces(sources, 0)[:1000]
        kinds, names = Counter(piece.kind for piece in first), Counter(piece.source for piece in first)
        assert all(abs(kinds[kind] / 1000 - share) < 0.06 for kind, share in SHARES.items())
        assert 2.5 < names["large"] / names["small"] < 6  # 4: the root of 16

    def test_the_seed_decides_the_order_and_nothing_comes_twice(self):
        sources = {"one": [PASSAGE, PASSAGE], "two": [PASSAGE]}
        once, again = shuffled_pieces(sources, 0), shuffled_pieces(sources, 0)
        assert once == again
        assert len({piece.text for piece in once}) == len(once)


class TestTeacherVectors:
    @pytest.fixture
    def small_shards(self, monkeypatch):
        monkeypatch.setattr(teaching, "SHARD", 8)

    def test_what_is_there_is_not_made_again(self, small_shards, teacher, tmp_path):
        pieces = [Piece(text, "rows", "sentence") for text, _ in make_rows(20, 0)]
        asked = []

        class Counting(Teacher):
            def vectors(self, texts):
                asked.append(len(texts))
                return super().vectors(texts)

        store, counting = TeacherVectors(tmp_path / "vectors"), Counting(open_encoder(teacher))
        store.begin({"seed": 0})
        store.fill(counting, pieces, 10, show=False)  # whole shards: a later training may want more
        assert asked == [8, 8]
        before = store.read()
        store.shard(0).unlink()  # as if the process had been killed while it wrote it
        store.fill(counting, pieces, 20, show=False)
        assert asked == [8, 8, 8, 4]
        after = store.read()
        assert after.texts == [piece.text for piece in pieces]
        assert np.array_equal(after.vectors[:16], before.vectors)
        assert np.allclose(np.linalg.norm(after.vectors.astype(np.float32), axis=1), 1, atol=2e-3)

    def test_vectors_of_something_else_are_left_alone(self, tmp_path):
        TeacherVectors(tmp_path).begin({"seed": 0, "teacher": "one"})
        with pytest.raises(UserError, match=r"something else \(teacher\)"):
            TeacherVectors(tmp_path).begin({"seed": 0, "teacher": "other"})
        with pytest.raises(UserError, match="no vectors yet"):
            TeacherVectors(tmp_path).read()

    def test_a_broken_shard_is_named(self, tmp_path):
        (tmp_path / "shard-00000.safetensors").write_bytes(b"broken")
        with pytest.raises(UserError, match="shard-00000.* delete it"):
            TeacherVectors(tmp_path).read()


class TestKeptOut:
    def test_thirteen_words_in_a_row_are_seen_whatever_stands_between_them(self):
        words = [f"word{number}" for number in range(20)]
        seen = SeenTexts([" ".join(words)])
        assert ", ".join(words[3:16]).upper() in seen
        assert " ".join(words[3:15]) not in seen
        assert " ".join([*words[3:9], "other", *words[9:16]]) not in seen

    def test_a_training_counts_them(self, teacher, tmp_path):
        rows = [(" ".join([f"{text} {text} {text}"]), "") for text, _ in make_rows(120, 0)]
        texts = write_csv(tmp_path / "train.csv", rows)
        secret = write_jsonl(tmp_path / "secret.jsonl", [{"title": text} for text, _ in rows[:7]])
        options = {"teacher": str(teacher), "width": 16, "epochs": 1, "vectors": str(tmp_path / "vectors")}
        metrics = train("encoder", texts, keep_out=secret, output=tmp_path / "run", **options, show_progress=False)
        assert metrics["kept_out"] == {"texts": 7, "pieces": 7}
        assert sum(metrics["rows"].values()) == 113


class TestObjective:
    def test_the_distance_is_the_formula(self):
        ours, theirs = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        # Of width 2: cosines 0.6 and 1; among themselves 0.8 against 0. Of width 1: 1 and 0; among themselves 0 and 0,
        # and the second text, which has nothing there, 0 with itself, in both.
        expected = ((0.2 + 2 * 0.8**2 / 4) + 0.5) / 2
        assert distance(ours, theirs, (1, 2), 1.0).item() == pytest.approx(expected, abs=1e-6)

    def test_a_turn_changes_no_cosine_and_puts_most_first(self):
        vectors = np.random.default_rng(0).normal(size=(200, 6)) * [1, 5, 2, 0.1, 3, 1]
        turned = vectors @ turn(vectors, 6)
        assert np.allclose(turned @ turned.T, vectors @ vectors.T, atol=1e-3)
        assert (np.diff(np.square(turned).sum(axis=0)) < 0).all()

    def test_frequent_tokens_begin_small(self):
        vectors = np.random.default_rng(0).normal(size=(3, 4))
        table = token_table(vectors, np.array([10_000, 10, 10]), np.eye(4), 1e-3)
        assert np.linalg.norm(table[0]) < 0.01 * np.linalg.norm(table[1])

    @pytest.mark.parametrize("mixer", available_mixers())
    def test_a_student_begins_as_the_mean_of_its_table(self, mixer):
        config = FastformerConfig(
            vocab_size=11,
            hidden_size=8,
            num_attention_heads=2,
            intermediate_size=8,
            neighbor_size=4,
            mixer=mixer,
            norm="pre",
            final_norm=False,
            head_form="full",
            pooling="mean",
            position_embedding_type="none",
        )
        model = FastformerModel(config).eval()
        table = np.random.default_rng(0).normal(size=(11, 8)).astype(np.float32)
        start_as_table(model, table)
        ids = torch.tensor([[3, 4, 5]])
        assert np.allclose(model(ids).pooler_output.detach(), table[[3, 4, 5]].mean(axis=0), atol=1e-6)

    def test_layers_do_not_move_the_table(self):
        sizes = {
            "hidden_size": 8,
            "num_attention_heads": 2,
            "intermediate_size": 8,
            "neighbor_size": 4,
            "vocab_size": 11,
        }
        forms = {"norm": "pre", "head_form": "full", "pooling": "mean", "position_embedding_type": "none"}
        ids, theirs = torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.randn(2, 8)
        gradients = []
        for layers in (1, 0):
            model = VectorLearner(FastformerConfig(num_hidden_layers=layers, **sizes, **forms), (4, 8), 1.0)
            start_as_table(model, np.random.default_rng(0).normal(size=(11, 8)).astype(np.float32))
            model(ids, ids > 0, theirs).loss.backward()
            gradients.append(model.get_input_embeddings().weight.grad)
            if layers:
                assert model.layers[0].mixer.output.weight.grad.abs().sum() > 0
        assert torch.allclose(*gradients, atol=1e-6)

    def test_pairs_are_ranked(self):
        vectors = {"a": [1, 0], "b": [0.9, 0.1], "c": [0, 1]}
        pairs = [("a", "b", 5.0), ("a", "c", 0.0), ("b", "c", 1.0)]
        assert similarity_scores(lambda texts: np.array([vectors[text] for text in texts]), pairs)["spearman"] == 1
        with pytest.raises(UserError, match="different scores"):
            similarity_scores(lambda texts: np.zeros((len(texts), 2)), [("a", "b", 1.0), ("a", "c", 1.0)])


class TestTextEncoder:
    def test_vectors_are_of_length_one_and_in_order(self, run):
        texts = [text for text, _ in make_rows(30, 3)]
        vectors = TextEncoder(run).encode(texts)
        assert vectors.shape == (30, 16)
        assert vectors.dtype == np.float32
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        assert np.allclose(TextEncoder(run).encode(texts[7]), vectors[7], atol=1e-5)
        assert TextEncoder(run).encode([]).shape == (0, 16)

    def test_any_text_has_a_vector(self, run):
        vectors = TextEncoder(run).encode(["", " \n", "мир 世界 🙂", "soup " * 100_000, "\x00\ud800 bread"])
        assert np.isfinite(vectors).all()
        assert not vectors[:2].any()
        assert np.allclose(np.linalg.norm(vectors[2:], axis=1), 1, atol=1e-5)

    def test_a_narrower_vector_is_the_first_numbers(self, run):
        whole = TextEncoder(run).encode(["the old dog and some soup"])[0]
        cut = TextEncoder(run, width=4).encode("the old dog and some soup")
        assert np.allclose(cut, whole[:4] / np.linalg.norm(whole[:4]), atol=1e-6)
        with pytest.raises(UserError, match="have 16 numbers"):
            TextEncoder(run).encode(["a"], width=17)

    def test_the_end_of_a_long_text_counts(self, run):
        head = " ".join(text for text, _ in make_rows(300, 4))
        ends = [f"{head} {' '.join([word] * 300)}" for word in ("hammer", "soup")]
        encoder = TextEncoder(run)
        assert encoder.similarity(ends)[0, 1] < 0.999
        assert encoder.search("soup", ends, top=1)[0].place == 1

    def test_the_nearest_texts_are_found(self, run):
        texts = [text for text, _ in make_rows(50, 6)]
        encoder = TextEncoder(run)
        found = encoder.search(texts[20], iter(texts), top=3)
        assert found[0] == (20, pytest.approx(1, abs=1e-5), texts[20], texts[20])
        scores = encoder.similarity([texts[20]], texts)[0]
        assert [one.place for one in found] == np.argsort(-scores, kind="stable")[:3].tolist()

    def test_a_fact_is_found_wherever_it_stands(self, run):
        long = [" ".join(text for text, _ in make_rows(200, seed)) for seed in (8, 9)]
        words = long[1].split()
        fact = "soup soup hammer dog soup hammer"
        long[1] = " ".join([*words[:-40], *[fact] * 15, *words[-40:]])
        found = TextEncoder(run).search(fact, long, top=2)
        assert [one.place for one in found] == [1, 0]
        assert fact in found[0].passage
        assert len(found[0].passage.split()) <= 100

    @pytest.mark.parametrize("count", [1, 100, 101, 150, 151, 1234])
    def test_passages_have_every_word(self, count):
        passages = passages_of(" ".join(map(str, range(count))))
        assert {int(word) for passage in passages for word in passage.split()} == set(range(count))
        assert all(len(passage.split()) <= 100 for passage in passages)

    def test_without_context_it_is_the_mean_of_its_table(self, run):
        plain = TextEncoder(run, context=False)
        table = plain.predictor().model.get_input_embeddings().weight.detach().numpy()
        ids = plain.predictor().tokenizer("the old dog")["input_ids"]
        assert np.allclose(
            plain.encode("the old dog"), table[ids].sum(0) / np.linalg.norm(table[ids].sum(0)), atol=1e-5
        )
        assert np.allclose(*plain.encode(["old dog the", "the old dog"]), atol=1e-5)

    def test_it_streams(self, run):
        endless = (f"soup number {number}" for number in iter(int, 1))
        assert len(list(islice(TextEncoder(run).stream(endless), 5))) == 5

    def test_it_is_a_part_of_a_pipeline(self, run):
        rows = make_rows(80, 7)
        texts, labels = zip(*rows, strict=True)
        pipeline = make_pipeline(TextEncoder(run), LogisticRegression(C=100)).fit(texts, labels)
        assert pipeline.score(texts, labels) > 0.8
        assert len(pipeline[0].get_feature_names_out()) == 16

    def test_mistakes_are_one_line(self, run, run_folder):
        with pytest.raises(UserError, match="no such run folder"):
            TextEncoder("nowhere").encode(["a"])
        with pytest.raises(UserError, match="a run of classification"):
            TextEncoder(run_folder).encode(["a"])
        with pytest.raises(UserError, match="text 2 is int"):
            TextEncoder(run).encode(["a", 3])
        with pytest.raises(UserError, match="width 0: .* give 1 to 16"):
            TextEncoder(run).encode(["a"], width=0)
        with pytest.raises(UserError, match="a list of texts, not one string"):
            TextEncoder(run).search("soup", "some soup with bread")

    def test_a_data_frame_is_its_column_and_not_the_name_of_it(self, run):
        texts = ["the old dog", "some soup with bread"]
        frame = pandas.DataFrame({"text": texts})
        assert np.array_equal(TextEncoder(run).transform(frame), TextEncoder(run).encode(texts))
        with pytest.raises(ValueError, match="a data frame with 2 columns"):
            TextEncoder(run).transform(frame.assign(id=[1, 2]))

    def test_sentence_transformers_loads_the_folder(self, run):
        library = pytest.importorskip("sentence_transformers")
        texts = ["the old dog", "some soup with bread", ""]
        theirs = library.SentenceTransformer(str(run), device="cpu").encode(texts)
        assert np.allclose(theirs, TextEncoder(run).encode(texts), atol=1e-5)


class TestRun:
    def test_a_training_tells_what_it_did(self, run):
        metrics = json.loads((run / "metrics.json").read_text())
        assert set(metrics["sources"]) == {"train.csv", "pairs.jsonl"}
        assert {"spearman", "agreement"} <= set(metrics["epochs"][0])
        assert (run / "course.png").stat().st_size > 1000

    def test_other_tasks_start_from_its_words(self, run, tmp_path, monkeypatch):
        monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path))
        check_word_vectors(run)
        assert kind_of(run) == "encoder"
        words = ["soup", "hammer", "dog"]
        assert np.allclose(word_vectors(open_encoder(run), words), TextEncoder(run).encode(words), atol=1e-5)

    def test_too_wide_a_student_is_refused(self, teacher, tmp_path):
        texts = write_csv(tmp_path / "train.csv", [(text, "") for text, _ in make_rows(120, 0)])
        options = {"teacher": str(teacher), "width": 64, "vectors": str(tmp_path / "vectors"), "show_progress": False}
        with pytest.raises(UserError, match="vectors have 24 numbers"):
            train("encoder", texts, output=tmp_path / "run", **options)

    def test_an_xz_file_is_read(self, tmp_path):
        with lzma.open(tmp_path / "texts.jsonl.xz", "wt") as file:
            file.write('{"text": "one"}\n{"text": "two"}\n')
        assert [row.text for row in read_rows(tmp_path / "texts.jsonl.xz", label_kind="none")] == ["one", "two"]
        (tmp_path / "broken.jsonl.xz").write_bytes(b"no xz")
        with pytest.raises(UserError, match="not a complete xz file"):
            list(read_rows(tmp_path / "broken.jsonl.xz", label_kind="none"))
