"""Block 1 in closed form: the pieces that minimize the quadratic part (paper, equations for a and y hat)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import Moments

COMPILED_MAX_SIZE = 24  # d + 1 up to which compiled loops beat a dozen small operations


class Factor(Protocol):
    """A factorized set of normal equations."""

    def solve(self, right_hand_side: Tensor) -> Tensor:
        """Pieces (K, d + 1) for a right-hand side (K, d + 1)."""


def pull(geometry: Geometry, moments: Moments, kappa: float, wanted_slopes: Tensor) -> Tensor:
    """What slacks and slopes put on the right-hand sides of the pieces, (K, d + 1).

    sum_{j in m} (sum_k W_kj) xh_j - sum_j W_mj xh_j + kappa (wanted slopes, 0).
    """
    if geometry.own_piece and wanted_slopes.device.type == "cpu":
        from bregnet.solver import compiled  # numba is slow to import

        out = torch.empty_like(moments.products)
        parts = (part.numpy() for part in (moments.column_sums, geometry.lifted, moments.products))
        compiled.pull(*parts, kappa, wanted_slopes.contiguous().numpy(), out.numpy())
        return out
    out = geometry.ranks.sum(geometry.own_moments(moments.column_sums) - moments.products)  # all that ranks exchange
    out[:, :-1] += kappa * wanted_slopes
    return out


def _coupling(
    geometry: Geometry, sum_inverse: Tensor, sum_inverse_gram: Tensor, sum_gram_inverse_gram: Tensor
) -> Tensor:
    """Inverse of the 2 (d + 1) system for q1 = sum_k S_k u_k and q2 = sum_k u_k.

    A constant added to every piece changes nothing and the system is singular; this is the pseudo-inverse, which takes
    the solution of least norm. What is free is known: q1 = S e, q2 = K e for the last unit vector e, and with q1 and q2
    exchanged it is what the rows of the system do not span, for the exchange makes it symmetric.
    """
    eye = torch.eye(len(sum_inverse), dtype=sum_inverse.dtype, device=sum_inverse.device)
    top = torch.cat([eye - sum_inverse_gram.T, -sum_gram_inverse_gram], dim=1)
    bottom = torch.cat([-sum_inverse, eye - sum_inverse_gram], dim=1)
    system = torch.cat([top, bottom])
    first, second = geometry.ranks.sum(geometry.lifted.sum(0)), geometry.n_pieces * eye[-1]
    free, not_spanned = torch.cat([first, second]), torch.cat([second, first])
    free, not_spanned = free / free.norm(), not_spanned / free.norm()
    inverse = torch.linalg.inv(system + system.norm() / len(system) ** 0.5 * torch.outer(not_spanned, free))
    return inverse - torch.outer(inverse @ not_spanned, not_spanned)


class _RankOneFactor:
    """H_j = B^-1 + n xh_j xh_j': every point has its own piece (Sherman-Morrison)."""

    _compiled: list[np.ndarray] | None = None

    def __init__(self, geometry: Geometry, base: Tensor) -> None:
        lifted, n = geometry.lifted, geometry.n_points
        solved = lifted @ base  # z_j = B xh_j
        leverage = (solved * lifted).sum(1)
        self._lifted, self._base, self._solved = lifted, base, solved
        self._shrink = (n / (1 + n * leverage))[:, None]
        self._left = 1 - self._shrink * leverage[:, None]  # H_j^-1 xh_j = left_j z_j
        self._coupling = _coupling(
            geometry,
            n * base - (solved * self._shrink).T @ solved,
            (solved * self._left).T @ lifted,
            (lifted * (leverage[:, None] * self._left)).T @ lifted,
        )

        if lifted.device.type == "cpu" and lifted.shape[1] <= COMPILED_MAX_SIZE:
            self._compiled = [
                part.contiguous().numpy()
                for part in (lifted, base, solved, self._shrink[:, 0], self._left[:, 0], self._coupling)
            ]

    def solve(self, right_hand_side: Tensor) -> Tensor:
        if self._compiled is not None:
            from bregnet.solver import compiled  # numba is slow to import

            out = torch.empty_like(right_hand_side)
            compiled.solve_rank_one(right_hand_side.contiguous().numpy(), *self._compiled, out.numpy())
            return out
        lifted, solved = self._lifted, self._solved
        # H_j^-1 (rhs_j + q1 + xh_j xh_j'q2): q1 joins the right-hand side, q2 acts through left_j z_j
        alone = right_hand_side @ self._base
        alone.addcmul_(self._shrink * torch.linalg.vecdot(right_hand_side, solved)[:, None], solved, value=-1)
        gathered = torch.cat([torch.linalg.vecdot(alone, lifted) @ lifted, alone.sum(0)])
        q1, q2 = (self._coupling @ gathered).chunk(2)
        along = self._left * (lifted @ q2)[:, None] - self._shrink * (solved @ q1)[:, None]
        return alone.addcmul_(along, solved).add_(self._base @ q1)


