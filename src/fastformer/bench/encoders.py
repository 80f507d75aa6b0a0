"""An encoder of texts against MiniLM, tables of token vectors, GloVe and BM25: similarity, retrieval, length, speed.

`DATA/sts/NAME/test.jsonl.gz` has pairs a, b and their score; `DATA/sts/vaswani` a retrieval test: docs, queries, qrels.
Classification with frozen vectors is in `bench suite`, as a method among the others.

The long documents are made here. Each is passages of a file, as many as make 5,000 words, and one more, the fact, that
begins in the last tenth. A query is the other half of the fact. An encoder that is cut at 256 tokens cannot find it; by
the passages of a document, as `search` goes, any may. BM25 is asked both ways too.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from fastformer.bench.comparing import write_json_aside
from fastformer.bench.measuring import describe_machine, measuring
from fastformer.data.glove import load_glove
from fastformer.data.objects import read_objects
from fastformer.data.passages import passages_of
from fastformer.data.tables import read_rows
from fastformer.engine.word_encoder import open_encoder
from fastformer.errors import UserError
from fastformer.surroundings.progress import say
from fastformer.tasks.classification.minilm import static_encoder
from fastformer.tasks.encoder.predictor import similarity_scores
from fastformer.tasks.encoder.task import ScoredPairs
from fastformer.tasks.encoder.teacher import Teacher, default_teacher
from fastformer.tasks.encoder.text_encoder import TextEncoder

Encode = Callable[[Sequence[str]], np.ndarray]
LENGTHS = (32, 512, 4096, 65_536)
WORDS, TENTH = 5000, 0.9
DOCUMENTS = 100
DEEP = 10  # nDCG@10
MINILM_TOKENS = 256  # where sentence-transformers cuts texts for it
PLAIN = ("the", "house", "of", "a", "man", "who", "went", "to", "see", "water", "and", "some", "other", "days")
SECONDS = 2.0  # of a measurement of speed, at least


def encoders(
    data: str | Path,
    output: str | Path | None = None,
    *,
    model: str = "base",
    passages: str | None = None,
    what: str = "similarity,retrieval,long,speed",
    threads: int | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Measure; what was measured is returned, and written to encoder.json in `output` after every part."""
    folder = Path(data)
    measured: dict[str, Any] = {}
    parts = {
        "similarity": lambda compared: _similarity(folder, compared),
        "retrieval": lambda compared: _retrieval(folder / "sts" / "vaswani", compared),
        "long": lambda compared: _long(passages or str(folder / "pretraining" / "openstax.jsonl.xz"), compared),
        "speed": lambda compared: _speed(compared),
    }
    for name in what.split(","):
        if name not in parts:
            raise UserError(f"--what {name}: choose from {', '.join(parts)}")
    with measuring(threads) as used:
        result = {"machine": describe_machine(used), "model": model, "measured": measured}
        compared = _compared(model, folder)
        for name in what.split(","):
            if show_progress:
                say(f"{name} …")
            measured[name] = parts[name](compared)
            if output is not None:
                Path(output).mkdir(parents=True, exist_ok=True)
                write_json_aside(Path(output) / "encoder.json", result)
    return result


def _compared(model: str, folder: Path) -> dict[str, Encode]:
    """Encoders by name: ours, its table alone, and what is installed or there of others."""
    ours = TextEncoder(model).fit()
    found: dict[str, Encode] = {"ours": ours.encode, "its table alone": TextEncoder(model, context=False).encode}
    try:
        teacher = Teacher(open_encoder(default_teacher()), MINILM_TOKENS)
        found |= {"MiniLM": teacher.vectors, "static MiniLM": static_encoder()}
    except UserError:  # not installed
        pass
    glove = folder / "glove" / "glove.100d.100k.txt.gz"
    if glove.is_file():
        found["GloVe, mean"] = _glove(glove)
    return found


