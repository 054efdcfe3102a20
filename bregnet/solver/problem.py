"""What a problem must supply to the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bregnet.solver.entries import Entries, EntryKernel
from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import Kernel, Pairs, choose_kernel
from bregnet.solver.margins import Margins
from bregnet.solver.normal import NormalEquations
from bregnet.solver.penalty import Penalty


class Multipliers(ABC):
    """The multipliers of a piece set."""

    @abstractmethod
    def tiles(self) -> Iterator[tuple[slice, Tensor]]:
        """mu (rows, n) of some pieces after the other; they may be changed in place."""

    @property
    @abstractmethod
    def n_pieces(self) -> int:
        """Rows in all tiles."""

    def pairs(self, limit: int) -> Pairs:
        """The positive ones, the largest of them where a tile has more than its share."""
        out, size = None, 0
        for rows, tile in self.tiles():
            if out is None:  # before anything else lasts, so that the memory of a tile serves the next
                index = torch.int32 if tile.device.type == "cpu" else torch.int64  # sparse products want 64 bits
                room = min(limit + self.n_pieces, self.n_pieces * tile.shape[1])
                out = Pairs(*(torch.empty(room, dtype=kind, device=tile.device) for kind in (index, index, tile.dtype)))
            at = torch.nonzero(tile > 0)
            values = tile[at[:, 0], at[:, 1]]
            share = max(1, limit * len(tile) // self.n_pieces)
            if len(values) > share:
                order = values.topk(share).indices.sort().values
                at, values = at[order], values[order]
            here = slice(size, size + len(values))
            out.rows[here], out.columns[here], out.values[here] = at[:, 0] + rows.start, at[:, 1], values
            size = here.stop
        assert out is not None
        return Pairs(*(part[:size] for part in out))

    @abstractmethod
    def of_losses(self) -> Tensor:
        """Those of losses that couple entries, (T,)."""

    def of_entries(self, entries: Entries) -> Tensor:
        """Those of the chosen entries, (E,)."""
        found = []
        for rows, tile in self.tiles():
            part = entries.within(rows)
            found.append(tile[entries.rows[part] - rows.start, entries.columns[part]])
        return torch.cat(found)


class StateMultipliers(Multipliers):
    """The multipliers as the solver's state has them."""

    def __init__(self, kernel: Kernel, state: Tensor) -> None:
        self.kernel, self.state = kernel, state

    def tiles(self) -> Iterator[tuple[slice, Tensor]]:
        """mu (rows, n) of some pieces after the other; they may be changed in place."""
        return self.kernel.multipliers(self.state)

    @property
    def n_pieces(self) -> int:
        """Rows of the state."""
        return len(self.state)

    def of_losses(self) -> Tensor:
        """Those of losses that couple entries, (T,)."""
        assert isinstance(self.kernel, EntryKernel)
        return self.kernel.loss_multipliers(self.state)


class DenseMultipliers(Multipliers):
    """Multipliers given as one matrix (K, n)."""

    def __init__(self, matrix: Tensor, losses: Tensor | None = None) -> None:
        self._matrix, self._losses = matrix, losses

    def tiles(self) -> Iterator[tuple[slice, Tensor]]:
        """All at once."""
        yield slice(0, len(self._matrix)), self._matrix.clone()

    @property
    def n_pieces(self) -> int:
        """Rows of the matrix."""
        return len(self._matrix)

    def of_losses(self) -> Tensor:
        """Those of losses that couple entries, (T,)."""
        assert self._losses is not None
        return self._losses


class Problem(ABC):
    """A loss on the pieces and slacks of one or more piece sets, with the common penalty.

    A problem never loops: it prepares block 1 for a step size, solves it, and values primal and dual points.

    Attributes
    ----------
    step_scale : float
        Constant of the default step size, measured.
    margins : Margins or None
        Loss on every slack.
    entries : Entries or None
        Loss on chosen slacks.
    polished : bool
        Whether the value jumps where pieces tie, so that pieces must first be made to keep their points.
    newton : bool
        Whether the interior-point method can finish it.
    coupled : bool
        Whether its loss couples the slopes of several pieces.
    """

    step_scale: float = 30.0
    margins: Margins | None = None
    entries: Entries | None = None
    polished: bool = False
    newton: bool = False
    coupled: bool = False

    def __init__(self, geometry: Geometry, penalty: Penalty, n_sets: int) -> None:
        self.geometry = geometry
        self.penalty = penalty
        self.n_sets = n_sets

    def kernel(self, dtype: torch.dtype) -> Kernel:
        """A pass over the state of one piece set."""
        base = choose_kernel(self.geometry, dtype, self.margins)
        return base if self.entries is None else EntryKernel(self.geometry, base, self.entries)

    def identity(self) -> tuple[list[Any], list[Tensor | None]]:
        """Values and tensors that tell this problem from others."""
        geometry, penalty = self.geometry, self.penalty
        values = [type(self).__name__, self.n_sets, geometry.n_pieces, geometry.ranks.rank, geometry.ranks.size]
        return values, [geometry.lifted, geometry.weights, geometry.cells, penalty.level, penalty.signs]

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
    def bound(self, multipliers: tuple[Multipliers, ...], pieces: Tensor, nu: Tensor, *, repairs: int) -> float:
        """A number that no feasible point of the program can go below.

        Parameters
        ----------
        multipliers : tuple of Multipliers
            mu of the convexity constraints, for each piece set.
        pieces : Tensor of shape (Q, K, d + 1)
        nu : Tensor of shape (Q, K, d)
            Multipliers of the penalty, dual feasible.
        repairs : int
            How often the multipliers may be repaired.
        """
