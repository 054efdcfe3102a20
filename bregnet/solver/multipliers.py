"""The multipliers of all slacks, some pieces at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from bregnet.solver.entries import Entries, EntryKernel
from bregnet.solver.kernels import Kernel


class Multipliers(ABC):
    """The multipliers mu (K, n) of a piece set."""

    @abstractmethod
    def tiles(self) -> Iterator[tuple[slice, Tensor]]:
        """mu (rows, n) of some pieces after the other; they may be changed in place."""

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

    def of_losses(self) -> Tensor:
        """Those of losses that couple entries, (T,)."""
        assert self._losses is not None
        return self._losses
