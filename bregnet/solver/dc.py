"""Difference-of-convex regression (paper, program 11 and algorithm 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from bregnet.solver.geometry import Geometry
from bregnet.solver.normal import NormalEquations
from bregnet.solver.penalty import Penalty
from bregnet.solver.regression import LeastSquares


class DCRegression(LeastSquares):
    """The difference of two convex functions.

    Sum and difference of the two piece sets decouple: the sum sees no data, the difference sees it twice.
    """

    step_scale = 17.0

    def __init__(self, geometry: Geometry, targets: Tensor, penalty: Penalty, offset: float = 0.0) -> None:
        super().__init__(geometry, targets, penalty, (1, -1), offset)

    def prepare(self, normal: NormalEquations, rho: float) -> None:
        """Factorise block 1."""
        self._strength = 2 * self._data_strength(rho)
        self._sum_factor = normal.factor(0.0)
        self._difference_factor = normal.factor(self._strength)

    def solve_pieces(self, right_hand_side: Tensor) -> Tensor:
        """Block 1 with the data term."""
        first, second = right_hand_side
        total = self._sum_factor.solve(first + second)
        difference = self._difference_factor.solve(first - second + self._strength * self._moment)
        return torch.stack([total + difference, total - difference]) / 2
