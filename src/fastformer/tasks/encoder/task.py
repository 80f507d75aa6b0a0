"""Encoders of texts as a task: pieces of text and the teacher's vectors of them, in; an encoder, out."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TokenizersBackend

from fastformer.data.batches import PadCollator, Subset
from fastformer.data.hold_out import hold_out
from fastformer.data.objects import read_objects
from fastformer.data.opening import Format, is_table
from fastformer.data.tables import Reading
from fastformer.data.tokenizers import load_tokenizer
from fastformer.engine.fit import Trained, Workspace, check_mixers, explained_configuration
from fastformer.engine.settings import problem_with
from fastformer.engine.word_encoder import EncoderFolder, encode_ids, encoder_hash, kept_vectors, open_encoder
from fastformer.errors import UserError
from fastformer.modeling import FastformerConfig, FastformerModel
from fastformer.surroundings.files import cache_folder
from fastformer.surroundings.progress import how_many, say
from fastformer.tasks.base import Card, Parts, Shown, Task
from fastformer.tasks.encoder.course import COURSE_FILE, plot_course
from fastformer.tasks.encoder.declaration import EncoderSettings
from fastformer.tasks.encoder.objective import VectorLearner, start_as_table, token_table, turn, widths
from fastformer.tasks.encoder.overlaps import SeenTexts
from fastformer.tasks.encoder.pieces import Piece, shuffled_pieces
from fastformer.tasks.encoder.predictor import EncoderPredictor, TextVectors, similarity_scores
from fastformer.tasks.encoder.sentence_transformers import MODULES_FILE, write_modules
from fastformer.tasks.encoder.teacher import Teacher, TeacherVectors, default_teacher
from fastformer.tasks.texts import Texts, encoder_config

MOST_HELD_OUT = 1000
LONGEST_PIECE = 126  # tokens; the teacher reads 128, and has two marks


class Encoder(Task[EncoderSettings, Parts[EncoderSettings]]):
    """A small encoder that learns from a large one."""

    def check(self, settings: EncoderSettings) -> EncoderSettings:
        """Refuse a method that nobody knows; the sizes are those of the model."""
        check_mixers(settings.mixer)
        sizes = {"hidden_size": settings.width, "intermediate_size": settings.width}
        return settings.with_options(model={"num_hidden_layers": settings.layers, **sizes})

    def read(
        self, source: Any, split: str, settings: EncoderSettings, *, labelled: bool = True, format: Format | None = None
    ) -> Any:
        """Texts; `validation` and `test` are pairs with a score, `pairs` pairs without, `keep_out` anything."""
        if split == "train" or (not labelled and not isinstance(source, list)):
            sources = (source,) if isinstance(source, str | Path) else tuple(source)
            return Texts(tuple(map(str, sources)), settings.reading(split, format), every_row=not labelled).check()
        if not labelled:
            return source
        if split == "pairs":
            return {name: Columns(name, ("a", "b")).check() for name in _files(source)}
        if split == "keep_out":
            return [
                Columns(name, None) if _has_objects(name) else Texts((name,), Reading(split=split))
                for name in _files(source)
            ]
        return ScoredPairs(source).check()

    def encode(self, data: Mapping[str, Any], settings: EncoderSettings, workspace: Workspace) -> Parts:
        """Ask the teacher, or find what it said before; leave out what must not be learned from."""
        folder = open_encoder(default_teacher() if settings.teacher is None else Path(settings.teacher))
        tokenizer = _student_tokenizer(folder, workspace, settings.max_length)
        sources = {name: Texts((name,), settings.reading("train")) for name in data["train"].sources}
        pieces = shuffled_pieces(sources | dict(data.get("pairs", {})), settings.training.seed)
        store = self._taught(pieces, folder, settings, workspace)
        taught = store.read(settings.pieces)

        seen = SeenTexts(text for texts in data.get("keep_out", ()) for text in texts)
        kept = [row for row, text in enumerate(taught.texts) if text not in seen]
        overlaps = len(taught.texts) - len(kept)
        if seen.texts and workspace.show:
            say(
                f"{how_many(overlaps, 'pieces', 'share', len(taught.texts))} 13 words in a row with one of "
                f"{seen.texts:,} texts to keep out, and {'is' if overlaps == 1 else 'are'} left out."
            )
        vectors = taught.vectors[kept]
        encoded = workspace.encode(
            "train", (taught.texts[row] for row in kept), tokenizer, LONGEST_PIECE, total=len(kept)
        )
        if vectors.shape[1] < settings.width:
            raise UserError(
                f"--width {settings.width}: the teacher's vectors have {vectors.shape[1]} numbers; give fewer"
            )
        turned = turn(vectors, settings.width)
        encoded.labels = (vectors @ turned.astype(vectors.dtype)).astype(np.float16)
        rows = np.flatnonzero(encoded.lengths > 0)
        training, validating = (
            Subset(encoded, rows[some]) for some in hold_out(len(rows), settings.training.seed, most=MOST_HELD_OUT)
        )
        pairs = data.get("validation")
        self.table = lambda: token_table(
            _token_vectors(folder, tokenizer, workspace.show), encoded.counts(_size(tokenizer)), turned, settings.rare
        )
        return Parts(
            settings=settings,
            tokenizer=tokenizer,
            train=training,
            validation=_validation(validating, pairs, tokenizer),
            collate=PadCollator(tokenizer.pad_token_id),
            score="agreement" if pairs is None else "spearman",
            scores=("agreement",) if pairs is None else ("spearman", "agreement"),
            fingerprint={"train": training.arrays, "validation": validating.arrays},
            rows={"train": len(training), "validation": len(validating)},
            about={
                "tokens": int(training.lengths.sum()),
                "kept_out": {"texts": seen.texts, "pieces": overlaps},
                "sources": {name: int(count) for name, count in zip(*_counted(pieces, len(taught.texts)), strict=True)},
            },
        )

    def _taught(
        self, pieces: list[Piece], folder: EncoderFolder, settings: EncoderSettings, workspace: Workspace
    ) -> TeacherVectors:
        """The teacher's vectors of as many pieces as are wanted, made where they are missing."""
        told = hashlib.blake2b(digest_size=16)
        for piece in pieces:
            told.update(piece.text.encode())
        about = {"teacher": encoder_hash(folder), "pieces": len(pieces), "texts": told.hexdigest()}
        place = cache_folder() / f"teacher-{told.hexdigest()}" if settings.vectors is None else Path(settings.vectors)
        store = TeacherVectors(place)
        store.begin(about)
        wanted = len(pieces[: settings.pieces])
        if store.missing(wanted):
            store.fill(Teacher(folder), pieces, wanted, show=workspace.show)
        return store

    def build(self, parts: Parts, workspace: Workspace) -> VectorLearner:
        """A student that begins as the table of the teacher's token vectors."""
        settings = parts.settings
        with explained_configuration():
            config = FastformerConfig(**encoder_config(settings, parts.tokenizer))
        learner = VectorLearner(config, widths(settings.width), settings.relations)
        start_as_table(learner, self.table())
        return learner

    def finish(
        self, model: VectorLearner, parts: Parts, history: list[dict[str, float]], workspace: Workspace
    ) -> tuple[PreTrainedModel, dict[str, float]]:
        """The encoder without its training; weights rounded to half precision, in which it may be kept."""
        kept = FastformerModel(model.config)
        kept.load_state_dict({name: weight.half().float() for name, weight in model.state_dict().items()})
        return kept, super().finish(model, parts, history, workspace)[1]

    def model_class(self, record: Mapping[str, Any]) -> type[PreTrainedModel]:
        """What a run's weights are weights of."""
        return FastformerModel

    def predictor(self, trained: Trained[EncoderSettings]) -> EncoderPredictor:
        """An encoder that is ready to use."""
        return EncoderPredictor(trained)

    def card(self, trained: Trained[EncoderSettings], name: str) -> Card:
        """What the run's README says of this task."""
        kept_out = trained.metrics["kept_out"]
        return Card(
            what="Vectors of texts, to compare by cosine: of length 1, for texts of any length.",
            pipeline_tag="sentence-similarity",
            tags=[trained.record["mixer"], "sentence-similarity"],
            notes=[
                f"A vector may be cut to its first {', '.join(map(str, widths(trained.settings.width)[:-1]))} numbers.",
                f"{kept_out['pieces']:,} pieces shared 13 words in a row with {kept_out['texts']:,} texts that were to "
                "be kept out.",
            ],
            usage=f"""```bash
fastformer embed {name} texts.csv --output vectors.npy
fastformer search texts.csv "what to look for" --model {name}
```

```python
from fastformer import TextEncoder

vectors = TextEncoder("{name}").encode(["A first text.", "A second one."])
```""",
        )

    def trained_tables(self, metrics: Mapping[str, Any], title: str) -> Iterator[Shown]:
        """What is printed after a training: on test pairs other scores than on pieces."""
        rows = {part: metrics[part] for part in ("validation", "test") if part in metrics}
        yield Shown(
            title, rows, [name for name in ("agreement", "spearman") if any(name in row for row in rows.values())]
        )

    def pictures(self, trained: Trained[EncoderSettings]) -> Mapping[str, Callable[[Path], None]]:
        """The course of the training; and beside it what lets sentence-transformers load the folder."""
        modules = {MODULES_FILE: lambda path: write_modules(path, trained.settings.width)}
        if len(trained.metrics["epochs"]) < 2:  # a point is no course
            return modules
        title = "the encoder learns"
        return modules | {COURSE_FILE: lambda path: plot_course(trained.metrics, path, f"{path.parent.name}: {title}")}


