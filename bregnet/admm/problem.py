"""What a problem must supply to the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from bregnet.admm.geometry import Geometry
from bregnet.admm.kernels import Pairs
from bregnet.admm.normal import NormalEquations
from bregnet.admm.prox import Penalty


class Problem(ABC):
    """A loss on the pieces and slacks of one or more piece sets, with the common penalty.

    A problem never loops: it prepares block 1 for a step size, solves it, and values primal and dual points.

    Attributes
    ----------
    step_scale : float
        Constant of the default step size, measured.
    """

    step_scale: float = 30.0

    def __init__(self, geometry: Geometry, penalty: Penalty, n_sets: int) -> None:
        self.geometry = geometry
        self.penalty = penalty
        self.n_sets = n_sets

    @property
    @abstractmethod
    def trivial_bound(self) -> float:
        """A bound that holds before any work."""

    @abstractmethod
    def prepare(self, normal: NormalEquations, rho: float) -> None:
        """Factorise block 1 for the step size `rho`."""

    @abstractmethod
    def solve_pieces(self, right_hand_side: Tensor) -> Tensor:
        """Block 1: pieces (Q, K, d + 1), given what penalty and slacks put on the right-hand side."""

    @abstractmethod
    def primal(self, pieces: Tensor) -> tuple[float, Tensor]:
        """Value of the functions these pieces define, after cheap improvements, and the improved pieces."""

    @abstractmethod
    def bound(self, pairs: tuple[Pairs, ...], pieces: Tensor, nu: Tensor, *, repairs: int) -> float:
        """A number that no feasible point of the program can go below.

        Parameters
        ----------
        pairs : tuple of Pairs
            Multipliers mu of the convexity constraints, one list per piece set.
        pieces : Tensor of shape (Q, K, d + 1)
        nu : Tensor of shape (Q, K, d)
            Multipliers of the penalty, dual feasible.
        repairs : int
            How often the multipliers may be repaired.
        """

    def largest(self, pieces: Tensor) -> Tensor:
        """f(x_j) = max_k u_k.xh_j at every point, for one piece set (K, d + 1)."""
        lifted = self.geometry.lifted
        step = max(1, (1 << 21) // len(pieces))
        return torch.cat([(lifted[i : i + step] @ pieces.T).amax(1) for i in range(0, len(lifted), step)])
