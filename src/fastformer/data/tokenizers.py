"""Text to token ids: train a tokenizer on a stream of texts, load a saved one, encode in batches.

Four kinds can be trained: `word` (words and single punctuation marks), `pieces` (the same, and a word that is not in
the vocabulary is read as pieces of words), `bpe` (byte-level BPE, which gives back any text exactly) and `nltk` (the
paper's `word_tokenize`). All number their tokens in Rust, save as JSON
alone (`save_pretrained`), begin with [PAD]=0, [UNK]=1, [MASK]=2, and read a text as plain text: they add no
token of their own, and "[PAD]" written in a document is punctuation and a word. (To fill masks, call one with
`split_special_tokens=False`; the file of a run of masked words says so, for the pipelines of transformers.)
"""

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from huggingface_hub import HfApi
from tokenizers import Encoding, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase, TokenizersBackend

from fastformer.data import word_ids
from fastformer.data.cutting import FARTHEST, LEAST, MOST, as_far_as_read, beginning, has_more_tokens
from fastformer.data.values import valid_unicode
from fastformer.errors import UserError, extra

SentenceSplit = Literal["punkt", "rule"]
KINDS = ("word", "pieces", "bpe", "nltk")
CONTINUED = "##"  # before a piece that does not begin a word
_LONGEST_PIECE = 5
_MOST_PIECES = 8000
_PIECE_WORDS = 3  # rare words that must have a piece
_RARE_WORDS = 50_000  # that are looked at for pieces
_LONGEST_WORD = 64

SPECIAL_TOKENS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}  # ids 0, 1, 2

# Lengths are capped so that a text without spaces (DNA, a data dump) stays linear and fits in a vocabulary.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORDS = "|".join(
    [
        rf"[{UNSPACED}]\p{{M}}{{0,8}}",  # scripts without spaces: one character and its marks
        r"\p{N}{1,32}(?:[.,]\p{N}{1,32}){0,8}",  # 1999, 3.14, 1,000,000
        r"(?:\p{L}\.){2,8}",  # u.s., a.m.
        rf"(?:(?!(?i:n't)\b)[\p{{L}}\p{{M}}\p{{N}}&&[^{UNSPACED}]]){{1,64}}",  # a word, up to its n't
        r"(?i:n't|'(?:s|re|ve|m|ll|d))\b",  # English clitics, as GloVe's own tokenizer has them
        r"[^\s\p{L}\p{M}\p{N}\p{Cc}\p{Cf}]",  # one mark; control and invisible characters are dropped
    ]
)
_BYTE_RUNS = "|".join(
    [
        r"'(?i:s|t|re|ve|m|ll|d)\b",
        r" ?[\p{L}\p{M}]{1,64}",
        r" ?\p{N}{1,3}",
        r" ?[^\s\p{L}\p{M}\p{N}]{1,16}",
        r"\s{1,64}(?!\S)",
        r"\s",
    ]
)


