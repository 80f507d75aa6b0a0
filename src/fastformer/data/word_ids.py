"""The ids of our own `word` tokenizers, by NumPy: the same as the Rust tokenizer's, in a tenth of its time.

All texts of a batch are looked at as one string of bytes. A token is a run of letters and digits or a single mark, so
its bounds are where neighbouring bytes differ in kind; only English clitics (n't, 's) move some of them. The bytes of a
token, at most 16, are two integers, which a hash table turns into its id.

What NumPy does not cover goes to Rust, cut out at white space: pieces with other characters than ASCII, numbers
with a point or letters in them (3.14, 1990s), abbreviations (u.s.), and very long runs. No rule of the tokenizer looks
across ASCII white space or control characters, so a piece has the same ids by itself. Nothing is guessed: a tokenizer
that is not exactly ours in its normalizer and its pattern is left to Rust altogether.
"""

import hashlib
from collections.abc import Callable
from itertools import chain, pairwise
from weakref import WeakKeyDictionary

import numpy as np
from tokenizers import models, normalizers
from transformers import PreTrainedTokenizerBase, TokenizersBackend

Encode = Callable[[list[str]], list[list[int]]]  # texts -> the ids that Rust gives them

FEWEST_CHARACTERS = 2000  # below it Rust is as fast
_LONGEST = 16  # bytes of a word in the table
_LONGEST_RUN = 32  # letters and digits; Rust caps numbers at 32 and words at 64
_LONGEST_PIECE = 32  # bytes of a piece whose ids are kept
_MOST_PIECES = 1 << 16

# What these rules were written for: the normalizers, in lower case or not, and the pattern, as `train_tokenizer` sets
# them. A change of the pattern needs a change of the rules here; until then a test fails and Rust does the work.
_PATTERN = "d68e8283313fcfceca4bd2284ff07a8af0b4efff2a8a1b9ebe6f2b7ee3509af7"  # SHA-256 of the pre-tokenizer's JSON
_KEEPING_CASE = [normalizers.NFKC(), normalizers.Replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")]
_LOWERCASE = {
    normalizers.Sequence(_KEEPING_CASE).__getstate__(): False,
    normalizers.Sequence([*_KEEPING_CASE, normalizers.Lowercase()]).__getstate__(): True,
}

_GAP, _MARK, _DIGIT, _LETTER, _OTHER = range(5)  # kinds of bytes; a gap is white space or a control character


def _kind(byte: int) -> int:
    if byte >= 128:
        return _OTHER
    character = chr(byte)
    if character.isalnum():
        return _LETTER if character.isalpha() else _DIGIT
    return _MARK if character.isprintable() and character != " " else _GAP


_KINDS = bytes(map(_kind, range(256)))
# The bytes that make \b fail after a letter. Those of other characters do not matter: their piece goes to Rust.
_JOINS = np.array([_kind(byte) in (_DIGIT, _LETTER) or byte == ord("_") for byte in range(256)])
_FIRST_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype="<u8")  # masks of 0 … 8 bytes
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)


class WordIds:
    """Texts to ids for one `word` tokenizer; `of` gives it if the tokenizer is one of ours."""

    def __init__(self, backend, lowercase: bool):
        self.lowercase = lowercase
        self.model = backend.model
        self.state = _state(backend)
        self._pieces: dict[bytes, list[int]] = {}
        self._table = _Table(backend.get_vocab(with_added_tokens=False))

    def __call__(self, texts: list[str], encode: Encode) -> list[np.ndarray]:
        """Token ids (int32) of each text; `encode` asks Rust."""
        parts = [text.encode() for text in texts]
        # A gap before and after every text; and room to read 16 bytes from any token.
        data = b"\n".join([b"", *parts, b"\n" * _LONGEST])
        if len(data) > _LONGEST + 1.5 * sum(map(len, texts)) + 2 * len(texts):  # another script: hardly a word for us
            return [np.array(ids, dtype=np.int32) for ids in encode(texts)]
        lower = data.lower()  # ASCII only
        starts, ends, pieces = _tokens(data, lower)
        written = lower if self.lowercase else data
        ids = self._table.find(written, starts, ends - starts)
        ids[pieces] = -1

        counts = None
        [unknown] = np.nonzero(ids < 0)
        if len(unknown):
            answers = self._ask(data, written, starts[unknown], ends[unknown], np.isin(unknown, pieces), encode)
            lengths = np.fromiter(map(len, answers), np.int64, len(answers))
            given = np.fromiter(chain.from_iterable(answers), np.int32, lengths.sum())
            if (lengths == 1).all():
                ids[unknown] = given
            else:
                counts = np.ones(len(ids), np.int64)
                counts[unknown] = lengths
                ids = ids.repeat(counts)
                ids[ids < 0] = given
        ends_of_texts = np.cumsum([len(part) + 1 for part in parts])
        bounds = np.searchsorted(starts, ends_of_texts)
        if counts is not None:
            bounds = np.concatenate([[0], counts.cumsum()])[bounds]
        return [ids[start:end] for start, end in pairwise([0, *bounds.tolist()])]

    def _ask(self, data, written, starts, ends, is_piece, encode: Encode) -> list[list[int]]:
        """The ids of words that are not in the table, by the model alone, and of pieces, by the whole tokenizer."""
        answers: list[list[int]] = []
        waiting: dict[bytes, list[int]] = {}  # pieces to encode -> places in `answers`
        for start, end, piece in zip(starts.tolist(), ends.tolist(), is_piece.tolist(), strict=True):
            if not piece:
                answers.append([token.id for token in self.model.tokenize(written[start:end].decode())])
                continue
            known = self._pieces.get(data[start:end])
            answers.append([] if known is None else known)
            if known is None:
                waiting.setdefault(data[start:end], []).append(len(answers) - 1)
        for (piece, places), found in zip(waiting.items(), encode([piece.decode() for piece in waiting]), strict=True):
            for place in places:
                answers[place] = found
            if len(piece) <= _LONGEST_PIECE:
                if len(self._pieces) >= _MOST_PIECES:
                    self._pieces.clear()
                self._pieces[piece] = found
        return answers


