"""An embedding from word vectors that are known for some of its rows, whatever they come from.

A width other than theirs is reached by a linear map: wider by a random orthonormal one, which keeps every dot product;
narrower by PCA. A row without a vector gets a random one with the mean and covariance of those that are known.
"""

from collections.abc import Sequence

import numpy as np


def fill_embedding(
    known_rows: Sequence[int], known: np.ndarray, missing_rows: Sequence[int], size: int, width: int, *, seed: int
) -> np.ndarray:
    """A float32 matrix (size, width): `known` (words, any width) in its rows, random ones in the missing, 0 in others.

    Same seed, same matrix.
    """
    known = known.astype(np.float64)
    draw_random, map_random = np.random.default_rng(seed).spawn(2)
    mean = known.mean(axis=0)
    centred = known - mean
    variances, directions = np.linalg.eigh(centred.T @ centred / len(known))  # ascending
    # The symmetric root of the covariance does not depend on the signs that eigh happens to choose.
    root = directions * np.sqrt(variances.clip(min=0)) @ directions.T
    invented = mean + draw_random.standard_normal((len(missing_rows), known.shape[1])) @ root

    if width > known.shape[1]:
        orthonormal, signs = np.linalg.qr(map_random.standard_normal((width, known.shape[1])))
        orthonormal = orthonormal * np.sign(signs.diagonal())
        known, invented = known @ orthonormal.T, invented @ orthonormal.T
    elif width < known.shape[1]:
        main = directions[:, ::-1][:, :width]
        main = main * np.sign(main[np.abs(main).argmax(axis=0), range(width)])
        known, invented = centred @ main, (invented - mean) @ main
    matrix = np.zeros((size, width), dtype=np.float32)
    matrix[known_rows] = known
    matrix[missing_rows] = invented
    return matrix
