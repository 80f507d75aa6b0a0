"""From token ids to batches: a disk-backed store of encoded texts, length buckets, and padding.

Encoded texts live in one flat file of token ids that is memory-mapped, so a dataset larger than memory trains; only
the offsets and labels (a few bytes per text) are held.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from fastformer.surroundings import ranks


class EncodedTexts(Dataset):
    """Token ids and labels of many texts: `texts[i] -> {"input_ids": ids, "labels": label}`.

    `weights`, if given, says how much each text counts; it is 1 on average.
    """

    def __init__(
        self, tokens: np.ndarray, offsets: np.ndarray, labels: np.ndarray | None, weights: np.ndarray | None = None
    ):
        self.tokens, self.offsets, self.labels, self.weights = tokens, offsets, labels, weights

    @classmethod
    def open(cls, path: Path) -> "EncodedTexts":
        """What another process wrote to `path`."""
        offsets, labels = np.load(_beside(path, "offsets")), _beside(path, "labels")
        return cls(_mapped(path, offsets), offsets, np.load(labels) if labels.is_file() else None)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> dict:
        item = {"input_ids": self.tokens[self.offsets[index] : self.offsets[index + 1]]}
        if self.labels is not None:
            item["labels"] = self.labels[index]
        if self.weights is not None:
            item["sample_weight"] = self.weights[index]
        return item

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of every text."""
        return np.diff(self.offsets)

    def counts(self, vocab_size: int) -> np.ndarray:
        """How often each token occurs."""
        found = np.zeros(vocab_size, dtype=np.int64)
        for start in range(0, len(self.tokens), 1 << 24):
            found += np.bincount(self.tokens[start : start + (1 << 24)], minlength=vocab_size)
        return found


class EncodedTextsWriter:
    """Append encoded texts to a file, then read them back memory-mapped.

    `with EncodedTextsWriter(path) as writer: writer.add(ids) …; texts = writer.finish(labels)`

    If several processes train together the first one writes; the others read its file.
    """

    def __init__(self, path: Path):
        self.path = path
        self.file = path.open("wb" if ranks.is_first() else "rb")
        self.lengths: list[int] = []

    def __enter__(self) -> "EncodedTextsWriter":
        return self

    def __exit__(self, *error) -> None:
        self.file.close()

    def add(self, ids: np.ndarray) -> None:
        """Append one text."""
        if self.file.writable():
            self.file.write(np.asarray(ids, dtype=np.int32).tobytes())
        self.lengths.append(len(ids))

    def finish(self, labels: np.ndarray | None) -> EncodedTexts:
        """Close the file and open what was written."""
        self.file.close()
        offsets = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        if ranks.size() > 1 and ranks.is_first():
            np.save(_beside(self.path, "offsets"), offsets)
            if labels is not None:
                np.save(_beside(self.path, "labels"), labels)
        return EncodedTexts(_mapped(self.path, offsets), offsets, labels)


def _beside(path: Path, name: str) -> Path:
    return path.with_suffix(f".{name}.npy")


def _mapped(path: Path, offsets: np.ndarray) -> np.ndarray:
    # An empty file cannot be mapped; texts without any token are valid all the same.
    return np.memmap(path, dtype=np.int32, mode="r") if offsets[-1] else np.zeros(0, np.int32)


class Subset(Dataset):
    """Some of the encoded texts, in the order of `indices`."""

    def __init__(self, texts: EncodedTexts, indices: np.ndarray):
        self.texts, self.indices = texts, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> dict:
        return self.texts[self.indices[index]]

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of every text."""
        return self.texts.lengths[self.indices]

    @property
    def labels(self) -> np.ndarray:
        """Labels in the order of `indices`."""
        if self.texts.labels is None:
            raise ValueError("these texts have no labels")
        return self.texts.labels[self.indices]

    @property
    def weights(self) -> np.ndarray | None:
        """How much each text counts, in the order of `indices`; None if all count alike."""
        return None if self.texts.weights is None else self.texts.weights[self.indices]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All that it consists of."""
        further = (array for array in (self.texts.labels, self.texts.weights) if array is not None)
        return (self.indices, self.texts.offsets, *further, self.texts.tokens)


