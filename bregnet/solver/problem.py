"""What a problem must supply to the solver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from bregnet.distributed import Ranks
from bregnet.solver.geometry import Geometry
from bregnet.solver.penalty import Penalty


class Problem(ABC):
    """A loss on the pieces and slacks of one or more piece sets, with the common penalty.

    A problem never loops: it values primal and dual points, and declares how it is to be solved.

    Attributes
    ----------
    layout : str
        Which slacks are part of the iterations: "all_pairs" where every slack has a loss, "working_pairs" where most
        of them are constraints that are never active.
    interior : bool
        Whether the interior-point method can finish it.
    ranks : Ranks
        Who shares a fit.
    """

    layout: str
    interior: bool = False
    ranks: Ranks

    def __init__(self, geometry: Geometry, penalty: Penalty, n_sets: int) -> None:
        self.geometry = geometry
        self.penalty = penalty
        self.n_sets = n_sets

    def identity(self) -> tuple[list[Any], list[Tensor | None]]:
        """Values and tensors that tell this problem from others."""
        geometry, penalty = self.geometry, self.penalty
        values = [type(self).__name__, self.n_sets, geometry.n_pieces, self.ranks.rank, self.ranks.size]
        return values, [geometry.lifted, geometry.weights, geometry.cells, penalty.level, penalty.signs]

    @property
    @abstractmethod
    def trivial_bound(self) -> float:
        """A bound that holds before any work."""

    @abstractmethod
    def primal(self, pieces: Tensor) -> tuple[float, Tensor]:
        """Value of the functions that pieces (Q, K, d + 1) define, after cheap improvements, and the improved pieces.

        Pieces that are the largest at no point may be left out.
        """