def _glove(path: Path) -> Encode:
    """Means of GloVe vectors of words, of length 1; a word that GloVe lacks has a random one."""
    split = CountVectorizer(token_pattern=r"(?u)\b\w+\b").build_analyzer()

    def encode(texts: Sequence[str]) -> np.ndarray:
        said = [split(text) for text in texts]
        vocabulary = {word: row for row, word in enumerate(sorted({word for text in said for word in text}))}
        vectors, _ = load_glove(path, vocabulary, 100, seed=0)
        sums = np.stack([vectors[[vocabulary[word] for word in text]].sum(axis=0) for text in said])
        return sums / np.linalg.norm(sums, axis=1, keepdims=True).clip(1e-9)

    return encode


def _similarity(folder: Path, compared: dict[str, Encode]) -> dict[str, Any]:
    """Spearman's correlation on every `sts/NAME/test` file."""
    found: dict[str, Any] = {}
    for test in sorted((folder / "sts").glob("*/test.jsonl.gz")):
        pairs = list(ScoredPairs(test))
        found[test.parent.name] = {
            name: round(similarity_scores(encode, pairs)["spearman"], 4) for name, encode in compared.items()
        }
        whole, scores = compared["ours"], {}
        for width in (64, 128):
            cut = partial(_cut, whole, width)
            scores[f"ours, {width} numbers"] = round(similarity_scores(cut, pairs)["spearman"], 4)
        found[test.parent.name] |= scores
    return found


def _cut(encode: Encode, width: int, texts: Sequence[str]) -> np.ndarray:
    vectors = encode(texts)[:, :width]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9)


