"""Convex and difference-of-convex regression (paper, programs 3 and 11, algorithms 2 and 4)."""

from __future__ import annotations

from abc import abstractmethod
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


class Regression(Problem):
    r"""(1/N) sum_j w_j loss_j(sum_q sigma_q f_q(x_j)) + sum_q sum_l alpha_l max_k |a^q_kl|, for a convex loss.

    A loss gives `losses`, `prox` and `dual_of_scaled`, and `theta_range` where its slope is bounded. ADMM has copies
    of the fitted values for it, which agree with them in the end.

    Parameters
    ----------
    geometry : Geometry
        All points, on every rank.
    targets : Tensor of shape (n,)
        One target for each distinct point: for squares the mean of those of equal rows.
    penalty : Penalty
    signs : tuple of int
        sigma_q, the sign of each convex function: (1,) for convex and (1, -1) for DC regression.
    offset : float
        Loss that no function can avoid: for squares the spread of targets among equal rows.
    ranks : Ranks
        Who shares the pieces.

    Attributes
    ----------
    degree : int
        The loss of c times as large errors is about c to the power of this as large.
    """

    layout = "working_pairs"
    degree = 1

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
        """Weight of the data in block 1, (n,): how firmly fitted values are held to what the loss asks for.

        About the size that targets of unit variance ask for.
        """
        return 2 / self._total * self.geometry.weights

    @property
    def theta_range(self) -> tuple[Tensor, Tensor] | None:
        """Least (at most 0) and largest (at least 0) theta at each point; None where any will do.

        theta, the multiplier of a fitted value, is minus the derivative of its weighted loss.
        """
        return None

    @abstractmethod
    def losses(self, fitted: Tensor) -> Tensor:
        """The loss of fitted values (n,) at each point, without weights, (n,)."""

    @abstractmethod
    def prox(self, copies: Tensor) -> Tensor:
        """The minimizer r of the weighted loss of each point plus curvature / 2 (r - copies)^2, (n,)."""

    @abstractmethod
    def dual_of_scaled(self, theta: Tensor, largest: Tensor) -> float:
        """The largest of minus the conjugates at minus c theta, summed over points, for some c from 0 to `largest`.

        Any c from 0 to `largest` gives a bound, so it need not be the best.
        """

    def starting_copies(self) -> Tensor | None:
        """Where the copies of the fitted values start, (n,); None: the loss is part of block 1."""
        return self.targets.clone()

    def theta(self, fitted: Tensor, copies: Any) -> Tensor:
        """Multipliers of the data term for the fitted values (Q, n) of each set or the copies (n,) of their sum."""
        return self.curvature * (self.prox(copies) - copies)

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
        losses = self.losses(fitted.new_tensor(self.signs) @ fitted)
        return float(self._mean(losses) + self.penalty.value(slopes.double()).sum()) + self.offset

    def feasible(self, pieces: Tensor) -> Tensor:
        """Pieces (Q, K, d + 1) whose slopes have the signs that are asked for."""
        return torch.stack([self.penalty.feasible(u, self.geometry.centers) for u in pieces])

    def improved(self, pieces: Tensor, largest: Tensor) -> tuple[float, Tensor]:
        """Value of functions that have the values `largest` (Q, n) at the points; a loss may improve the pieces."""
        return self.relaxed_value(largest, pieces[..., :-1]), pieces

    def used(self, pieces: Tensor) -> list[Tensor]:
        """Of each set (K, d + 1) the pieces that are the largest at some point: the others change no fitted value."""
        return [u[torch.unique(self.geometry.largest_anyhow(u)[1])] for u in pieces]

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
        if self.theta_range is not None:
            inside = _balanced(theta.clamp(*self.theta_range))
            stationarity = stationarity - signs[..., None] * geometry.cell_moments(inside - theta)
            theta = inside
        # what is left of one set is the opposite of what is left of the other
        if self.n_sets > 1 or self.theta_range is not None:
            stationarity = torch.stack([self._tree.level_out(s, short=tight) for s in stationarity])
        rounding = rounding_of(mass, geometry.largest_entry)
        norm = torch.stack([self.penalty.dual_norm(-s[:, :-1], rounding) for s in stationarity]).amax()
        return self.dual_of_scaled(theta, 1 / norm) + self.offset


def _balanced(theta: Tensor) -> Tensor:
    """Multipliers whose sum is 0: those of the sign that prevails are made smaller."""
    above, below = theta.clamp_min(0), theta.clamp_max(0)
    least = torch.minimum(above.sum(), -below.sum())
    return above * (least / above.sum().clamp_min(1e-300)) - below * (least / below.sum().clamp_max(-1e-300))


class LeastSquares(Regression):
    """The loss (sum_q sigma_q f_q(x_j) - y_j)^2; its second derivative is the weight of the data in block 1."""

    degree = 2

    def starting_copies(self) -> None:
        """None: with this weight, what the prox asks of block 1 are the targets, whatever the copies are."""

    def losses(self, fitted: Tensor) -> Tensor:
        """Squared errors."""
        return (fitted - self.targets).square()

    def prox(self, copies: Tensor) -> Tensor:
        """Half way to the targets."""
        return (copies + self.targets) / 2

    def theta(self, fitted: Tensor, copies: Any = None) -> Tensor:
        """Minus the derivative of the loss."""
        return self.curvature * (self.targets - fitted.new_tensor(self.signs) @ fitted)

    def dual_of_scaled(self, theta: Tensor, largest: Tensor) -> float:
        """A parabola in the scale."""
        linear = (theta * self.targets).sum()
        quadratic = self._total / 2 * (theta.square() / self.geometry.weights).sum()
        scale = torch.minimum(largest, linear / quadratic.clamp_min(1e-300))
        return float(scale * linear - scale.square() * quadratic / 2) if linear > 0 else 0.0

    def improved(self, pieces: Tensor, largest: Tensor) -> tuple[float, Tensor]:
        """Value of functions that have the values `largest` (Q, n) at the points, scaled and shifted for the best.

        A convex function times a non-negative number is convex, so the scales are a tiny non-negative least-squares
        problem; it is solved by trying every set of functions that are kept. Returned with the improved pieces.
        """
        values = largest * largest.new_tensor(self.signs)[:, None]
        centered = values - self._mean(values)
        level = self._mean(self.targets)
        penalty = self.penalty.value(pieces[..., :-1])
        weighted = self.curvature * centered
        gram, linear = weighted @ centered.T, weighted @ (self.targets - level) - penalty
        best_value, best_scale = torch.inf, torch.zeros_like(penalty)
        everyone = range(self.n_sets)
        for kept in chain.from_iterable(combinations(everyone, size) for size in range(self.n_sets + 1)):
            scale = torch.zeros_like(penalty)
            index = list(kept)
            if index:
                # a function that vanishes at the points gets an arbitrary scale: least norm makes it 0
                wanted = torch.linalg.pinv(gram[index][:, index], hermitian=True) @ linear[index]
                scale[index] = wanted.clamp(0, LARGEST_SCALE)
            error = scale @ centered + level - self.targets
            value = float(self._mean(error.square()) + scale @ penalty) + self.offset
            if value < best_value:
                best_value, best_scale = value, scale
        improved = pieces * best_scale[:, None, None]
        improved[0, :, -1] += self.signs[0] * (level - best_scale @ self._mean(values).squeeze(-1))
        return best_value, improved