class _LowRankFactor:
    """H_m^-1 = B - B X_m' C_m X_m B, C_m = (I / K + X_m B X_m')^-1: few points a cell (Woodbury)."""

    def __init__(self, geometry: Geometry, base: Tensor) -> None:
        n_pieces, lifted = geometry.n_pieces, geometry.lifted
        self._geometry, self._base = geometry, base
        self._solved = replace(geometry, lifted=lifted @ base)  # z_j = B xh_j in place of xh_j
        self._blocks = list(self._inverses())
        half = self._inside(lifted) / n_pieces  # C X / K
        self._coupling = _coupling(
            geometry,
            n_pieces * base - self._solved.lifted.T @ self._inside(self._solved.lifted),
            self._solved.lifted.T @ half,
            lifted.T @ (lifted - half) / n_pieces,  # X B X'C = I - C / K
        )

    def _inverses(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Numbers of points (k, p) and C_m (k, p, p) for cells of about as many points; n stands for no point."""
        geometry, n = self._geometry, self._geometry.n_points
        sizes = torch.bincount(geometry.cells, minlength=geometry.n_pieces)
        order = geometry.cells.argsort(stable=True)
        firsts = sizes.cumsum(0) - sizes
        level = sizes.double().log2().ceil()  # powers of 2, so that at most half of the places are empty
        for each in torch.unique(level[sizes > 0]):
            pieces = torch.nonzero(level == each).squeeze(1)
            place = torch.arange(int(sizes[pieces].amax()), device=order.device)
            numbers = order[(firsts[pieces, None] + place).clamp_max(n - 1)]
            numbers = torch.where(place < sizes[pieces, None], numbers, n)
            rows, solved = (_with_zero(part)[numbers] for part in (geometry.lifted, self._solved.lifted))
            system = rows @ solved.mT
            system.diagonal(dim1=1, dim2=2).add_(1 / geometry.n_pieces)
            yield numbers, torch.cholesky_inverse(torch.linalg.cholesky(system))

    def _inside(self, values: Tensor) -> Tensor:
        """C_m times the values (n, ...) of the points of each cell m."""
        padded = _with_zero(values)
        out = torch.empty_like(padded)
        for numbers, inverse in self._blocks:
            inside = padded[numbers]
            out[numbers] = inverse @ inside if inside.ndim == 3 else (inverse * inside[:, None, :]).sum(2)
        return out[:-1]

    def solve(self, right_hand_side: Tensor) -> Tensor:
        geometry, solved = self._geometry, self._solved
        alone = right_hand_side @ self._base - solved.own_moments(self._inside(solved.fitted(right_hand_side)))
        gathered = torch.cat([geometry.fitted(alone) @ geometry.lifted, alone.sum(0)])
        q1, q2 = (self._coupling @ gathered).chunk(2)
        along = self._inside(geometry.lifted @ q2 / geometry.n_pieces - solved.lifted @ q1)
        return alone.add_(solved.own_moments(along)).add_(self._base @ q1)


def _with_zero(values: Tensor) -> Tensor:
    """Values (n, ...) with zeros for a point that is none."""
    return torch.cat([values, torch.zeros_like(values[:1])])


class _BatchedFactor:
    """One (d + 1) x (d + 1) inverse a piece."""

    def __init__(self, geometry: Geometry, base: Tensor) -> None:
        self._gram = geometry.cell_grams(torch.ones_like(geometry.weights))  # S_m
        system = geometry.n_pieces * self._gram + torch.linalg.inv(base)
        self._inverse = torch.cholesky_inverse(torch.linalg.cholesky(system))
        inverse_gram = self._inverse @ self._gram
        sums = self._inverse.sum(0), inverse_gram.sum(0), (self._gram @ inverse_gram).sum(0)
        self._coupling = _coupling(geometry, *sums)

    def solve(self, right_hand_side: Tensor) -> Tensor:
        alone = self._times(right_hand_side, self._inverse)
        gathered = torch.cat([self._times(alone, self._gram).sum(0), alone.sum(0)])
        q1, q2 = (self._coupling @ gathered).chunk(2)
        return alone + self._times(q1 + self._gram @ q2, self._inverse)

    @staticmethod
    def _times(rows: Tensor, matrices: Tensor) -> Tensor:
        """A_m r_m, A_m symmetric: a row before a matrix is multiplied faster than a column after it."""
        return torch.bmm(rows.unsqueeze(1), matrices).squeeze(1)


def few_a_cell(n_points: int, n_pieces: int, size: int) -> bool:
    """Whether cells have so few points for so many features that block 1 works through the points."""
    return 2 * n_points <= n_pieces * size


class NormalEquations:
    """H_m = S + K S_m + kappa J for a given geometry."""

    def __init__(self, geometry: Geometry, kappa: float) -> None:
        self._geometry = geometry
        ridge = torch.full_like(geometry.lifted[0], kappa)
        ridge[-1] = 0
        gram = geometry.ranks.sum(geometry.lifted.T @ geometry.lifted)
        self._base = torch.linalg.inv(gram + ridge.diag())

    def factor(self) -> Factor:
        """Factorize."""
        geometry, size = self._geometry, len(self._base)
        if geometry.own_piece:
            return _RankOneFactor(geometry, self._base)
        few = few_a_cell(geometry.n_points, geometry.n_pieces, size) and geometry.ranks.size == 1
        if few and int(torch.bincount(geometry.cells).amax()) <= 4 * size:
            return _LowRankFactor(geometry, self._base)
        return _BatchedFactor(geometry, self._base)
