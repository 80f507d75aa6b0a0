"""Text to token ids: load a tokenizer, encode in batches.

Those that `tokenizer_training.py` makes number their tokens in Rust, save as JSON alone (`save_pretrained`), begin with
[PAD]=0, [UNK]=1, [MASK]=2, and read a text as plain text: they add no token of their own, and "[PAD]" written in a
document is punctuation and a word. (To fill masks, call one with `split_special_tokens=False`; the file of a run of
masked words says so, for the pipelines of transformers.)
"""

import copy
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from huggingface_hub import HfApi
from tokenizers import Encoding
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TokenizersBackend

from fastformer.data import word_ids
from fastformer.data.cutting import LEAST, as_far_as_read, beginning, has_more_tokens
from fastformer.data.nltk_words import NltkTokenizer
from fastformer.data.values import valid_unicode
from fastformer.errors import UserError

KINDS = ("word", "pieces", "bpe", "nltk")
CONTINUED = "##"  # before a piece that does not begin a word
SPECIAL_TOKENS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}  # ids 0, 1, 2


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
    for batch in batches_of(texts):
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


def batches_of(texts: Iterable[str], rows: int = 1000, characters: int = 1_000_000) -> Iterator[list[str]]:
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
