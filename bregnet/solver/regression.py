"""What convex and DC regression share: the mean squared error of a signed sum of convex functions."""

from __future__ import annotations

from functools import cached_property
from itertools import chain, combinations
from typing import Any

import torch
from torch import Tensor

from bregnet.solver.certificate import DualPoint, PairOperator, repair
from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import Pairs
from bregnet.solver.penalty import Penalty, rounding_of
from bregnet.solver.problem import Multipliers, Problem
from bregnet.solver.transport import PieceTree

CG_STEPS = 30
PAIRS_PER_POINT = 60  # multipliers that the certificate looks at, at most
PIECES_PER_PAIR = 40  # with cells so few of them that they take much less memory than the state
LEAST_PAIRS_PER_POINT = 10


def pairs_per_point(n_pieces: int, *, own_piece: bool) -> int:
    """Multipliers that the certificate looks at, at most, for each point."""
    if own_piece:
        return PAIRS_PER_POINT
    return min(PAIRS_PER_POINT, max(LEAST_PAIRS_PER_POINT, n_pieces // PIECES_PER_PAIR))


class LeastSquares(Problem):
    r"""(1/n) sum_j w_j (sum_q sigma_q f_q(x_j) - y_j)^2 + sum_q sum_l alpha_l max_k |a^q_kl|.

    Parameters
    ----------
    geometry : Geometry
    targets : Tensor of shape (n,)
        Mean target of each distinct point.
    penalty : Penalty
    signs : tuple of int
        sigma_q, the sign of each convex function.
    offset : float
        Loss that no function can avoid: the spread of targets among merged duplicates.
    """

    newton = True

    def __init__(
        self, geometry: Geometry, targets: Tensor, penalty: Penalty, signs: tuple[int, ...], offset: float = 0.0
    ) -> None:
        super().__init__(geometry, penalty, len(signs))
        self.signs = signs
        self.targets = targets
        self.offset = offset
        self._total = float(geometry.ranks.sum(geometry.weights.sum()))
        self._moment = geometry.cell_moments(geometry.weights * targets)  # h_m
        self._operator = PairOperator(geometry, signs)

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

    def _data_strength(self, rho: float) -> float:
        """The weight of the data term beside the slacks, t = 2 / (n rho)."""
        return 2 / (self._total * rho)

    def _mean(self, values: Tensor) -> Tensor:
        total = (self.geometry.weights * values).sum(-1, keepdim=True)
        return self.geometry.ranks.sum(total) / self._total

    def primal(self, pieces: Tensor) -> tuple[float, Tensor]:
        """Value of the max-affine functions with their constant refitted and each scaled for the best.

        A convex function times a non-negative number is convex, so the scales are a tiny non-negative least-squares
        problem; it is solved by trying every set of functions that are kept.
        """
        pieces = torch.stack([self.penalty.feasible(u, self.geometry.centres) for u in pieces])
        values = torch.stack([s * self.geometry.largest(u)[0] for s, u in zip(self.signs, pieces, strict=True)])
        centred = values - self._mean(values)
        level = self._mean(self.targets)
        penalty = self.penalty.value(pieces[..., :-1])
        weighted = 2 / self._total * self.geometry.weights * centred
        gram = self.geometry.ranks.sum(weighted @ centred.T)
        linear = self.geometry.ranks.sum(weighted @ (self.targets - level)) - penalty
        best_value, best_scale = torch.inf, torch.zeros_like(penalty)
        everyone = range(self.n_sets)
        for kept in chain.from_iterable(combinations(everyone, size) for size in range(self.n_sets + 1)):
            scale = torch.zeros_like(penalty)
            index = list(kept)
            if index:
                # a function that vanishes at the points gets an arbitrary scale: least norm makes it 0
                scale[index] = (torch.linalg.pinv(gram[index][:, index], hermitian=True) @ linear[index]).clamp_min(0)
            error = scale @ centred + level - self.targets
            value = float(self._mean(error.square()) + scale @ penalty) + self.offset
            if value < best_value:
                best_value, best_scale = value, scale
        improved = pieces * best_scale[:, None, None]
        improved[0, :, -1] += self.signs[0] * (level - best_scale @ self._mean(values).squeeze(-1))
        return best_value, improved

    def bound(self, multipliers: tuple[Multipliers, ...], pieces: Tensor, nu: Tensor, *, repairs: int) -> float:
        """The best dual value among the multipliers as they are and after each repair."""
        geometry = self.geometry
        limit = pairs_per_point(geometry.n_pieces, own_piece=geometry.own_piece) * geometry.n_points
        return self.bound_of_pairs(tuple(m.pairs(limit) for m in multipliers), pieces, nu, repairs=repairs)

    def bound_of_pairs(self, pairs: tuple[Pairs, ...], pieces: Tensor, nu: Tensor, *, repairs: int) -> float:
        """The bound from the pairs that carry a multiplier; all others have none."""
        each = zip(self.signs, pieces, strict=True)
        fitted = torch.stack([s * self.geometry.fitted(u) for s, u in each]).sum(0)
        theta = self.curvature * (self.targets - fitted)
        point = DualPoint(pairs, theta)
        best = self._value(point)
        mass = self.geometry.ranks.sum(torch.stack([p.values.sum() for p in pairs]).mean())
        if not mass > 0:
            return best
        flexibility = (mass / self._total) * self.geometry.weights
        for _ in range(repairs):
            point = repair(self._operator, point, nu, flexibility, CG_STEPS)
            best = max(best, self._value(point))
        return best

    def _value(self, point: DualPoint) -> float:
        mass = point.theta.abs().sum() + 2 * torch.stack([p.values.sum() for p in point.pairs]).sum()
        mass = self.geometry.ranks.sum(mass)
        return self.dual_value(self._operator.stationarity(point), point.theta, mass)

    @property
    def curvature(self) -> Tensor:
        """Second derivative of the loss in each fitted value."""
        return 2 / self._total * self.geometry.weights

    def slack_loss(self) -> None:
        """Slacks cost nothing."""

    def dense_bound(self, multipliers: Tensor, theta: Tensor, hinges: Tensor) -> float:
        """Bound from multipliers (Q, K, n) of all constraints."""
        geometry, lifted = self.geometry, self.geometry.lifted
        each = zip(self.signs, multipliers, strict=True)
        stationarity = [mu @ lifted - geometry.cell_moments(mu.sum(0) + sign * theta) for sign, mu in each]
        return self.dual_value(torch.stack(stationarity), theta, theta.abs().sum() + 2 * multipliers.sum())

    def dual_value(self, stationarity: Tensor, theta: Tensor, mass: Tensor) -> float:
        """Close the stationarity exactly, scale the multipliers into the penalty's ball, and value them.

        `mass` is the sum of all multipliers before any cancelled: what is left of them is known up to rounding, and
        must not be scaled up as if it were exact.
        """
        geometry, weights = self.geometry, self.geometry.weights
        signs = torch.tensor(self.signs, dtype=weights.dtype, device=weights.device)[:, None]
        # shift theta within each cell so that the masses of the pieces balance (on average over the sets)
        lacking = (signs * stationarity[..., -1]).mean(0) / geometry.cell_sum(weights).clamp_min(1e-300)
        shift = weights * geometry.at_cells(lacking)
        theta = theta + shift
        stationarity = stationarity - signs[..., None] * geometry.cell_moments(shift)
        if self.n_sets > 1:  # what is left of one set is the opposite of what is left of the other
            stationarity = torch.stack([self._tree.level_out(s) for s in stationarity])
        rounding = rounding_of(mass, geometry.largest_entry)
        norm = torch.stack([self.penalty.dual_norm(-s[:, :-1], rounding) for s in stationarity]).amax()
        linear = geometry.ranks.sum((theta * self.targets).sum())
        quadratic = self._total / 2 * geometry.ranks.sum((theta.square() / weights).sum())
        scale = torch.minimum(1 / norm, linear / quadratic.clamp_min(1e-300))
        value = float(scale * linear - scale.square() * quadratic / 2) if linear > 0 else 0.0
        return value + self.offset
