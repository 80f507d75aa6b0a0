"""Where weights start from: `--init PATH`; what is there tells the kind of start.

A file of word vectors (GloVe, word2vec's text format) or a folder with a transformers or sentence-transformers encoder
fills the token embedding E. With x_w the vector of word w, p_w its share of the training tokens and P the map to the
model's width (`data/word_vectors.py`):

    E_w = s · RARE / (RARE + p_w) · P (x_w - mean x) / r

r is the root mean square of all numbers, so that E is of one size whatever its source, and s the size of an embedding
that starts at random (`initializer_range`); weights that make frequent words small are those of SIF.

On little data vectors move slowly (`table_rate`). docs/LOG.md has what was compared. The `paper-*` presets do none of
this and take the vectors as they are.

An earlier run of ours gives all weights that mean the same here: the vectors of the words that both vocabularies have
(the other words start at random, with the same mean and covariance), the encoder if mixer, names and shapes agree, a
decoder and its copying likewise, word pairs if all its words have the same numbers here, and a head if what it
predicts is the same: the labels, or the words.
"""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fastformer.data.glove import load_glove
from fastformer.data.word_vectors import fill_embedding
from fastformer.engine.hub import local_folder
from fastformer.engine.word_encoder import open_encoder, word_vectors
from fastformer.errors import UserError
from fastformer.modeling import FastformerConfig
from fastformer.runs.folder import Run, is_run, open_run
from fastformer.surroundings.progress import progress_bar, say

RARE = 1e-3
MUCH_DATA = 1_000_000  # tokens

WORDS = "fastformer.embeddings.word_embeddings.weight"
PAIRS = "fastformer.embeddings.bigram_embeddings.weight"


def kind_of(init: str | Path) -> Literal["file", "encoder", "run"]:
    """What there is to start from; a mistake shows here, before any work."""
    path = local_folder(init)
    if path.is_file():
        return "file"
    if not path.is_dir():
        raise UserError(
            f"{init}: no such file or folder; give --init a GloVe file, an encoder's folder or Hub name, or a run"
        )
    if _is_encoder(path) or not _holds_run(path):
        open_encoder(path)
        return "encoder"
    _open_run(path)
    return "run"


def tokenizer_of(init: str | Path | None) -> str | None:
    """The tokenizer that goes with a start: a run's own, so that all its weights mean the same; else none."""
    return str(local_folder(init)) if init is not None and kind_of(init) == "run" else None


def check_word_vectors(init: str | Path | None) -> None:
    """Report what is wrong with a start for tasks that take word vectors only, not the weights of a run."""
    if init is None:
        return
    if _holds_run(path := local_folder(init)) and not _is_encoder(path):
        raise UserError(
            f"{init}: is a run; this task starts from words: give --init a GloVe file or an encoder's folder"
        )
    kind_of(init)


def table_rate(tokens: int) -> float:
    """How fast pre-trained vectors learn on this many tokens, as a share of the learning rate.

    On little data a word occurs too rarely to learn more than the texts that it is in.
    """
    return min(1.0, tokens / MUCH_DATA)


def pair_rows_of(init: str | Path) -> dict[str, int]:
    """The model settings that a start decides: a run's number of word-pair vectors, or its table could not be taken."""
    if kind_of(init) != "run":
        return {}
    buckets = _open_run(local_folder(init)).load_config().bigram_buckets
    return {"bigram_buckets": buckets} if buckets else {}


def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    init: str | Path,
    *,
    counts: np.ndarray | None,
    seed: int,
    show_progress: bool = True,
) -> None:
    """Start `model` from `init`, in place. `counts` says how often each token occurs in the training data.

    Without `counts` vectors are taken as they are, neither centred, scaled nor weighted.
    """
    path, kind = local_folder(init), kind_of(init)
    if kind == "run":
        note = _start_from_run(model, tokenizer, _open_run(path), seed)
    else:
        fill = _fill_from_file if kind == "file" else _fill_from_encoder
        vectors, found = fill(path, tokenizer, model.config, seed, show_progress)
        with torch.no_grad():
            vectors = vectors if counts is None else _weighted(vectors, counts, model.config.initializer_range)
            model.get_input_embeddings().weight.copy_(torch.from_numpy(vectors))
        note = f"vectors for {found:,} of {len(tokenizer):,} words."
    if show_progress:
        say(f"{init}: {note}")


def _weighted(vectors: np.ndarray, counts: np.ndarray, size: float) -> np.ndarray:
    """Centre, bring to one size whatever the source, and make frequent words small: see above. Zero rows stay zero."""
    used = vectors.any(axis=1)
    vectors = vectors - vectors[used].mean(axis=0)
    spread = np.sqrt(np.square(vectors[used]).mean())
    if not spread:
        raise UserError("--init: all known words have the same vector; give a file with more words")
    vectors *= size / spread
    shares = counts / max(1, counts.sum())
    return vectors * (used * RARE / (RARE + shares))[:, None].astype(np.float32)