class Columns:
    """The texts of some columns of JSON lines or Parquet, or of all that hold texts; can be read many times."""

    def __init__(self, name: str, columns: tuple[str, ...] | None):
        self.name, self.columns = name, columns

    def __iter__(self) -> Iterator[str]:
        for _, row in read_objects(self.name, self.columns or (), None):
            values = row.values() if self.columns is None else (row[column] for column in self.columns)
            yield from (value for value in values if isinstance(value, str))

    def check(self) -> "Columns":
        """Read one: a wrong file or column fails here."""
        next(iter(self), None)
        return self


class ScoredPairs:
    """Pairs of texts and how alike they are: the columns a, b and score."""

    def __init__(self, source: Any):
        self.source = source

    def __iter__(self) -> Iterator[tuple[str, str, float]]:
        names = ("a", "b", "score")
        if isinstance(self.source, list):
            rows: Iterable = ((f"example {number}", row) for number, row in enumerate(self.source, 1))
        else:
            rows = read_objects(self.source, names)
        for where, row in rows:
            first, second, score = (row.get(name) for name in names)
            if not isinstance(first, str) or not isinstance(second, str) or problem_with(score, float):
                raise UserError(f"{where}: give two texts, a and b, and a finite number, score")
            yield first, second, float(score)

    def check(self) -> "ScoredPairs":
        """Read one: a wrong file or column fails here."""
        next(iter(self), None)
        return self


