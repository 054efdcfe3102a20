"""Preconditioners of block 1: of each piece the inverse of its own diagonal block.

The block of a piece is D + A'A, with a row (1, x_j - m_k) of A for each of its pairs and D diagonal, so that

    (D + A'A)^-1 = D^-1 - D^-1 A' C A D^-1,    C = (I + A D^-1 A')^-1,

which takes less time and memory than the inverse itself where a piece has fewer pairs than features. Modes are the
piece set, or the sum and the difference of two; the data is part of the last one only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet._core.chunks import blocks
from bregnet.solver.certificate import inverted
from bregnet.solver.pairs import CompiledPairs, PairOperator


class BlockPreconditioner:
    """Inverse blocks, for any operator.

    Attributes
    ----------
    inverse : Tensor of shape (Q, K, d + 1, d + 1)
    """

    def __init__(self, operator: PairOperator, n_sets: int) -> None:
        n_pieces, size = operator.geometry.n_pieces, operator.geometry.dimension + 1
        self._operator = operator
        like = operator.geometry.lifted
        self.inverse = torch.empty((n_sets, n_pieces, size, size), dtype=operator.dtype, device=like.device)

    def compute(self, chosen: Tensor, kappa: Tensor, strength: Tensor) -> None:
        """Invert the blocks of chosen (sorted) pieces, for the weights of the slopes (d,) and of the data (n,)."""
        for part in blocks(len(chosen), self.inverse.shape[-1] ** 2):
            self._compute(chosen[part], kappa, strength)

    def _compute(self, chosen: Tensor, kappa: Tensor, strength: Tensor) -> None:
        operator, kind = self._operator, self.inverse.dtype
        matrices = operator.blocks(torch.ones_like(operator.keys, dtype=kind), chosen)
        diagonal = matrices.diagonal(dim1=-2, dim2=-1)
        diagonal[:, 1:] += kappa
        diagonal += 1e-9 * diagonal.amax()  # a piece may have no pairs
        self.inverse[0, chosen] = inverse = inverted(matrices, kind)
        if operator.geometry.own_piece:  # the data adds to one entry
            weight, column = strength[chosen].to(kind), inverse[:, 0]
            reduced = column / (1 + weight * column[:, 0])[:, None]
            inverse = inverse - (weight[:, None] * reduced)[:, :, None] * column[:, None, :]
            inverse[:, 0] = inverse[:, :, 0] = reduced  # where differences would cancel
            self.inverse[-1, chosen] = inverse
        else:
            self.inverse[-1, chosen] = inverted(operator.add_at_points(matrices, strength, chosen), kind)

    def apply(self, mode: int, residual: Tensor) -> Tensor:
        """The product with a residual (K, d + 1)."""
        return self._operator.precondition(self.inverse[mode], residual)

    def arrays(self, mode: int) -> tuple[np.ndarray, ...]:
        """What compiled iterations need of it."""
        none = np.zeros(0, dtype=self.inverse.numpy().dtype)
        return self.inverse[mode].numpy(), none, none, np.zeros(1, dtype=np.int64)

    def snapshot(self) -> dict[str, Tensor]:
        """What would come out otherwise, if only by rounding, were it computed again."""
        return {"inverse": self.inverse}


class PairPreconditioner:
    """Inverses from the pairs of each piece, where every point has a piece of its own and all of them are here."""

    def __init__(self, operator: CompiledPairs, n_sets: int) -> None:
        self._operator, self._n_sets = operator, n_sets
        counts = operator.pairs_of_pieces()
        self._offsets = np.concatenate([[0], np.cumsum(np.square(counts))])
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self._kappa = np.empty(0)

    def compute(self, chosen: Tensor, kappa: Tensor, strength: Tensor) -> None:
        """Compute all: pieces that have other pairs have moved the others, too."""
        operator = self._operator
        kind = torch.empty(0, dtype=operator.dtype).numpy().dtype
        arriving = torch.bincount(operator.points, minlength=len(strength)).double().clamp_min(1)
        self._kappa = kappa.numpy().astype(kind)
        self._parts = []
        for mode in range(self._n_sets):
            own = (arriving + strength if mode == self._n_sets - 1 else arriving).numpy()
            factors = np.empty(self._offsets[-1], dtype=kind)
            operator.invert_pairs(kappa.numpy(), own, factors, self._offsets)
            self._parts.append((own.astype(kind), factors))

    def apply(self, mode: int, residual: Tensor) -> Tensor:
        """The product with a residual (K, d + 1)."""
        return self._operator.precondition_pairs(self._kappa, *self._parts[mode], self._offsets, residual)

    def arrays(self, mode: int) -> tuple[np.ndarray, ...]:
        """What compiled iterations need of it."""
        own, factors = self._parts[mode]
        size = self._operator.geometry.dimension + 1
        return np.zeros((0, size, size), dtype=own.dtype), own, factors, self._offsets

    def snapshot(self) -> dict[str, Tensor]:
        """Nothing: pieces are computed one by one, so that it comes out the same again."""
        return {}


def fitting_kind(operator: PairOperator) -> Any:
    """The class of the preconditioner that takes less time for the pairs there are."""
    geometry = operator.geometry
    if not isinstance(operator, CompiledPairs) or not operator.many_features or operator.ranks.size > 1:
        return BlockPreconditioner
    counts, size = operator.pairs_of_pieces().astype(float), geometry.dimension + 1
    to_apply = (2 * counts * size + np.square(counts)).sum() / (geometry.n_pieces * size**2)
    to_invert = (np.square(counts) * size + counts**3).sum() / (geometry.n_pieces * size**3)
    # some pieces may have a thousand pairs; measured with 122 features and 14 to 42 pairs a piece
    return PairPreconditioner if to_apply < 0.4 and to_invert < 0.4 else BlockPreconditioner