def _retrieval(folder: Path, compared: dict[str, Encode]) -> dict[str, float]:
    """nDCG@10 of ranking all documents for each query, and of BM25 (k1 1.2, b 0.75)."""
    docs = {str(row["id"]): row["text"] for _, row in read_objects(folder / "docs.jsonl.gz", ("id", "text"))}
    queries = {str(row["id"]): row["text"] for _, row in read_objects(folder / "queries.jsonl.gz", ("id", "text"))}
    relevant: dict[str, dict[str, float]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines():
        query, document, grade = line.split("\t")[:3]
        if query in queries:
            relevant.setdefault(query, {})[document] = float(grade)
    names, texts = list(docs), list(docs.values())
    asked = list(relevant)
    wanted = [queries[query] for query in asked]
    ranked = {"BM25": bm25(texts, wanted)}
    ranked |= {name: encode(wanted) @ encode(texts).T for name, encode in compared.items()}
    return {
        name: round(
            float(np.mean([ndcg(row, names, relevant[query]) for row, query in zip(scores, asked, strict=True)])), 4
        )
        for name, scores in ranked.items()
    }


def bm25(texts: Sequence[str], queries: Sequence[str], k1: float = 1.2, b: float = 0.75) -> np.ndarray:
    """Σ idf · tf (k1 + 1) / (tf + k1 (1 - b + b · length / mean length)) over a query's words: (queries, texts)."""
    words = CountVectorizer(token_pattern=r"(?u)\b\w+\b")
    counts = words.fit_transform(texts).astype(np.float64).tocoo()
    lengths = np.bincount(counts.row, counts.data, minlength=len(texts))
    frequency = np.bincount(counts.col, minlength=counts.shape[1])
    idf = np.log(1 + (len(texts) - frequency + 0.5) / (frequency + 0.5))
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    counts.data = idf[counts.col] * counts.data * (k1 + 1) / (counts.data + norm[counts.row])
    return (words.transform(queries) @ counts.tocsr().T).toarray()


def ndcg(scores: np.ndarray, names: Sequence[str], relevant: dict[str, float]) -> float:
    """Σ grade / log2(1 + rank) over the first ten, as a share of the best possible."""
    best = np.argsort(-scores, kind="stable")[:DEEP]
    discounts = 1 / np.log2(np.arange(2, DEEP + 2))
    gained = sum(relevant.get(names[place], 0.0) * discounts[rank] for rank, place in enumerate(best))
    ideal = sorted(relevant.values(), reverse=True)[:DEEP]
    return gained / sum(grade * discount for grade, discount in zip(ideal, discounts, strict=False))


def long_documents(passages: Sequence[str], count: int, seed: int = 0) -> tuple[list[str], list[str], list[str]]:
    """Documents of 5,000 words with a fact in the last tenth, queries for the facts, and each without its fact."""
    order = iter(np.random.default_rng(seed).permutation(len(passages)))
    documents, queries, without = [], [], []
    for _ in range(count):
        fact = passages[next(order)].split()
        half = len(fact) // 2
        words: list[str] = []
        while len(words) < WORDS - half:
            words += passages[next(order)].split()
        words = words[: WORDS - half]
        place = int(TENTH * WORDS) + (WORDS - int(TENTH * WORDS) - half) // 2
        documents.append(" ".join([*words[:place], *fact[:half], *words[place:]]))
        without.append(" ".join(words))
        queries.append(" ".join(fact[half:]))
    return documents, queries, without


def _long(source: str, compared: dict[str, Encode]) -> dict[str, Any]:
    rows = islice(read_rows(source, label_kind="none"), 40 * DOCUMENTS)
    return long_scores([row.text for row in rows], DOCUMENTS, compared)


def long_scores(passages: Sequence[str], count: int, compared: dict[str, Encode]) -> dict[str, dict[str, float]]:
    """How often the document whose last tenth has the fact is found among all, and how far the fact moves it."""
    documents, queries, without = long_documents(passages, count)
    shuffled = [_swapped(text, number) for number, text in enumerate(documents)]
    split = [passages_of(text) for text in documents]
    pieces, counts = [passage for some in split for passage in some], [len(some) for some in split]
    found = {"BM25": found_facts(bm25(documents, queries), bm25(pieces, queries), counts)}
    for name, encode in compared.items():
        vectors, wanted = encode(documents), encode(queries)
        moved = {
            f"moved by {what}": float(f"{np.median(1 - (vectors * encode(others)).sum(axis=1)):.3g}")
            for what, others in (("the fact", without), ("noise", shuffled))
        }
        found[name] = found_facts(wanted @ vectors.T, wanted @ encode(pieces).T, counts) | moved
    return found


def found_facts(whole: np.ndarray, passages: np.ndarray, counts: Sequence[int]) -> dict[str, float]:
    """How often query i finds document i: by the document as a whole, and by the best of its passages.

    whole: scores (queries, documents). passages: scores (queries, passages of all documents), `counts` of each.
    """
    best = np.maximum.reduceat(passages, np.cumsum([0, *counts[:-1]]), axis=1)
    found = {}
    for how, scores in (("", whole), (" by passages", best)):
        ranks = (scores >= scores.diagonal()[:, None]).sum(axis=1) - 1  # what scores the same comes first
        found[f"found first{how}"] = round(float((ranks == 0).mean()), 3)
        found[f"found in ten{how}"] = round(float((ranks < DEEP).mean()), 3)
    return found


def _swapped(text: str, seed: int) -> str:
    """The same words, the middle tenth of them in another order: what should not matter to what a text is about."""
    words = text.split()
    middle = slice(int(0.4 * len(words)), int(0.5 * len(words)))
    words[middle] = np.random.default_rng(seed).permutation(words[middle]).tolist()
    return " ".join(words)


def _speed(compared: dict[str, Encode]) -> dict[str, Any]:
    """Documents per CPU second, from text to vector, by their length in tokens (of one piece per word)."""
    found: dict[str, Any] = {}
    for length in LENGTHS:
        words = np.random.default_rng(0).choice(PLAIN, length)
        batch = [" ".join(words)] * max(1, 16_384 // length)
        found[str(length)] = {
            name: float(f"{_rate(compared[name], batch):.4g}")
            for name in ("ours", "its table alone", "MiniLM")
            if name in compared
        }
    return found


def _rate(encode: Encode, batch: list[str]) -> float:
    encode(batch[:1])
    start, done = time.process_time(), 0
    while (spent := time.process_time() - start) < SECONDS:
        encode(batch)
        done += len(batch)
    return done / spent
