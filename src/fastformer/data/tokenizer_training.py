"""Tokenizers made from a stream of texts: which characters make a word, and which words and pieces are kept.

`word` has words and single punctuation marks; `pieces` the same, and a word that is not in the vocabulary is read as
pieces of words; `bpe` is byte-level BPE, which gives back any text exactly; `nltk` is the paper's `word_tokenize`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import TokenizersBackend

from fastformer.data.cutting import FARTHEST, MOST
from fastformer.data.nltk_words import NltkTokenizer, SentenceSplit, nltk_words, punkt
from fastformer.data.tokenizers import CONTINUED, KINDS, SPECIAL_TOKENS, batches_of
from fastformer.errors import UserError

_LONGEST_PIECE = 5
_MOST_PIECES = 8000
_PIECE_WORDS = 3  # rare words that must have a piece
_RARE_WORDS = 50_000  # that are looked at for pieces
_LONGEST_WORD = 64

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"

# Lengths are capped so that a text without spaces (DNA, a data dump) stays linear and fits in a vocabulary.
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
    vocab_size: most tokens to keep, the three special ones included; the frequent win. For `pieces` these are whole
        words: up to 8,000 pieces come on top, and letters, up to 8,000 too.
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

    batches = ([part for text in batch for part in _parts(text)] for batch in batches_of(texts))
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
        sentence_split: SentenceSplit = "punkt" if punkt() else "rule"
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


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Keep what matches, drop the rest."""
    return pre_tokenizers.Split(Regex(pattern), "removed", invert=True)


def _parts(text: str) -> Iterator[str]:
    """A text of millions of characters in parts, cut before a space: to count its words takes 80 bytes for each."""
    start, end = 0, min(len(text), FARTHEST)
    while end - start > MOST:
        space = text.rfind(" ", start + 1, start + MOST)
        middle = space if space > 0 else start + MOST
        yield text[start:middle]
        start = middle
    yield text[start:end]
