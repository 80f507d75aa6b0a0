"""Text vectors to a file: NumPy's .npy or Parquet, written row by row and renamed into place when complete."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastformer.errors import UserError
from fastformer.surroundings.files import writing_aside, writing_text
from fastformer.surroundings.progress import progress_bar

ROWS_AT_ONCE = 1024


def write_vectors(
    path: str | Path,
    vectors: Iterable[np.ndarray],
    width: int,
    show_progress: bool = False,
    ids: Sequence[str] | None = None,
) -> int:
    """Write float32 vectors, one per row; return how many. `.parquet` has the columns `row` and `vector`.

    `ids` say whose vectors they are: a column `id` of `.parquet`; lines of NAME.ids.txt beside NAME.npy.
    """
    path = Path(path)
    if path.suffix not in (".npy", ".parquet"):
        raise UserError(f"{path}: vectors are written to .npy or .parquet; give the output one of these endings")
    with writing_aside(path) as aside, progress_bar("Embedding", show=show_progress) as advance:
        blocks = _blocks(vectors, advance)
        if path.suffix == ".parquet":
            return _write_parquet(aside, blocks, width, ids)
        if ids is not None:
            with writing_text(path.with_suffix(".ids.txt")) as file:
                file.writelines(f"{one}\n" for one in ids)
        return _write_npy(aside, blocks, width)


def _blocks(vectors: Iterable[np.ndarray], advance: Callable[[int], None]) -> Iterator[np.ndarray]:
    block: list[np.ndarray] = []
    for vector in vectors:
        block.append(vector)
        advance(1)
        if len(block) == ROWS_AT_ONCE:
            yield np.stack(block).astype(np.float32)
            block = []
    if block:
        yield np.stack(block).astype(np.float32)


def _write_npy(path: Path, blocks: Iterator[np.ndarray], width: int) -> int:
    def write_header(file, count: int) -> None:
        # NumPy pads headers so that the first axis can grow in place.
        header = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
        np.lib.format.write_array_header_1_0(file, header)

    count = 0
    with open(path, "wb") as file:
        write_header(file, count)
        for block in blocks:
            file.write(block.tobytes())
            count += len(block)
        file.seek(0)
        write_header(file, count)
    return count


def _write_parquet(path: Path, blocks: Iterator[np.ndarray], width: int, ids: Sequence[str] | None) -> int:
    named = [] if ids is None else [("id", pa.string())]
    schema = pa.schema([("row", pa.int64()), *named, ("vector", pa.list_(pa.float32(), width))])
    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        for block in blocks:
            rows = pa.array(np.arange(count, count + len(block)))
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), width)
            own = [] if ids is None else [pa.array(ids[count : count + len(block)], pa.string())]
            writer.write_table(pa.table([rows, *own, vectors], schema=schema))
            count += len(block)
    return count
