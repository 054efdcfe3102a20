r"""Lower bounds: dual points that are feasible whatever the solver did.

For multipliers :math:`\mu_{kj} \ge 0` of the constraints :math:`u_k \cdot \hat x_j \le u_{c(j)} \cdot \hat x_j` and
:math:`\theta_j` of the data term, piece m of set q (sign :math:`\sigma_q`) is stationary when

.. math:: \sum_j \mu_{mj} \hat x_j - \sum_{j \in m} (\sum_k \mu_{kj} + \sigma_q \theta_j) \hat x_j + (\nu_m, 0) = 0,

and :math:`\nu` is dual feasible when :math:`\sum_k |\nu_{kl}| \le \alpha_l` for every feature. ADMM meets the first
only in the limit: every piece is off by a little, the column sums of :math:`|\nu|` add up all the little errors, and
scaling them back below :math:`\alpha_l` costs most of the bound when alpha is small. So the multipliers are repaired
first: a weighted least-squares step on the pairs that carry a multiplier moves each piece back onto the :math:`\nu`
of the solver, which lies in its ball by construction. What no step can mend is closed exactly by the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import Pairs

GATHER_ELEMENTS = 1 << 22  # numbers held at once when walking the pairs
BLOCK_MAX_DIMENSION = 40  # beyond, the preconditioner is diagonal
RIDGE = 1e-4  # of the mean diagonal: pieces with hardly any multiplier cannot be moved and must not blow up
LARGEST_GROWTH = 3.0  # a multiplier at most quadruples in one repair
TINY = 1e-300


@dataclass(frozen=True)
class DualPoint:
    """Pair multipliers mu per piece set, and theta per point."""

    pairs: tuple[Pairs, ...]
    theta: Tensor

    def with_values(self, values: list[Tensor], theta: Tensor) -> DualPoint:
        """The same pairs with other multipliers."""
        pairs = tuple(p._replace(values=v) for p, v in zip(self.pairs, values, strict=True))
        return replace(self, pairs=pairs, theta=theta)


class PairOperator:
    """Sums over pairs: the stationarity of the pieces, and its adjoint.

    Parameters
    ----------
    geometry : Geometry
    signs : tuple of int
        The sign with which each piece set enters the data term.
    """

    def __init__(self, geometry: Geometry, signs: tuple[int, ...]) -> None:
        self.geometry = geometry
        self.signs = signs
        self.compiled = geometry.lifted.device.type == "cpu"

    def _row_sums(self, pairs: Pairs, flow: Tensor) -> Tensor:
        """sum_j flow_mj xh_j for every piece m, (K, d + 1), over this rank's pairs."""
        geometry = self.geometry
        if self.compiled:
            from bregnet.solver import compiled  # numba is slow to import

            out = geometry.lifted.new_zeros((geometry.n_pieces, geometry.lifted.shape[1]))
            compiled.pair_moments(*_numbers(pairs.rows, pairs.columns, flow, geometry.lifted, out))
            return out
        return self._sparse(pairs, flow) @ geometry.lifted

    def _sparse(self, pairs: Pairs, flow: Tensor) -> Tensor:
        shape = (self.geometry.n_pieces, self.geometry.n_points)
        indices = torch.stack([pairs.rows, pairs.columns])
        return torch.sparse_coo_tensor(indices, flow, shape, is_coalesced=True, check_invariants=False)

    def _own_balance(self, pairs: Pairs, flow: Tensor, at_points: Tensor) -> Tensor:
        """sum_j flow_mj xh_j - sum_{j in m} (sum_k flow_kj + at_points_j) xh_j, (K, d + 1), of this rank's points."""
        arriving = at_points.index_add(0, pairs.columns, flow)
        return self._row_sums(pairs, flow) - self.geometry.own_moments(arriving)

    def excess(self, pairs: Pairs, pieces: Tensor) -> Tensor:
        """(u_k - u_c(j)).xh_j on the pairs."""
        geometry = self.geometry
        fitted = geometry.fitted(pieces)
        if self.compiled:
            from bregnet.solver import compiled  # numba is slow to import

            out = torch.empty_like(pairs.values)
            compiled.pair_excesses(*_numbers(pairs.rows, pairs.columns, pieces, geometry.lifted, fitted, out))
            return out
        step = max(1, GATHER_ELEMENTS // geometry.lifted.shape[1])
        ends = zip(pairs.rows.split(step), pairs.columns.split(step), strict=True)
        values = [torch.linalg.vecdot(pieces[rows], geometry.lifted[columns]) for rows, columns in ends]
        return torch.cat([*values, fitted[:0]]) - fitted[pairs.columns]

    def stationarity(self, point: DualPoint) -> Tensor:
        """Minus nu: what the penalty's multipliers must make up for, (Q, K, d + 1)."""
        each = zip(self.signs, point.pairs, strict=True)
        own = [self._own_balance(pairs, pairs.values, sign * point.theta) for sign, pairs in each]
        return self.geometry.ranks.sum(torch.stack(own))

    def response(self, point: DualPoint, flexibility: Tensor, pieces: Tensor) -> Tensor:
        """Stationarity (Q, K, d + 1) of how multipliers move along `pieces`: each in proportion to its own size."""
        theta = self._moved_theta(flexibility, pieces)
        each = zip(self.signs, point.pairs, pieces, strict=True)
        own = [self._own_balance(p, self.excess(p, u).mul_(p.values), sign * theta) for sign, p, u in each]
        return self.geometry.ranks.sum(torch.stack(own))

    def moved(self, point: DualPoint, flexibility: Tensor, pieces: Tensor) -> DualPoint:
        """The multipliers after that move, none of them negative or much larger than before."""
        each = zip(point.pairs, pieces, strict=True)
        values = [self.excess(p, u).clamp_(-1, LARGEST_GROWTH).add_(1).mul_(p.values) for p, u in each]
        return point.with_values(values, point.theta + self._moved_theta(flexibility, pieces))

    def _moved_theta(self, flexibility: Tensor, pieces: Tensor) -> Tensor:
        fitted = torch.stack([s * self.geometry.fitted(u) for s, u in zip(self.signs, pieces, strict=True)])
        return -flexibility * fitted.sum(0)

    def diagonal(self, point: DualPoint, flexibility: Tensor) -> Tensor:
        """The diagonal (Q, K, d + 1) of the map from pieces to the stationarity of their response."""
        squares = replace(self.geometry, lifted=self.geometry.lifted.square())
        there = PairOperator(squares, self.signs)
        out = []
        for pairs in point.pairs:
            arriving = flexibility.index_add(0, pairs.columns, pairs.values)
            out.append(there._row_sums(pairs, pairs.values) + squares.own_moments(arriving))
        return self.geometry.ranks.sum(torch.stack(out))

    def diagonal_blocks(self, point: DualPoint, flexibility: Tensor) -> Tensor:
        """Diagonal blocks (Q, K, d + 1, d + 1) of the map from pieces to the stationarity of their response."""
        geometry = self.geometry
        out = []
        for pairs in point.pairs:
            arriving = flexibility.index_add(0, pairs.columns, pairs.values)
            out.append(geometry.ranks.sum(self._row_grams(pairs)) + geometry.cell_grams(arriving))
        return torch.stack(out)

    def _row_grams(self, pairs: Pairs) -> Tensor:
        """sum_j mu_mj xh_j xh_j' for every piece m, (K, d + 1, d + 1), over this rank's pairs."""
        lifted, size = self.geometry.lifted, self.geometry.lifted.shape[1]
        out = lifted.new_zeros((self.geometry.n_pieces, size, size))
        if self.compiled:
            from bregnet.solver import compiled  # numba is slow to import

            compiled.pair_grams(*_numbers(pairs.rows, pairs.columns, pairs.values, lifted, out))
            return out
        matrix = self._sparse(pairs, pairs.values)
        for feature in range(size):
            out[:, feature] = matrix @ (lifted * lifted[:, feature, None])
        return out


def _numbers(*tensors: Tensor) -> Iterator[np.ndarray]:
    return (tensor.contiguous().numpy() for tensor in tensors)


def _preconditioner(
    operator: PairOperator, point: DualPoint, flexibility: Tensor
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Division by the diagonal blocks, or by the diagonal where there are many features, and the ridge added to it."""
    if operator.geometry.dimension > BLOCK_MAX_DIMENSION:
        diagonal = operator.diagonal(point, flexibility)
        ridge = RIDGE * diagonal.mean() + TINY
        return lambda values: values / (diagonal + ridge), ridge
    blocks = operator.diagonal_blocks(point, flexibility)
    diagonal = blocks.diagonal(dim1=-2, dim2=-1)
    ridge = RIDGE * diagonal.mean() + TINY
    inverse = torch.linalg.inv(blocks + ridge.expand_as(diagonal).diag_embed())
    return lambda values: (inverse @ values.unsqueeze(-1)).squeeze(-1), ridge


def repair(operator: PairOperator, point: DualPoint, nu: Tensor, flexibility: Tensor, n_steps: int) -> DualPoint:
    """Move multipliers so that the penalty's multipliers become `nu` (Q, K, d), by conjugate gradients."""
    target = torch.cat([nu, torch.zeros_like(nu[..., :1])], dim=-1)
    residual = -(operator.stationarity(point) + target)
    precondition, ridge = _preconditioner(operator, point, flexibility)
    pieces = torch.zeros_like(residual)
    direction = scaled = precondition(residual)
    energy = (residual * scaled).sum()
    for _ in range(n_steps):
        change = operator.response(point, flexibility, direction) + ridge * direction
        length = energy / (direction * change).sum().clamp_min(TINY)
        pieces = pieces + length * direction
        residual = residual - length * change
        scaled = precondition(residual)
        previous, energy = energy, (residual * scaled).sum()
        direction = scaled + (energy / previous.clamp_min(TINY)) * direction

    return operator.moved(point, flexibility, pieces)
