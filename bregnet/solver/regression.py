"""Convex and difference-of-convex regression (paper, programs 3 and 11, algorithms 2 and 4)."""

from __future__ import annotations

from functools import cached_property
from itertools import chain, combinations
from typing import Any

import torch
from torch import Tensor

from bregnet.distributed import ALONE, Ranks
from bregnet.solver.geometry import Geometry
from bregnet.solver.penalty import Penalty, rounding_of
from bregnet.solver.problem import Problem
from bregnet.solver.transport import PieceTree

LARGEST_SCALE = 2.0  # of a function: where it hardly varies, rounding must not be taken for its shape


class LeastSquares(Problem):
    r"""(1/N) sum_j w_j (sum_q sigma_q f_q(x_j) - y_j)^2 + sum_q sum_l alpha_l max_k |a^q_kl|.

    Parameters
    ----------
    geometry : Geometry
        All points, on every rank.
    targets : Tensor of shape (n,)
        Mean target of each distinct point.
    penalty : Penalty
    signs : tuple of int
        sigma_q, the sign of each convex function: (1,) for convex and (1, -1) for DC regression.
    offset : float
        Loss that no function can avoid: the spread of targets among merged duplicates.
    ranks : Ranks
        Who shares the pieces.
    """

    layout = "working_pairs"

    def __init__(
        self,
        geometry: Geometry,
        targets: Tensor,
        penalty: Penalty,
        signs: tuple[int, ...],
        offset: float = 0.0,
        ranks: Ranks = ALONE,
    ) -> None:
        super().__init__(geometry, penalty, len(signs))
        if signs not in ((1,), (1, -1)):
            raise ValueError(f"signs must be (1,) or (1, -1), got {signs!r}")
        self.signs = signs
        self.targets = targets
        self.offset = offset
        self.ranks = ranks
        self._total = float(geometry.weights.sum())

    def identity(self) -> tuple[list[Any], list[Tensor | None]]:
        """Values and tensors that tell this problem from others."""
        values, tensors = super().identity()
        return [*values, self.offset], [*tensors, self.targets]

    @property
    def trivial_bound(self) -> float:
        """What duplicates with different targets cost any function."""
        return self.offset

    @cached_property
    def _tree(self) -> PieceTree:
        return PieceTree(self.geometry)

    @property
    def curvature(self) -> Tensor:
        """Second derivative of the loss in each fitted value, (n,)."""
        return 2 / self._total * self.geometry.weights

    def _mean(self, values: Tensor) -> Tensor:
        return (self.geometry.weights * values).sum(-1, keepdim=True) / self._total

    def primal(self, pieces: Tensor) -> tuple[float, Tensor]:
        """Value of the max-affine functions with their constant refitted and each scaled for the best.

        Pieces that are the largest at no point change no fitted value, but may cost a penalty: in their place the
        improved pieces, which are returned with it, repeat one of the others.
        """
        largest, reduced = [], []
        for u in self.feasible(pieces):
            values, index = self.geometry.largest_anyhow(u)
            unused = torch.ones_like(u[:, :1], dtype=torch.bool)
            unused[index] = False
            largest.append(values)
            reduced.append(torch.where(unused, u[index[0]], u))
        return self.improved(torch.stack(reduced), torch.stack(largest))

    def relaxed_value(self, fitted: Tensor, slopes: Tensor) -> float:
        """The value of fitted values (Q, n) and slopes (Q, K, d) that need not belong to convex functions."""
        error = fitted.new_tensor(self.signs) @ fitted - self.targets
        return float(self._mean(error.square()) + self.penalty.value(slopes.double()).sum()) + self.offset

    def feasible(self, pieces: Tensor) -> Tensor:
        """Pieces (Q, K, d + 1) whose slopes have the signs that are asked for."""
        return torch.stack([self.penalty.feasible(u, self.geometry.centres) for u in pieces])

    def improved(self, pieces: Tensor, largest: Tensor) -> tuple[float, Tensor]:
        """Value of functions that have the values `largest` (Q, n) at the points, scaled and shifted for the best.

        A convex function times a non-negative number is convex, so the scales are a tiny non-negative least-squares
        problem; it is solved by trying every set of functions that are kept. Returned with the improved pieces.
        """
        values = largest * largest.new_tensor(self.signs)[:, None]
        centred = values - self._mean(values)
        level = self._mean(self.targets)
        penalty = self.penalty.value(pieces[..., :-1])
        weighted = self.curvature * centred
        gram, linear = weighted @ centred.T, weighted @ (self.targets - level) - penalty
        best_value, best_scale = torch.inf, torch.zeros_like(penalty)
        everyone = range(self.n_sets)
        for kept in chain.from_iterable(combinations(everyone, size) for size in range(self.n_sets + 1)):
            scale = torch.zeros_like(penalty)
            index = list(kept)
            if index:
                # a function that vanishes at the points gets an arbitrary scale: least norm makes it 0
                wanted = torch.linalg.pinv(gram[index][:, index], hermitian=True) @ linear[index]
                scale[index] = wanted.clamp(0, LARGEST_SCALE)
            error = scale @ centred + level - self.targets
            value = float(self._mean(error.square()) + scale @ penalty) + self.offset
            if value < best_value:
                best_value, best_scale = value, scale
        improved = pieces * best_scale[:, None, None]
        improved[0, :, -1] += self.signs[0] * (level - best_scale @ self._mean(values).squeeze(-1))
        return best_value, improved

    def used(self, pieces: Tensor) -> list[Tensor]:
        """Of each set (K, d + 1) the pieces that are the largest at some point: the others change no fitted value."""
        return [u[torch.unique(self.geometry.largest_anyhow(u)[1])] for u in pieces]

    def theta(self, fitted: Tensor) -> Tensor:
        """Multipliers of the data term for the fitted values (Q, n) of each set, (n,)."""
        return self.curvature * (self.targets - fitted.new_tensor(self.signs) @ fitted)

    def dual_value(self, stationarity: Tensor, theta: Tensor, mass: Tensor, *, tight: bool) -> float:
        """Close the stationarity exactly, scale the multipliers into the penalty's ball, and value them.

        `mass` is the sum of all multipliers before any cancelled: what is left of them is known up to rounding, and
        must not be scaled up as if it were exact. `tight` takes pains to close it at little cost.
        """
        geometry, weights = self.geometry, self.geometry.weights
        signs = torch.tensor(self.signs, dtype=weights.dtype, device=weights.device)[:, None]
        # shift theta within each cell so that the masses of the pieces balance (on average over the sets)
        lacking = (signs * stationarity[..., -1]).mean(0) / geometry.cell_sum(weights).clamp_min(1e-300)
        shift = weights * geometry.at_cells(lacking)
        theta = theta + shift
        stationarity = stationarity - signs[..., None] * geometry.cell_moments(shift)
        if self.n_sets > 1:  # what is left of one set is the opposite of what is left of the other
            stationarity = torch.stack([self._tree.level_out(s, short=tight) for s in stationarity])
        rounding = rounding_of(mass, geometry.largest_entry)
        norm = torch.stack([self.penalty.dual_norm(-s[:, :-1], rounding) for s in stationarity]).amax()
        linear = (theta * self.targets).sum()
        quadratic = self._total / 2 * (theta.square() / weights).sum()
        scale = torch.minimum(1 / norm, linear / quadratic.clamp_min(1e-300))
        value = float(scale * linear - scale.square() * quadratic / 2) if linear > 0 else 0.0
        return value + self.offset
