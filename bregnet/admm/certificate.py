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

import torch
from torch import Tensor

from bregnet.admm.geometry import Geometry
from bregnet.admm.kernels import Pairs

GATHER_ELEMENTS = 1 << 22  # numbers held at once when walking the pairs
DENSE_SHARE = 0.01  # of all pairs: with more, a matrix product for all is cheaper than gathering some
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

    def _chunks(self, pairs: Pairs) -> Iterator[slice]:
        step = max(1, GATHER_ELEMENTS // self.geometry.lifted.shape[1])
        return (slice(start, start + step) for start in range(0, len(pairs.rows), step))

    def _row_sums(self, pairs: Pairs, flow: Tensor, values: Tensor) -> Tensor:
        """sum_j flow_mj values_j for every piece m, (K, ...)."""
        shape = (self.geometry.n_pieces, self.geometry.n_points)
        indices = torch.stack([pairs.rows, pairs.columns])
        matrix = torch.sparse_coo_tensor(indices, flow, shape, is_coalesced=True, check_invariants=False)
        return torch.sparse.mm(matrix, values)

    def balance(self, pairs: Pairs, flow: Tensor, at_points: Tensor) -> Tensor:
        """sum_j flow_mj xh_j - sum_{j in m} (sum_k flow_kj + at_points_j) xh_j, (K, d + 1)."""
        lifted = self.geometry.lifted
        arriving = at_points.index_add(0, pairs.columns, flow)
        return self._row_sums(pairs, flow, lifted) - self.geometry.cell_sum(arriving[:, None] * lifted)

    def excess(self, pairs: Pairs, pieces: Tensor) -> Tensor:
        """(u_k - u_c(j)).xh_j on the pairs."""
        geometry = self.geometry
        fitted = geometry.fitted(pieces)
        if len(pairs.rows) > DENSE_SHARE * geometry.n_pieces * geometry.n_points:
            return self._values_by_row(pairs, pieces) - fitted[pairs.columns]
        out = torch.empty_like(pairs.values)
        for chunk in self._chunks(pairs):
            columns = pairs.columns[chunk]
            value = (pieces[pairs.rows[chunk]] * geometry.lifted[columns]).sum(1)
            out[chunk] = value - fitted[columns]
        return out

    def _values_by_row(self, pairs: Pairs, pieces: Tensor) -> Tensor:
        """u_k.xh_j on the pairs, which come row by row, from the values of all pieces, some at a time."""
        step = max(1, GATHER_ELEMENTS // self.geometry.n_points)
        firsts = torch.arange(0, len(pieces) + step, step, device=pieces.device)
        ends = torch.searchsorted(pairs.rows, firsts).tolist()
        out = torch.empty_like(pairs.values)
        for part, first, begin, end in zip(pieces.split(step), firsts, ends[:-1], ends[1:], strict=False):
            values = part @ self.geometry.lifted.T
            out[begin:end] = values[pairs.rows[begin:end] - first, pairs.columns[begin:end]]
        return out

    def stationarity(self, point: DualPoint) -> Tensor:
        """Minus nu: what the penalty's multipliers must make up for, (Q, K, d + 1)."""
        each = zip(self.signs, point.pairs, strict=True)
        return torch.stack([self.balance(pairs, pairs.values, sign * point.theta) for sign, pairs in each])

    def respond(self, point: DualPoint, flexibility: Tensor, pieces: Tensor) -> DualPoint:
        """How multipliers move along `pieces` (Q, K, d + 1): each in proportion to its own size."""
        moves = [p.values * self.excess(p, u) for p, u in zip(point.pairs, pieces, strict=True)]
        fitted = torch.stack([s * self.geometry.fitted(u) for s, u in zip(self.signs, pieces, strict=True)])
        return point.with_values(moves, -flexibility * fitted.sum(0))

    def diagonal(self, point: DualPoint, flexibility: Tensor) -> Tensor:
        """The diagonal (Q, K, d + 1) of the map from pieces to the stationarity of their response."""
        squared = self.geometry.lifted.square()
        out = []
        for pairs in point.pairs:
            arriving = flexibility.index_add(0, pairs.columns, pairs.values)
            out.append(
                self._row_sums(pairs, pairs.values, squared) + self.geometry.cell_sum(arriving[:, None] * squared)
            )
        return torch.stack(out)

    def diagonal_blocks(self, point: DualPoint, flexibility: Tensor) -> Tensor:
        """Diagonal blocks (Q, K, d + 1, d + 1) of the map from pieces to the stationarity of their response."""
        lifted, size = self.geometry.lifted, self.geometry.lifted.shape[1]
        out = lifted.new_zeros((len(point.pairs), self.geometry.n_pieces, size, size))
        for block, pairs in zip(out, point.pairs, strict=True):
            arriving = flexibility.index_add(0, pairs.columns, pairs.values)
            for feature in range(size):
                scaled = lifted * lifted[:, feature, None]
                block[:, feature] = self._row_sums(pairs, pairs.values, scaled)
                block[:, feature] += self.geometry.cell_sum(arriving[:, None] * scaled)
        return out


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
        change = operator.stationarity(operator.respond(point, flexibility, direction)) + ridge * direction
        length = energy / (direction * change).sum().clamp_min(TINY)
        pieces = pieces + length * direction
        residual = residual - length * change
        scaled = precondition(residual)
        previous, energy = energy, (residual * scaled).sum()
        direction = scaled + (energy / previous.clamp_min(TINY)) * direction

    moved = operator.respond(point, flexibility, pieces)
    values = [
        p.values + m.values.clamp_min(-p.values).clamp_max(LARGEST_GROWTH * p.values)
        for p, m in zip(point.pairs, moved.pairs, strict=True)
    ]
    return point.with_values(values, point.theta + moved.theta)
