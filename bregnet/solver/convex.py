"""Convex regression (paper, program 3 and algorithm 2)."""

from __future__ import annotations

from torch import Tensor

from bregnet.solver.geometry import Geometry
from bregnet.solver.normal import NormalEquations
from bregnet.solver.penalty import Penalty
from bregnet.solver.regression import LeastSquares


class ConvexRegression(LeastSquares):
    """One convex function."""

    def __init__(self, geometry: Geometry, targets: Tensor, penalty: Penalty, offset: float = 0.0) -> None:
        super().__init__(geometry, targets, penalty, (1,), offset)

    def prepare(self, normal: NormalEquations, rho: float) -> None:
        """Factorise block 1."""
        self._strength = self._data_strength(rho)
        self._factor = normal.factor(self._strength)

    def solve_pieces(self, right_hand_side: Tensor) -> Tensor:
        """Block 1 with the data term."""
        return self._factor.solve(right_hand_side[0] + self._strength * self._moment)[None]