class Joined(Dataset):
    """Encoded texts of two files, those of the first before those of the second; without labels."""

    def __init__(self, first: Subset, second: Subset):
        self.first, self.second = first, second

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, index: int) -> dict:
        of_first = index < len(self.first)
        item = self.first[index] if of_first else self.second[index - len(self.first)]
        return {"input_ids": item["input_ids"]}

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of every text."""
        return np.concatenate([self.first.lengths, self.second.lengths])


class RandomCrops(Dataset):
    """Texts to train on, each cut to at most `length` tokens in a row, from another place in every epoch.

    In this way a few long texts make many steps instead of few. Where a crop begins is a function of
    the seed and the epoch alone.
    """

    def __init__(self, texts: Subset, length: int, seed: int):
        self.texts, self.length, self.seed = texts, length, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Draw the places of an epoch."""
        spare = np.maximum(0, self.texts.lengths - self.length)
        self.starts = np.random.default_rng([self.seed, 3, epoch]).integers(spare + 1)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict:
        item = self.texts[index]
        start = self.starts[index]
        return item | {"input_ids": item["input_ids"][start : start + self.length]}

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of every crop."""
        return np.minimum(self.texts.lengths, self.length)


class LengthBuckets(Sampler[list[int]]):
    """Random batches of texts of similar lengths, so that little is padded: one list of indices per batch.

    The batches are a function of the seed and the epoch alone: an interrupted epoch resumes where it was. Texts are
    shuffled, sorted by length within groups of `group` batches, cut into batches, and the batches shuffled again. A
    batch has `batch_size` texts; or, `by_tokens`, that many on average, and about as many tokens as the others of its
    group, so that steps take equal time and a batch of long texts no more memory. There are equally many batches.

    Of several processes (`rank`, `size`) each gets its share of every batch: every `size`-th text, so that lengths
    are similar.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        seed: int,
        by_tokens: bool = False,
        group: int = 50,
        rank: int = 0,
        size: int = 1,
    ):
        self.lengths, self.batch_size, self.seed = lengths, batch_size, seed
        self.by_tokens, self.group = by_tokens, group
        self.rank, self.size = rank, size
        self.epoch = 0
        self.on_epoch: Callable[[int], None] | None = None  # told the epoch before its first batch
        self.drop_last = False  # accelerate asks
        self.sampler = self  # whom accelerate tells the epoch when it skips batches

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose batches the next iteration gives."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        if self.on_epoch is not None:
            self.on_epoch(self.epoch)
        random = np.random.default_rng([self.seed, self.epoch])
        order = random.permutation(len(self.lengths))
        # At least four groups, or a small dataset would have the same batches in every epoch.
        group = self.batch_size * max(1, min(self.group, len(order) // (4 * self.batch_size)))
        batches = []
        for start in range(0, len(order), group):
            texts = order[start : start + group]
            texts = texts[np.argsort(self.lengths[texts], kind="stable")]
            ends = np.arange(self.batch_size, len(texts), self.batch_size)
            if self.by_tokens:
                ends = _equal_shares(self.lengths[texts] + 1, len(ends) + 1)
            batches += np.split(texts, ends)
        for index in random.permutation(len(batches)):
            yield Share.of(batches[index].tolist(), self.rank, self.size)


class Share(list[int]):
    """The texts of a batch that one of several processes has. `stands_in`: there were none left for it."""

    stands_in = False

    @classmethod
    def of(cls, batch: list[int], rank: int, size: int) -> "Share":
        """A process that gets none takes the first text, so that it has a step to do; the text counts for nothing."""
        share = cls(batch[rank::size] or batch[:1])
        share.stands_in = rank >= len(batch)
        return share


class WeighedShares(Dataset):
    """Batches of one of several processes, each with how much of the whole batch's loss is its own, before sharing.

    A loss is a mean over what `counted` counts in a batch. `shares.__getitems__(share)` is the collated batch with that
    number in it, as `WeighedShares.COUNT`.
    """

    COUNT = "counted"

    def __init__(self, dataset: Any, collate: Callable, counted: Callable[[dict[str, Tensor]], Any]):
        self.dataset, self.collate, self.counted = dataset, collate, counted

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, share: Share) -> dict[str, Tensor]:
        batch = self.collate(items_of(self.dataset, share))
        count = torch.as_tensor(0 if share.stands_in else self.counted(batch), dtype=torch.float64)
        return {**batch, self.COUNT: count}


def items_of(dataset: Any, indices: Sequence[int]) -> Any:
    """Items of a dataset as DataLoader takes them: all at once if the dataset can give them so."""
    together = getattr(dataset, "__getitems__", None)
    return together(indices) if together is not None else [dataset[index] for index in indices]


def _equal_shares(weights: np.ndarray, count: int) -> np.ndarray:
    """Where to cut a list into `count` parts of about equal weight, none of them empty."""
    place = np.arange(count - 1)
    total = weights.cumsum()
    ends = np.searchsorted(total, total[-1] * (place + 1) / count, side="right")
    ends = np.maximum.accumulate(np.maximum(ends - place, 1)) + place
    return np.minimum(ends, len(weights) - count + 1 + place)


def pad_batch(texts: list[np.ndarray], pad_token_id: int) -> dict[str, Tensor]:
    """Right-pad token ids to `input_ids` and `attention_mask`, (batch, longest), at least one place wide."""
    longest = max(1, *(len(ids) for ids in texts)) if texts else 1
    input_ids = np.full((len(texts), longest), pad_token_id, dtype=np.int64)
    mask = np.zeros((len(texts), longest), dtype=np.int64)
    for row, ids in enumerate(texts):
        input_ids[row, : len(ids)] = ids
        mask[row, : len(ids)] = 1
    return {"input_ids": torch.from_numpy(input_ids), "attention_mask": torch.from_numpy(mask)}


class PadCollator:
    """Collate items of `EncodedTexts` to padded tensors."""

    def __init__(self, pad_token_id: int):
        self.pad_token_id = pad_token_id

    def __call__(self, items: list[dict]) -> dict[str, Tensor]:
        """Items -> `input_ids`, `attention_mask`, and what else they have (`labels`) stacked."""
        batch = pad_batch([item["input_ids"] for item in items], self.pad_token_id)
        for name in items[0].keys() - {"input_ids"}:
            batch[name] = torch.from_numpy(np.stack([item[name] for item in items]))
        return batch


def token_budget_batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Indices of texts, longest first, in batches of at most `budget` padded tokens (a longer text goes alone)."""
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        size = max(1, budget // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + size])
        start += size
    return batches
