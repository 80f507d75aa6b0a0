"""The built-in corpus: docstrings of our own dependencies, labelled by the library they come from.

The text is read from the sources installed on this machine, so nothing is downloaded and nothing is shipped; other
package versions give slightly other rows. Packages are located and parsed, never imported. Three rules keep the task
honest: library names and their aliases are masked, inside longer identifiers too; a whole module stands on one side
of the split, by a hash of its name; and a docstring that mostly repeats earlier ones is dropped, the training rows
coming first, so no test row is a copy of what was trained on. Modules are visited in the order of their hash until a
library's share is full, which samples it without parsing all of it. The result is kept in the user's cache folder.
"""

import ast
import contextlib
import gc
import gzip
import importlib.util
import json
import os
import re
import sys
import sysconfig
import warnings
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from importlib import metadata
from inspect import cleandoc
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fastformer.data.tables import Row
from fastformer.errors import UserError
from fastformer.surroundings.files import cache_folder

# Label, which is also the name on the package index -> import name. Those that are not installed are left out: nltk and
# pandas come with extras of this package, the others with `pip install fastformer`.
LIBRARIES = {
    "huggingface-hub": "huggingface_hub",
    "networkx": "networkx",
    "nltk": "nltk",
    "numpy": "numpy",
    "pandas": "pandas",
    "python": None,  # the standard library
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "sympy": "sympy",
    "torch": "torch",
    "transformers": "transformers",
}
ROWS_PER_LIBRARY = {"train": 800, "validation": 120, "test": 120}  # at most: small libraries have fewer
MINIMUM_WORDS = 20
MASK = "LIBRARY"

# Tests, vendored copies, generated doubles and programs that merely live beside the library.
_SKIPPED = re.compile(
    r"_?tests?|testing|test_.*|.*_test|conftest|__pycache__|site-packages|dist-packages|config-.*"
    r"|_?vendor(ed)?|_?externals?|extern|third_party|modular_.*|idlelib|lib2to3|ensurepip|turtledemo|pydoc_data"
)
_WORD = re.compile(r"hugging\s+face|natural\s+language\s+toolkit|huggingface\.co\b|\w\w+", re.IGNORECASE)
_NAME = re.compile(
    r".*(?:torch|numpy|scikit|sklearn|scipy|sympy|pandas|networkx|nltk|huggingface|python).*"
    r"|hugging\s+face|natural\s+language\s+toolkit|transformers|datasets|hub|stdlib|np|nn|nx|pd|sp|sk|hf"
    r"|(?-i:Hf[A-Z].*|(?:HF|hf|np|nx|pd)_.*)",
    re.IGNORECASE | re.DOTALL,
)


class Docstring(NamedTuple):
    """One docstring as its author wrote it, indentation apart."""

    library: str  # a key of LIBRARIES
    module: str  # dotted, such as "torch.nn.functional"
    name: str  # qualified name inside the module; "" for the module's own
    text: str


def builtin_rows(split: str) -> Iterator[Row]:
    """The rows (masked docstring, library) of `split`: "train", "validation" or "test"."""
    if split not in ROWS_PER_LIBRARY:
        raise UserError(f"builtin has no split {split!r}: use one of {', '.join(ROWS_PER_LIBRARY)}")
    return (Row(text, label) for text, label in _load()[split])