def _files(source: Any) -> list[str]:
    """One file, several with commas between them, or a list."""
    if isinstance(source, str | Path):
        return [str(source)] if Path(source).is_file() else str(source).split(",")
    return [str(one) for one in source]


def _has_objects(name: str) -> bool:
    return is_table(name) and not name.lower().removesuffix(".gz").removesuffix(".xz").endswith((".csv", ".tsv"))


def _counted(pieces: list[Piece], most: int) -> tuple[list[str], list[int]]:
    names, counts = np.unique([Path(piece.source).name for piece in pieces[:most]], return_counts=True)
    return names.tolist(), counts.tolist()


def _size(tokenizer: PreTrainedTokenizerBase) -> int:
    return 1 + max(tokenizer.get_vocab().values())


def _student_tokenizer(folder: EncoderFolder, workspace: Workspace, max_length: int) -> PreTrainedTokenizerBase:
    """The teacher's tokens without its marks at the ends; a resumed training has the very same."""
    place = workspace.folder / "tokenizer"
    if not place.is_dir():
        teachers = load_tokenizer(folder.folder)
        if not teachers.is_fast:
            raise UserError(f"{folder.folder}: its tokenizer has no tokenizer.json; give --teacher another")
        state = teachers.backend_tokenizer.to_str()
        backend = Tokenizer.from_str(state)
        backend.post_processor = None
        backend.no_truncation()
        backend.no_padding()
        special = {"pad_token": teachers.pad_token, "unk_token": teachers.unk_token}
        options = {"model_input_names": ["input_ids", "attention_mask"], "split_special_tokens": True}
        made = TokenizersBackend(tokenizer_object=backend, **special, **options)
        made.model_max_length = max_length
        made.save_pretrained(place)
    return load_tokenizer(place)


def _token_vectors(folder: EncoderFolder, tokenizer: PreTrainedTokenizerBase, show: bool) -> np.ndarray:
    """The teacher's vector of each token by itself, between its marks; kept in the cache."""
    size = _size(tokenizer)

    def make() -> np.ndarray:
        word = load_tokenizer(folder.folder)("a", return_special_tokens_mask=True)
        is_mark = np.array(word["special_tokens_mask"], dtype=bool)
        first = int(np.argmin(is_mark))
        before, after = np.split(np.array(word["input_ids"], dtype=np.int32)[is_mark], [first])
        tokens = np.arange(size, dtype=np.int32)
        return encode_ids(folder, [np.concatenate([before, token, after]) for token in tokens[:, None]], show)

    return kept_vectors(f"tokens-{encoder_hash(folder)}", size, make)


def _validation(
    pieces: Subset, pairs: Any, tokenizer: PreTrainedTokenizerBase
) -> Callable[[VectorLearner], dict[str, float]]:
    """Mean cosine with the teacher on held-out pieces, and the scores of pairs where there are any."""

    def score(model: VectorLearner) -> dict[str, float]:
        ids = [pieces[row]["input_ids"] for row in range(len(pieces))]
        ours = np.stack(list(TextVectors(model, tokenizer).of_ids(ids)))
        theirs = pieces.labels.astype(np.float32)
        theirs /= np.linalg.norm(theirs, axis=1, keepdims=True).clip(1e-12)
        found = {"agreement": float((ours * theirs).sum(axis=1).mean())}
        if pairs is not None:
            found |= similarity_scores(lambda texts: np.stack(list(TextVectors(model, tokenizer)(texts))), pairs)
        return found

    return score