_known: WeakKeyDictionary[PreTrainedTokenizerBase, WordIds] = WeakKeyDictionary()


def of(tokenizer: PreTrainedTokenizerBase) -> WordIds | None:
    """The fast way for `tokenizer`; None if it is not one of our own `word` tokenizers, read as plain text."""
    if type(tokenizer) is not TokenizersBackend or not tokenizer.split_special_tokens:
        return None
    backend = tokenizer.backend_tokenizer
    found = _known.get(tokenizer)
    if found is None or found.state != _state(backend):
        if not _is_ours(backend):
            return None
        found = WordIds(backend, _LOWERCASE[backend.normalizer.__getstate__()])
        _known[tokenizer] = found
    return found


def _state(backend) -> tuple:
    """What could be changed after the vocabulary was read."""
    return (
        backend.normalizer and backend.normalizer.__getstate__(),
        backend.pre_tokenizer and backend.pre_tokenizer.__getstate__(),
        type(backend.model),
        backend.get_vocab_size(with_added_tokens=False),
        all(token.special for token in backend.get_added_tokens_decoder().values()),
    )


def _is_ours(backend) -> bool:
    normalizer, pattern, model, _, only_special = _state(backend)
    return (
        normalizer in _LOWERCASE
        and pattern is not None
        and hashlib.sha256(pattern).hexdigest() == _PATTERN
        and only_special  # others are found in a text before it is split
        and (model is models.WordLevel or (model is models.WordPiece and _splits_no_short_word(backend.model)))
    )


def _splits_no_short_word(model: models.WordPiece) -> bool:
    """Whether every word of the table that is in the vocabulary is one token."""
    return model.max_input_chars_per_word >= _LONGEST