def _fill_from_file(
    path: Path, tokenizer: PreTrainedTokenizerBase, config: FastformerConfig, seed: int, show: bool
) -> tuple[np.ndarray, int]:
    with progress_bar("Reading vectors", show=show) as advance:
        seen = 0

        def progress(lines: int) -> None:
            nonlocal seen
            advance(lines - seen)
            seen = lines

        options = {"seed": seed, "pad_token": tokenizer.pad_token, "progress": progress}
        return load_glove(path, tokenizer.get_vocab(), config.hidden_size, **options)


def _fill_from_encoder(
    path: Path, tokenizer: PreTrainedTokenizerBase, config: FastformerConfig, seed: int, show: bool
) -> tuple[np.ndarray, int]:
    special = set(tokenizer.all_special_ids)
    rows = sorted(tokenizer.get_vocab().values())
    texts = {row: "" if row in special else tokenizer.decode([row]).strip() for row in rows}
    known = [row for row in rows if texts[row]]
    vectors = word_vectors(open_encoder(path), [texts[row] for row in known], show)
    missing = [row for row in rows if not texts[row] and row != tokenizer.pad_token_id]
    return fill_embedding(known, vectors, missing, config.vocab_size, config.hidden_size, seed=seed), len(known)


def _start_from_run(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, run: Run, seed: int) -> str:
    """Copy what means the same; say what was taken."""
    theirs, ours = run.load_config(), model.config
    if theirs.hidden_size != ours.hidden_size:
        raise UserError(
            f"{run.folder}: its model has width {theirs.hidden_size}, this one {ours.hidden_size}; use its --preset "
            f"({run.record.get('preset')}), or leave --init out"
        )
    weights, state = run.load_weights(), model.state_dict()
    vocabulary, their_vocabulary = tokenizer.get_vocab(), run.load_tokenizer().get_vocab()
    same_numbers = their_vocabulary.items() <= vocabulary.items()  # there may be new words here, such as [END]
    taken = [
        name
        for name, value in weights.items()
        if name in state
        and state[name].shape == value.shape
        and (
            (name.startswith("fastformer.") and name not in (WORDS, PAIRS) and theirs.mixer == ours.mixer)
            or (name.startswith(("decoder.", "copying.")) and theirs.decoder_mixer == ours.decoder_mixer)
            or (name == PAIRS and same_numbers)
            or (name == "lm_head.bias" and vocabulary == their_vocabulary)
            or (name.startswith("classifier.") and _same_labels(theirs, ours))
        )
    ]
    shared = {row: their_vocabulary[word] for word, row in vocabulary.items() if word in their_vocabulary}
    if not same_numbers:  # a vector of zeros is one that no text has asked for: new texts may
        learned = weights[WORDS].any(dim=1).tolist()
        shared = {row: theirs for row, theirs in shared.items() if learned[theirs]}
    if not shared:
        raise UserError(f"{run.folder}: its vocabulary has no word of this one; leave --tokenizer or --init out")
    missing = sorted(set(vocabulary.values()) - set(shared))
    known = weights[WORDS][list(shared.values())].numpy()
    filled = fill_embedding(list(shared), known, missing, ours.vocab_size, ours.hidden_size, seed=seed)
    with torch.no_grad():
        state[WORDS].copy_(torch.from_numpy(filled))  # the state shares the model's memory
        for name in taken:
            state[name].copy_(weights[name])
    return f"vectors of {len(shared):,} of {len(vocabulary):,} words and {len(taken)} other weights."


def _same_labels(theirs: FastformerConfig, ours: FastformerConfig) -> bool:
    """Whether a head predicts the same. A number's head is in the units of its data: it always starts anew."""
    kinds_agree = theirs.problem_type == ours.problem_type != "regression"
    return kinds_agree and theirs.id2label == ours.id2label


def _is_encoder(folder: Path) -> bool:
    """Whether a folder makes vectors of texts, and so of words; a run may do so too."""
    return (folder / "modules.json").is_file()


def _holds_run(folder: Path) -> bool:
    return is_run(folder) or (folder / "checkpoints").is_dir()


def _open_run(path: Path) -> Run:
    run = open_run(path)
    if run.is_export:
        raise UserError(f"{path}: is an export, which cannot be trained on; give --init the run that it was made from")
    if WORDS not in run.weight_names():
        raise UserError(f"{path}: a run of {run.task} has no encoder that can start this one; give --init another")
    return run
