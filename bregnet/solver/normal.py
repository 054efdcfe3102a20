"""Block 1 in closed form: the pieces that minimise the quadratic part (paper, equations for a and y hat)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import Moments

COMPILED_MAX_SIZE = 24  # d + 1 up to which compiled loops beat a dozen small operations


class Factor(Protocol):
    """A factorised set of normal equations."""

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


def _coupling(sum_inverse: Tensor, sum_inverse_gram: Tensor, sum_gram_inverse_gram: Tensor) -> Tensor:
    """Inverse of the 2 (d + 1) system for q1 = sum_k S_k u_k and q2 = sum_k u_k.

    A constant added to every piece changes nothing and the system is singular;
    the pseudo-inverse takes the solution of least norm.
    """
    eye = torch.eye(len(sum_inverse), dtype=sum_inverse.dtype, device=sum_inverse.device)
    top = torch.cat([eye - sum_inverse_gram.T, -sum_gram_inverse_gram], dim=1)
    bottom = torch.cat([-sum_inverse, eye - sum_inverse_gram], dim=1)
    return torch.linalg.pinv(torch.cat([top, bottom]), rtol=1e-12)


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


class _BatchedFactor:
    """One (d + 1) x (d + 1) inverse a piece."""

    def __init__(self, geometry: Geometry, base: Tensor) -> None:
        gram = geometry.cell_grams(torch.ones_like(geometry.weights))  # S_m
        system = geometry.n_pieces * gram + torch.linalg.inv(base)
        self._geometry = geometry
        self._inverse = torch.cholesky_inverse(torch.linalg.cholesky(system))
        inverse_gram = self._inverse @ gram
        self._coupling = _coupling(self._inverse.sum(0), inverse_gram.sum(0), (gram @ inverse_gram).sum(0))
        few_points = geometry.n_points < geometry.n_pieces * gram.shape[1]
        self._gram = None if few_points and geometry.ranks.size == 1 else gram

    def solve(self, right_hand_side: Tensor) -> Tensor:
        alone = self._times(right_hand_side, self._inverse)
        gathered = torch.cat([self._weighed(alone), alone.sum(0)])
        q1, q2 = (self._coupling @ gathered).chunk(2)
        return alone + self._times(q1 + self._spread(q2), self._inverse)

    def _weighed(self, pieces: Tensor) -> Tensor:
        """sum_m S_m u_m, through the points where that is less to read than a matrix a piece."""
        if self._gram is None:
            return self._geometry.fitted(pieces) @ self._geometry.lifted
        return self._times(pieces, self._gram).sum(0)

    def _spread(self, common: Tensor) -> Tensor:
        """S_m q for every piece m."""
        if self._gram is None:
            return self._geometry.cell_moments(self._geometry.lifted @ common)
        return self._gram @ common

    @staticmethod
    def _times(rows: Tensor, matrices: Tensor) -> Tensor:
        """A_m r_m, A_m symmetric: a row before a matrix is multiplied faster than a column after it."""
        return torch.bmm(rows.unsqueeze(1), matrices).squeeze(1)


class NormalEquations:
    """H_m = S + K S_m + kappa J for a given geometry."""

    def __init__(self, geometry: Geometry, kappa: float) -> None:
        self._geometry = geometry
        ridge = torch.full_like(geometry.lifted[0], kappa)
        ridge[-1] = 0
        gram = geometry.ranks.sum(geometry.lifted.T @ geometry.lifted)
        self._base = torch.linalg.inv(gram + ridge.diag())

    def factor(self) -> Factor:
        """Factorise."""
        return (_RankOneFactor if self._geometry.own_piece else _BatchedFactor)(self._geometry, self._base)