def train_tokenizer(
    kind: str,
    texts: Iterable[str],
    *,
    vocab_size: int,
    min_frequency: int = 2,
    lowercase: bool = True,
    further: Callable[[Mapping[str, int]], Sequence[str]] | None = None,
) -> TokenizersBackend:
    """Train a tokenizer on `texts`, read once and never held in memory together.

    kind: `word`, `pieces`, `bpe` or `nltk`.
    vocab_size: most tokens to keep, the three special ones included; the frequent win.
    min_frequency: a word (`bpe`: a pair to merge) seen less often is left out, so that [UNK] is seen in training.
    lowercase: for `word`, `pieces` and `nltk`; `bpe` keeps the text as it is.
    further: for `pieces`: given how often each word is in the texts, which more to keep if there is room.
    """
    if kind not in KINDS:
        raise UserError(f"unknown tokenizer {kind!r}; choose {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    alphabet = pre_tokenizers.ByteLevel.alphabet() if kind == "bpe" else []
    smallest = len(SPECIAL_TOKENS) + (len(alphabet) or 1)
    if vocab_size < smallest:
        raise UserError(f"vocab_size is {vocab_size}; a {kind} tokenizer needs at least {smallest}")

    batches = ([part for text in batch for part in _parts(text)] for batch in _batches(texts))
    tokenizer_class = TokenizersBackend
    settings = {"model_input_names": ["input_ids", "attention_mask"], "split_special_tokens": True, **SPECIAL_TOKENS}
    lower = [normalizers.Lowercase()] if lowercase else []
    keep = {"vocab_size": vocab_size, "min_frequency": min_frequency, "special_tokens": [*SPECIAL_TOKENS.values()]}
    if kind == "bpe":
        backend = Tokenizer(models.BPE())
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([_split(_BYTE_RUNS), byte_level])
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False, **keep)
    else:
        backend = Tokenizer(models.WordLevel(unk_token=SPECIAL_TOKENS["unk_token"]))
        trainer = trainers.WordLevelTrainer(show_progress=False, **keep)
    if kind in ("word", "pieces"):
        # NFKC joins letters and their accents (and full-width forms); it never removes an accent.
        apostrophe = normalizers.Replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        backend.normalizer = normalizers.Sequence([normalizers.NFKC(), apostrophe, *lower])
        backend.pre_tokenizer = _split(_WORDS)
    elif kind == "nltk":
        tokenizer_class = NltkTokenizer
        sentence_split: SentenceSplit = "punkt" if _punkt() else "rule"
        settings["sentence_split"] = sentence_split
        batches = ([nltk_words(text, sentence_split) for text in batch] for batch in batches)
        backend.normalizer = normalizers.Sequence(lower)
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

    if kind == "pieces":  # all words first: those that are left out say which pieces are worth keeping
        trainer = trainers.WordLevelTrainer(show_progress=False, **{**keep, "vocab_size": 10**9, "min_frequency": 1})
    backend.train_from_iterator(batches, trainer)
    if kind == "pieces":
        counts = json.loads(trainer.__getstate__())["WordLevelTrainer"]["words"]
        backend.model = _words_and_pieces(counts, vocab_size, min_frequency, () if further is None else further(counts))
    if backend.get_vocab_size() < smallest:
        raise UserError(f"no word of the texts occurs {min_frequency} times; give more text")
    return tokenizer_class(tokenizer_object=backend, **settings)


