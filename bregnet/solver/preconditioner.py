"""Preconditioners of block 1: of each piece the inverse of its own diagonal block.

The block of a piece is D + A'A, with a row (1, x_j - m_k) of A for each of its pairs and D diagonal, so that

    (D + A'A)^-1 = D^-1 - D^-1 A' C A D^-1,    C = (I + A D^-1 A')^-1,

which takes less time and memory than the inverse itself where a piece has few pairs and many features. Modes are the
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
    """Inverse blocks, for any operator and several ranks.

    Attributes
    ----------
    inverse : Tensor of shape (Q, K, d + 1, d + 1)
    """

    def __init__(self, operator: PairOperator, n_sets: int, kappa: Tensor, strength: Tensor) -> None:
        n_pieces, size = operator.geometry.n_pieces, operator.geometry.dimension + 1
        self._operator = operator
        like = operator.geometry.lifted
        self.inverse = torch.empty((n_sets, n_pieces, size, size), dtype=operator.dtype, device=like.device)
        everyone = torch.arange(n_pieces, device=like.device)
        for part in blocks(n_pieces, size**2):
            self._invert(everyone[part], kappa, strength)

    def _invert(self, chosen: Tensor, kappa: Tensor, strength: Tensor) -> None:
        operator, kind = self._operator, self.inverse.dtype
        matrices = operator.blocks(torch.ones_like(operator.keys, dtype=kind), chosen)
        diagonal = matrices.diagonal(dim1=-2, dim2=-1)
        diagonal[:, 1:] += kappa
        diagonal += 1e-9 * diagonal.amax()  # a piece may have no pairs
        if len(self.inverse) > 1:
            self.inverse[0, chosen] = inverted(matrices, kind)
        self.inverse[-1, chosen] = inverted(operator.add_at_points(matrices, strength, chosen), kind)

    def apply(self, mode: int, residual: Tensor) -> Tensor:
        """The product with a residual (K, d + 1)."""
        return self._operator.precondition(self.inverse[mode], residual)


class CompiledPreconditioner:
    """Compiled, for all pieces in one process: each by its block or by its pairs, whichever is applied faster.

    Where every point has a piece of its own, the blocks of two modes differ in their first entry only, so that one
    inverse and its first column serve both (Sherman-Morrison).

    Attributes
    ----------
    arrays : tuple of ndarray
        First entries of D (K,); matrices (m, .), one after the other, of one mode or of each; where each starts
        (K + 1,); which pieces go by their pairs (K,); first columns (K, d + 1) of the inverses; and the weights (K,)
        that the last mode adds to the first entry.
    """

    def __init__(self, operator: CompiledPairs, n_sets: int, kappa: Tensor, strength: Tensor) -> None:
        self._operator = operator
        kind = torch.empty(0, dtype=operator.dtype).numpy().dtype
        counts, size = operator.pairs_of_pieces(), operator.geometry.dimension + 1
        own_piece, n_pieces = operator.geometry.own_piece, len(counts)
        # an inverse is computed once and applied some 200 times; by pairs a product takes three times as long as in it
        by_pairs = (3 * (2 * size + counts) * counts < size**2 * (1 + size / 200)) & operator.many_features
        starts = np.concatenate([[0], np.cumsum(np.where(by_pairs, counts, size) ** 2)])
        factors = np.empty((1 if own_piece else n_sets, starts[-1]), kind)
        own, columns = np.ones(n_pieces, kind), np.empty((n_pieces if own_piece and n_sets > 1 else 0, size), kind)
        self.arrays = own, factors, starts, by_pairs, columns, strength.numpy().astype(kind)
        self.kappa = kappa.numpy().astype(kind)
        arriving = torch.bincount(operator.points, minlength=len(strength)).double()
        for mode, factor in enumerate(factors):
            weights = arriving + strength if mode == n_sets - 1 else arriving
            operator.invert(self.kappa, weights.numpy().astype(kind), by_pairs, starts, own, factor, columns)

    def apply(self, mode: int, residual: Tensor) -> Tensor:
        """The product with a residual (K, d + 1)."""
        return self._operator.divided(mode, self.arrays, self.kappa, residual)


def preconditioner(operator: PairOperator, n_sets: int, kappa: Tensor, strength: Tensor) -> Any:
    """For the pairs of an operator, the weights of the slopes (d,) and of the data (n,)."""
    if isinstance(operator, CompiledPairs) and operator.ranks.size == 1:
        return CompiledPreconditioner(operator, n_sets, kappa, strength)
    return BlockPreconditioner(operator, n_sets, kappa, strength)