def _tokens(data: bytes, lower: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where tokens and pieces start and end, in order, and which of them are pieces."""
    kind = np.frombuffer(data.translate(_KINDS), np.uint8)
    word = kind >= _DIGIT
    first = kind == _MARK
    last = first.copy()
    first[1:] |= word[1:] > word[:-1]
    last[:-1] |= word[:-1] > word[1:]
    low = np.frombuffer(lower, np.uint8)
    _take_clitics(low, word, first, last)

    odd = np.concatenate([np.flatnonzero((kind[:-1] == _DIGIT) & (kind[1:] == _LETTER)), _points(low, kind)])
    if not data.isascii():
        odd = np.concatenate([odd, np.flatnonzero(kind == _OTHER)])
    while True:
        begins = _take_pieces(kind, odd, first, last)
        starts, ends = np.flatnonzero(first), np.flatnonzero(last) + 1
        pieces = np.searchsorted(starts, begins)
        too_long = ends - starts > _LONGEST_RUN
        too_long[pieces] = False
        if not too_long.any():
            return starts, ends, pieces
        odd = np.concatenate([odd, starts[too_long]])


def _take_clitics(low: np.ndarray, word: np.ndarray, first: np.ndarray, last: np.ndarray) -> None:
    """Join 's 're 've 'm 'll 'd to their apostrophe, and n't from the word before it."""
    places = np.flatnonzero(low == ord("'"))
    before, one, two, three = (low[places + shift] for shift in (-1, 1, 2, 3))
    ends_at_one, ends_at_two = ~_JOINS[two], ~_JOINS[three]

    def is_(column: np.ndarray, letter: str) -> np.ndarray:
        return column == ord(letter)

    single = (is_(one, "s") | is_(one, "m") | is_(one, "d")) & ends_at_one
    double = (is_(one, "r") | is_(one, "v")) & is_(two, "e") | is_(one, "l") & is_(two, "l")
    clitics = places[single | double & ends_at_two]
    last[clitics] = first[clitics + 1] = False

    negations = places[is_(before, "n") & is_(one, "t") & ends_at_one]
    first[negations - 1] = True
    last[negations - 2] |= word[negations - 2]  # the word before n't ends there, if there is one
    last[negations - 1] = last[negations] = first[negations] = first[negations + 1] = False


def _points(low: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Points and commas inside numbers, and points of what may be an abbreviation."""
    places = np.flatnonzero((low == ord(".")) | (low == ord(",")))
    before, after = kind[places - 1], kind[places + 1]
    in_number = (before == _DIGIT) & (after == _DIGIT)
    between_letters = (before == _LETTER) & (after == _LETTER) & (low[places] == ord("."))
    return places[in_number | between_letters & (low[places + 2] == ord("."))]


def _take_pieces(kind: np.ndarray, odd: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Make one token of all between the gaps on both sides of each odd place; return where these start."""
    if not len(odd):
        return odd
    gaps = np.flatnonzero(kind == _GAP)
    after = np.unique(np.searchsorted(gaps, odd))
    begins, ends = gaps[after - 1] + 1, gaps[after]
    lengths = ends - begins
    within = np.arange(lengths.sum()) + (begins - lengths.cumsum() + lengths).repeat(lengths)
    first[within] = last[within] = False
    first[begins] = last[ends - 1] = True
    return begins


class _Table:
    """The words of a vocabulary up to 16 bytes in a hash table: open addressing, in three arrays."""

    def __init__(self, vocabulary: dict[str, int]):
        words = sorted((number, word.encode()) for word, number in vocabulary.items() if word)
        words = [(number, word) for number, word in words if len(word) <= _LONGEST]  # by id: the frequent ones first
        padded = b"".join(word.ljust(_LONGEST, b"\0") for _, word in words)
        keys = np.frombuffer(padded, "<u8").reshape(-1, 2)
        bits = max(10, (8 * len(words)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._keys = np.zeros((2, 1 << bits), np.uint64)
        self._ids = np.full(1 << bits, -1, np.int32)
        waiting = np.arange(len(words))
        slots = self._slots(*keys.T)
        numbers = np.array([number for number, _ in words], np.int32)
        while len(waiting):
            _, winners = np.unique(slots[waiting], return_index=True)
            winners = waiting[winners]
            winners = winners[self._ids[slots[winners]] < 0]
            self._keys[:, slots[winners]] = keys[winners].T
            self._ids[slots[winners]] = numbers[winners]
            waiting = waiting[self._ids[slots[waiting]] != numbers[waiting]]
            slots[waiting] = (slots[waiting] + 1) & (len(self._ids) - 1)

    def _slots(self, head: np.ndarray, tail: np.ndarray) -> np.ndarray:
        mixed = (head * _FACTORS[0]) ^ (tail * _FACTORS[1])
        return ((mixed ^ (mixed >> np.uint64(32))) * _FACTORS[0] >> self._shift).astype(np.int64)

    def find(self, data: bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The id (int32) of every word, data[start : start + length]; -1 for one that is not here."""
        eight = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))  # the eight bytes from any place on
        head = eight[starts] & _FIRST_BYTES.take(lengths, mode="clip")
        tail = np.zeros_like(head)
        [long] = np.nonzero(lengths > 8)
        tail[long] = eight[starts[long] + 8] & _FIRST_BYTES.take(lengths[long] - 8, mode="clip")
        slots = self._slots(head, tail)
        ids = self._ids[slots]
        # If another word has the place, look at the next; an empty place ends the search.
        [wrong] = np.nonzero((self._keys[0, slots] != head) | (self._keys[1, slots] != tail))
        while len(wrong := wrong[ids[wrong] >= 0]):
            slots[wrong] = (slots[wrong] + 1) & (len(self._ids) - 1)
            at = slots[wrong]
            ids[wrong] = self._ids[at]
            wrong = wrong[(self._keys[0, at] != head[wrong]) | (self._keys[1, at] != tail[wrong])]
        ids[lengths > _LONGEST] = -1
        return ids