def _words_and_pieces(
    counts: dict[str, int], vocab_size: int, min_frequency: int, further: Sequence[str] = ()
) -> models.WordPiece:
    """Frequent words whole, then further words, then the commonest pieces of the rare ones.

    A word that is not among them is read from the left, the longest piece first. So a model trained on these texts has
    met pieces (in the rare words), and a word that it never met still says something.
    """
    frequent = [word for word, count in counts.items() if count >= min_frequency]
    # Words of one count in the order of the alphabet: the same vocabulary on every machine.
    frequent = sorted(frequent, key=lambda word: (-counts[word], word))
    frequent = [*dict.fromkeys((*frequent, *further))][: vocab_size - len(SPECIAL_TOKENS)]
    rare = sorted(counts.keys() - set(frequent))
    every = max(1, len(rare) // _RARE_WORDS)  # a sample will do
    pieces: Counter[str] = Counter()
    for word in rare[::every]:
        for start in range(len(word)):
            mark = CONTINUED if start else ""
            pieces.update(
                mark + word[start:end] for end in range(start + 1, min(start + _LONGEST_PIECE, len(word)) + 1)
            )
    letters = {mark + letter for word in counts for letter in word[:_LONGEST_WORD] for mark in ("", CONTINUED)}
    common = sorted((piece for piece, count in pieces.items() if count >= _PIECE_WORDS), key=lambda p: (-pieces[p], p))
    vocabulary = dict.fromkeys([*SPECIAL_TOKENS.values(), *frequent, *common[:_MOST_PIECES]])
    vocabulary |= dict.fromkeys(sorted(letters)[:_MOST_PIECES])
    numbered = {token: number for number, token in enumerate(vocabulary)}
    return models.WordPiece(
        numbered,
        unk_token=SPECIAL_TOKENS["unk_token"],
        max_input_chars_per_word=10 * _LONGEST_WORD,  # NFKC may have made a word longer than the rule allows
        continuing_subword_prefix=CONTINUED,
    )


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """Load a tokenizer from a saved folder, a bare tokenizer.json file or a Hub name, running no code from there.

    One without a padding token gets [PAD] as a new token, so size embeddings by `len(tokenizer)`.
    """
    path = Path(source).expanduser()
    if path.name == "tokenizer.json" and (path.parent / "tokenizer_config.json").is_file():
        path = path.parent  # the configuration says which class reads the file
    if not path.exists():
        tokenizer = _from_hub(str(source))
    else:
        try:
            if path.is_file():
                tokenizer = TokenizersBackend(tokenizer_file=str(path))
            else:
                tokenizer = AutoTokenizer.from_pretrained(str(path), trust_remote_code=False)
        except Exception as error:  # the Rust half raises plain Exception
            empty = path.is_dir() and not (path / "tokenizer.json").is_file()
            reason = "it holds no tokenizer.json" if empty else _first_sentence(error)
            raise UserError(f"no tokenizer in {source}: {reason}; give one that save_pretrained wrote") from error
    if isinstance(tokenizer, NltkTokenizer):
        tokenizer.split("")  # its sentence splitter must be here too
    _name_special_tokens(tokenizer, source)
    if _is_ours(tokenizer):
        tokenizer.split_special_tokens = True  # here a text is plain text, whatever pipelines should find in it
    return tokenizer


def _is_ours(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether it was trained here: no other begins with these three tokens."""
    return tokenizer.convert_tokens_to_ids([*SPECIAL_TOKENS.values()]) == [0, 1, 2]


def finding_masks(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer as transformers' `fill-mask` needs it: "[MASK]" in a text is the mask, not a word."""
    found = copy.copy(tokenizer)
    found.split_special_tokens = False
    return found


def encode_batch(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], max_length: int | None = None, marks: bool = True
) -> tuple[list[np.ndarray], int]:
    """Token ids (int32) of each text, and how many texts were cut at `max_length` tokens (None: no limit).

    A foreign tokenizer's own special tokens are added if `marks`, and counted in `max_length`. `spans.py` also tells
    where each token of a text stands.
    """
    extra = tokenizer.num_special_tokens_to_add() if marks else 0
    if max_length is not None and max_length <= extra:
        raise UserError(f"max_length is {max_length}; this tokenizer needs at least {extra + 1} tokens")
    encode = _encode_in_rust if tokenizer.is_fast else _encode_in_python
    rows: list[np.ndarray] = []
    cut = 0
    for batch in _batches(texts):
        cut += encode(tokenizer, batch, max_length, extra, rows)
    return rows, cut


def _encode_in_rust(tokenizer, batch: list[str], max_length: int | None, extra: int, rows: list[np.ndarray]) -> int:
    fast = None
    if not extra and sum(map(len, batch)) >= word_ids.FEWEST_CHARACTERS:
        fast = word_ids.of(tokenizer)
    if fast is None:
        encodings = list(rust_encodings(tokenizer, batch, max_length, extra))
        rows += (np.array(encoding.ids, dtype=np.int32) for encoding, _ in encodings)
        return sum(was_cut for _, was_cut in encodings)

    def encode(pieces: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding, _ in rust_encodings(tokenizer, pieces, None, 0)]

    cut = 0
    starts = _beginnings(tokenizer, batch, max_length, extra)
    for text, start, ids in zip(batch, starts, fast(starts, encode), strict=True):
        more = has_more_tokens(text, start)
        if max_length is not None and len(ids) > max_length:
            ids = ids[:max_length] if tokenizer.truncation_side == "right" else ids[-max_length:]
            more = True
        cut += more
        rows.append(ids)
    return cut


def rust_encodings(
    tokenizer: PreTrainedTokenizerBase, batch: list[str], max_length: int | None, extra: int, offsets: bool = False
) -> Iterator[tuple[Encoding, bool]]:
    """What a fast tokenizer's Rust half makes of each text, and whether it was cut; `offsets` take longer."""
    backend = tokenizer.backend_tokenizer
    # An earlier call, or the saved file, may have left these on. Written only when wrong: other threads may read.
    if backend.truncation is not None:
        backend.no_truncation()
    if backend.padding is not None:
        backend.no_padding()
    if backend.encode_special_tokens != tokenizer.split_special_tokens:
        backend.encode_special_tokens = tokenizer.split_special_tokens
    starts = _beginnings(tokenizer, batch, max_length, extra)
    encode = backend.encode_batch if offsets else backend.encode_batch_fast
    encodings = encode([_rust_reads(tokenizer, start) for start in starts], add_special_tokens=False)
    for text, start, encoding in zip(batch, starts, encodings, strict=True):
        longer = max_length is not None and len(encoding) > max_length - extra
        if max_length is not None and longer:
            encoding.truncate(max_length - extra, direction=tokenizer.truncation_side)
        yield backend.post_process(encoding) if extra else encoding, longer or has_more_tokens(text, start)


def _rust_reads(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    return tokenizer.split(text) if isinstance(tokenizer, NltkTokenizer) else text


def _beginnings(tokenizer: PreTrainedTokenizerBase, batch: list[str], max_length: int | None, extra: int) -> list[str]:
    """The texts, of which the long ones are cut if that changes no token that is kept."""
    if max_length is None or tokenizer.truncation_side != "right" or max(map(len, batch), default=0) <= LEAST:
        return batch

    def encode(text: str) -> Encoding:  # not `encode_batch_fast`, which tells no words
        read = _rust_reads(tokenizer, text)
        return tokenizer.backend_tokenizer.encode_batch([read], add_special_tokens=False)[0]

    return [beginning(text, max_length - extra, encode) for text in batch]


def _encode_in_python(tokenizer, batch: list[str], max_length: int | None, extra: int, rows: list[np.ndarray]) -> int:
    cut = 0
    for text in batch:
        options = {"add_special_tokens": bool(extra), "verbose": False}
        start = text if max_length is None else as_far_as_read(text)
        ids = tokenizer(start, **options)["input_ids"]
        longer = max_length is not None and len(ids) > max_length
        if longer:
            ids = tokenizer(start, **options, truncation=True, max_length=max_length)["input_ids"]
        cut += longer
        rows.append(np.array(ids, dtype=np.int32))
    return cut


class NltkTokenizer(TokenizersBackend):
    """Words split by NLTK in Python, then numbered by a Rust word-level model that splits at white space.

    `sentence_split`, saved with it, is how sentences were split before words: `punkt` or `rule`. Character
    offsets refer to the words joined by spaces, not to the text.
    """

    def split(self, text: str) -> str:
        """The words of `text`, joined by single spaces; NLTK would take "[MASK]" apart even if it is the mask."""
        parts = [text] if self.split_special_tokens else text.split(self.mask_token)
        words = (nltk_words(part, self.init_kwargs["sentence_split"]) for part in parts)
        return f" {self.mask_token} ".join(words)

    def _encode_plus(self, text, text_pair=None, is_split_into_words=False, **options):
        def split(value):
            if isinstance(value, (list, tuple)):
                return type(value)(split(item) for item in value)
            return self.split(value) if isinstance(value, str) else value

        if not is_split_into_words:
            text, text_pair = split(text), split(text_pair)
        return super()._encode_plus(text, text_pair, is_split_into_words=is_split_into_words, **options)


class _NltkConfig(PreTrainedConfig):
    """Only a key: AutoTokenizer finds a tokenizer class by name once it is registered under a configuration."""

    model_type = "fastformer-nltk-tokenizer"


AutoTokenizer.register(_NltkConfig, NltkTokenizer, exist_ok=True)


def nltk_words(text: str, sentence_split: SentenceSplit) -> str:
    """NLTK's `word_tokenize(text)`, joined by spaces, with sentences split by punkt or by a simple rule."""
    if sentence_split == "rule":
        sentences: Iterable[str] = split_sentences(text)
    elif punkt := _punkt():
        sentences = punkt(text)
    else:
        raise UserError(
            "this tokenizer was trained with NLTK's punkt sentences, whose data is not installed; "
            "run: python -m nltk.downloader punkt_tab"
        )
    tokenize = _nltk_tokenize()
    return " ".join(word for sentence in sentences for word in tokenize(sentence))


def count_nltk_words(text: str) -> int:
    """How many words `word_tokenize` makes of a text, by punkt's sentences where its data is installed."""
    return len(nltk_words(text, "punkt" if _punkt() else "rule").split(" ")) if text.strip() else 0


_SENTENCE_END = re.compile(r"""[.!?]["'\u201d\u2019)\]}\xbb]*\s+""")
# What may stand before a full stop that ends no sentence: an initial, u.s, a title or a company form.
_ABBREVIATION = re.compile(
    r"(?<!\w)(?<!\w\.)(?:[A-HJ-Z]|(?:[^\W\d_]\.)+[^\W\d_]|(?i:"
    r"capt|co|col|corp|dr|etc|gen|gov|hon|inc|jr|lt|ltd|messrs|mr|mrs|ms|mt|prof|rep|rev|sen|sgt|sr|st|vs))$"
)


def split_sentences(text: str) -> Iterator[str]:
    """Cut after . ! or ? and white space, except after an abbreviation. Only full stops matter to NLTK's words."""
    start = 0
    for end in _SENTENCE_END.finditer(text):
        if text[end.start()] == "." and _ABBREVIATION.search(text, max(0, end.start() - 12), end.start()):
            continue
        yield text[start : end.end()]
        start = end.end()
    yield text[start:]


@cache
def _nltk_tokenize() -> Callable[[str], list[str]]:
    """NLTK's word tokenizer with its own patterns on Python's `re`: same words, less than half the time, and no clock.

    (NLTK 3.10 runs each pattern under a time limit, so that a long text could fail on a busy machine.)
    """
    with extra("nltk"):
        from nltk.tokenize import NLTKWordTokenizer  # nltk takes a second to import

    def plain(rule):
        pattern, replacement = rule
        return re.compile(pattern.pattern, pattern.flags & (re.I | re.M | re.S)), replacement

    tokenizer = NLTKWordTokenizer()
    for name in ("STARTING_QUOTES", "PUNCTUATION", "ENDING_QUOTES"):
        setattr(tokenizer, name, [plain(rule) for rule in getattr(tokenizer, name)])
    for name in ("PARENS_BRACKETS", "DOUBLE_DASHES"):
        setattr(tokenizer, name, plain(getattr(tokenizer, name)))
    return tokenizer.tokenize


@cache
def _punkt() -> Callable[[str], list[str]] | None:
    """NLTK's English sentence splitter, or None where its data is not installed."""
    with extra("nltk"):
        from nltk.tokenize import PunktTokenizer

    try:
        return PunktTokenizer("english").tokenize
    except LookupError:
        return None


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Keep what matches, drop the rest."""
    return pre_tokenizers.Split(Regex(pattern), "removed", invert=True)


def _batches(texts: Iterable[str], rows: int = 1000, characters: int = 1_000_000) -> Iterator[list[str]]:
    """Lists of texts of bounded size, in valid Unicode."""
    if isinstance(texts, str):
        raise UserError("expected several texts, got one string; put it in a list")
    batch: list[str] = []
    size = 0
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UserError(f"text {number} is {text!r:.40}, not a string")
        batch.append(valid_unicode(text))
        size += len(text)
        if len(batch) >= rows or size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _parts(text: str) -> Iterator[str]:
    """A text of millions of characters in parts, cut before a space: to count its words takes 80 bytes for each."""
    start, end = 0, min(len(text), FARTHEST)
    while end - start > MOST:
        space = text.rfind(" ", start + 1, start + MOST)
        middle = space if space > 0 else start + MOST
        yield text[start:middle]
        start = middle
    yield text[start:end]


def _from_hub(name: str) -> PreTrainedTokenizerBase:
    try:
        HfApi().model_info(name, timeout=10)  # asks once, where transformers would try again for a minute
        problem = None
    except Exception as error:
        problem = error
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False, local_files_only=problem is not None)
    except Exception as error:
        raise UserError(
            f"no tokenizer at {name}: there is no such file or folder, and the Hugging Face Hub does not give one "
            f"({_first_sentence(problem or error)}); check the name"
        ) from error


def _first_sentence(error: Exception) -> str:
    return re.split(r"[.:]?\s*\n|\. ", f"{str(error).strip() or type(error).__name__}\n", maxsplit=1)[0]


def _name_special_tokens(tokenizer: PreTrainedTokenizerBase, source: str | Path) -> None:
    """Set the roles that a bare file leaves unsaid, from the usual names, and see that there is a padding token."""
    vocabulary = tokenizer.get_vocab()
    for role, usual in SPECIAL_TOKENS.items():
        known = next((name for name in (usual, f"<{usual[1:-1].lower()}>") if name in vocabulary), None)
        if getattr(tokenizer, role) is None and known:
            setattr(tokenizer, role, known)
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": SPECIAL_TOKENS["pad_token"]})
    if tokenizer.pad_token_id is None:
        raise UserError(f"the tokenizer at {source} has no padding token and takes none; save it with a pad_token")