def docstrings(library: str, split: str | None = None) -> Iterator[Docstring]:
    """Every docstring of a library that has MINIMUM_WORDS words, unmasked; of one split's modules if it is named."""
    for module, path in _modules(library):
        if split in (None, split_of(module)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # other people's invalid escapes
                    tree = ast.parse(Path(path).read_bytes())
            except (SyntaxError, ValueError):  # written for another Python
                continue
            for name, text in _walk(tree, ()):
                if len(text.split()) >= MINIMUM_WORDS and "copyright" not in text.lower():
                    yield Docstring(library, module, name, cleandoc(text))


def mask_names(text: str) -> str:
    """Replace every word that is or holds a library's name or alias by one neutral word."""
    return _WORD.sub(lambda match: _mask_word(match[0]), text)


def split_of(module: str) -> str:
    """The split on which a module stands: an eighth of them on validation, an eighth on test."""
    return {0: "validation", 1: "test"}.get(_hash(module) % 8, "train")


_DAMAGED = (OSError, EOFError, ValueError, zlib.error, RecursionError)  # what reading a damaged cache raises


def _kept() -> Path:
    """Where the corpus of these very versions is kept."""
    versions = [sys.version] + [f"{name} {metadata.version(name)}" for name in _installed() if LIBRARIES[name]]
    key = _hash(Path(__file__).read_text("utf-8") + " ".join(versions))
    return cache_folder() / f"builtin-{key:016x}.json.gz"


@cache
def _load() -> dict[str, list[tuple[str, str]]]:
    """The corpus from the cache folder, else built and left there; a cache that cannot be used is no error."""
    path = _kept()
    with contextlib.suppress(*_DAMAGED), gzip.open(path, "rt", encoding="utf-8") as file:
        kept = json.load(file)
        if _is_corpus(kept):
            return kept
    corpus = _build()
    aside = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(aside, "wt", encoding="utf-8", compresslevel=3) as file:
            json.dump(corpus, file)
        aside.replace(path)
    return corpus


def _is_corpus(kept: Any) -> bool:
    """Whether a cache holds what `_build` gives: pairs of text and library in each split."""
    return (
        isinstance(kept, dict)
        and kept.keys() == ROWS_PER_LIBRARY.keys()
        and all(
            isinstance(rows, list)
            and all(isinstance(row, list) and len(row) == 2 and {*map(type, row)} == {str} for row in rows)
            for rows in kept.values()
        )
    )


def _build() -> dict[str, list[tuple[str, str]]]:
    """All splits together: what the training rows hold decides what the others may."""
    seen: set[int] = set()
    corpus: dict[str, list[tuple[str, str]]] = {}
    collecting = gc.isenabled()
    gc.disable()  # syntax trees are millions of objects but no cycles: looking for some takes as long as parsing
    try:
        for split, share in ROWS_PER_LIBRARY.items():
            corpus[split] = []
            for library in _installed():
                texts = (mask_names(found.text) for found in docstrings(library, split))
                fresh = (text for text in texts if not _is_copy(text, seen))
                corpus[split] += ((text, library) for text in islice(fresh, share))
    finally:
        if collecting:
            gc.enable()
    return corpus


def need_libraries(libraries: Iterable[str]) -> None:
    """An error in one line if one of these libraries is not installed."""
    if missing := [library for library in libraries if library not in _installed()]:
        raise UserError(
            f"builtin: needs the docstrings of {' and '.join(missing)}; run: pip install {' '.join(missing)}"
        )


def _installed() -> list[str]:
    """The libraries whose sources are here."""
    return [library for library, package in LIBRARIES.items() if package is None or importlib.util.find_spec(package)]


def _root(library: str) -> str:
    package = LIBRARIES[library]
    if package is None:
        return sysconfig.get_paths()["stdlib"]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UserError(
            f"the built-in corpus reads the sources of {library}, not installed here: pip install {library}"
        )
    return os.path.dirname(spec.origin)


@cache
def _modules(library: str) -> list[tuple[str, str]]:
    """(dotted name, file) of the modules worth reading, in the order of their hashes."""
    root, found = _root(library), []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not _SKIPPED.fullmatch(name)]
        package = [LIBRARIES[library], *folder.removeprefix(root).split(os.sep)]
        for file in files:
            stem, suffix = os.path.splitext(file)
            if suffix == ".py" and not _SKIPPED.fullmatch(stem):
                module = ".".join(filter(None, [*package, "" if stem == "__init__" else stem]))
                found.append((module, os.path.join(folder, file)))
    return sorted(found, key=lambda item: _hash(item[0]))


_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _walk(node: _Documented, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(qualified name, docstring) of a module, class or function and of the classes and methods in its body."""
    text = ast.get_docstring(node, clean=False)
    if text:
        yield ".".join(path), text
    if isinstance(node, ast.Module | ast.ClassDef):
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _walk(child, (*path, child.name))


@cache
def _mask_word(word: str) -> str:
    return MASK if _NAME.fullmatch(word) else word


def _is_copy(text: str, seen: set[int]) -> bool:
    """Whether most runs of five words of `text` stand in earlier texts; if not, remember them."""
    runs = _runs(text)
    if 2 * len(runs & seen) > len(runs):
        return True
    seen |= runs
    return False


def _runs(text: str) -> set[int]:
    words = re.findall(r"\w+", text.lower())
    return set(map(hash, zip(*(words[start:] for start in range(5)), strict=False)))


def _hash(name: str) -> int:
    """The same in every process, unlike Python's own."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
