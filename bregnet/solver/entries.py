"""Losses on chosen slacks only: given pairs, and triplets, which couple two slacks.

All other slacks are merely non-negative, so the pass over the state needs not know: :class:`EntryKernel` runs it
and then sets the chosen entries right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import Kernel, Moments
from bregnet.solver.margins import TRIPLET_MARGIN, slack_prox


class Entries(ABC):
    """Chosen slacks and their loss.

    Parameters
    ----------
    rows, columns : Tensor of shape (E,), int64
        Piece and point of each chosen slack; distinct, in the order of rows, then columns.
    """

    def __init__(self, rows: Tensor, columns: Tensor) -> None:
        self.rows, self.columns = rows, columns

    def within(self, rows: slice) -> slice:
        """The entries whose piece is among `rows`."""
        ends = torch.tensor([rows.start, rows.stop], device=self.rows.device)
        return slice(*torch.searchsorted(self.rows, ends).tolist())

    def new_copies(self) -> Tensor:
        """The part of the state that is not in w; empty unless the loss couples slacks."""
        return torch.empty(0, dtype=torch.float64, device=self.rows.device)

    @abstractmethod
    def slack(self, state: Tensor, copies: Tensor, rho: float) -> Tensor:
        """The chosen slacks s, given their entries of w."""

    def multipliers(self, slack: Tensor, copies: Tensor, rho: float) -> Tensor:
        """Multipliers of losses that couple slacks; none by default."""
        return copies

    def advance(self, slack: Tensor, copies: Tensor, rho: float, relaxation: float) -> None:  # noqa: B027
        """Update the copies in place."""

    def rescale(self, slack: Tensor, copies: Tensor, ratio: float) -> None:  # noqa: B027
        """Keep the multipliers of the copies when rho changes by 1 / `ratio`, in place."""


class PairEntries(Entries):
    """P s + M max(0, 2 - s) on chosen slacks.

    Parameters
    ----------
    rows, columns : Tensor of shape (E,), int64
    pull, push : Tensor of shape (E,)
        P and M.
    """

    def __init__(self, rows: Tensor, columns: Tensor, pull: Tensor, push: Tensor) -> None:
        super().__init__(rows, columns)
        self.pull, self.push = pull, push

    def slack(self, state: Tensor, copies: Tensor, rho: float) -> Tensor:
        """As the labels', entry by entry."""
        return slack_prox(state, self.pull / rho, self.push / rho)


class TripletEntries(Entries):
    """sum_t weight max(0, 1 + s_near(t) - s_far(t)).

    Each triplet has a copy of its two slacks; the copies join block 1, where the hinge has a closed form, and a slack
    is the mean of what its pieces and its copies ask for.

    Parameters
    ----------
    rows, columns : Tensor of shape (E,), int64
    near, far : Tensor of shape (T,), int64
        Numbers of the two entries of each triplet.
    weights : Tensor of shape (T,)
    """

    def __init__(self, rows: Tensor, columns: Tensor, near: Tensor, far: Tensor, weights: Tensor) -> None:
        super().__init__(rows, columns)
        self.ends = torch.stack([near, far])
        self.weights = weights
        ones = torch.ones_like(self.ends.flatten(), dtype=torch.float64)
        self._count = self.gather(ones.view(2, -1))

    def new_copies(self) -> Tensor:
        """One for each end of each triplet, (2, T)."""
        return torch.zeros(self.ends.shape, dtype=torch.float64, device=self.rows.device)

    def gather(self, values: Tensor) -> Tensor:
        """Sum values (2, T) of the ends at their entries, (E,)."""
        out = torch.zeros(len(self.rows), dtype=torch.float64, device=values.device)
        return out.index_add_(0, self.ends.flatten(), values.flatten())

    def slack(self, state: Tensor, copies: Tensor, rho: float) -> Tensor:
        """The mean of -w and the copies."""
        return ((self.gather(copies) - state) / (1 + self._count)).clamp_min(0)

    def multipliers(self, slack: Tensor, copies: Tensor, rho: float) -> Tensor:
        """How much each triplet is short of its margin, up to its weight, (T,)."""
        near, far = 2 * slack[self.ends] - copies
        return ((TRIPLET_MARGIN + near - far) * (rho / 2)).clamp_min(0).minimum(self.weights)

    def advance(self, slack: Tensor, copies: Tensor, rho: float, relaxation: float) -> None:
        """Block 1 of the copies: the two ends move apart by the same amount."""
        apart = self.multipliers(slack, copies, rho) / rho
        reflected = 2 * slack[self.ends] - copies
        solved = reflected + torch.stack([-apart, apart])
        copies += relaxation * (solved - slack[self.ends])

    def rescale(self, slack: Tensor, copies: Tensor, ratio: float) -> None:
        """The multiplier of a copy is rho (s - copy)."""
        copies += (1 - ratio) * (slack[self.ends] - copies)


class EntryKernel(Kernel):
    """A pass for plain constraints, with the chosen entries set right afterwards."""

    def __init__(self, geometry: Geometry, base: Kernel, entries: Entries) -> None:
        self._base, self.entries = base, entries
        super().__init__(geometry, base.dtype)
        self.copies = entries.new_copies()

    def start(self, rho: float) -> None:
        """Use the step size `rho`."""
        super().start(rho)
        self._base.start(rho)

    def session(self) -> AbstractContextManager[None]:
        """That of the pass."""
        return self._base.session()

    def _chosen(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """w and s at the entries."""
        here = state[self.entries.rows, self.entries.columns].double()
        return here, self.entries.slack(here, self.copies, self.rho)

    def _corrected(self, moments: Moments, wrong: Tensor, right: Tensor) -> Moments:
        """Moments with W at the entries changed."""
        rows, columns = self.entries.rows, self.entries.columns
        change = right - wrong
        products = moments.products.index_add(0, rows, change[:, None] * self._geometry.lifted[columns])
        return Moments(products, moments.column_sums.index_add(0, columns, change))

    def advance(self, state: Tensor, pieces: Tensor, fitted: Tensor, relaxation: float) -> Moments:
        """The pass, then the entries."""
        rows, columns = self.entries.rows, self.entries.columns
        here, slack = self._chosen(state)
        excess = torch.linalg.vecdot(pieces[rows], self._geometry.lifted[columns]) - fitted[columns]
        moments = self._base.advance(state, pieces, fitted, relaxation)
        wrong = state[rows, columns].double().abs()
        self.entries.advance(slack, self.copies, self.rho, relaxation)
        state[rows, columns] = (here + relaxation * (excess + slack)).to(state.dtype)
        here, slack = self._chosen(state)
        return self._corrected(moments, wrong, here + 2 * slack)

    def rescale(self, state: Tensor, rho: float) -> None:
        """Change the step size."""
        here, slack = self._chosen(state)
        ratio = self.rho / rho
        self._base.rescale(state, rho)
        self.entries.rescale(slack, self.copies, ratio)
        self.start(rho)
        state[self.entries.rows, self.entries.columns] = (ratio * (here + slack) - slack).to(state.dtype)

    def multipliers(self, state: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Those of the pass, with the entries' own."""
        values = self.entry_multipliers(state)
        for rows, tile in self._base.multipliers(state):
            part = self.entries.within(rows)
            tile[self.entries.rows[part] - rows.start, self.entries.columns[part]] = values[part]
            yield rows, tile

    def entry_multipliers(self, state: Tensor) -> Tensor:
        """mu = rho (w + s) at the entries, (E,)."""
        here, slack = self._chosen(state)
        return self.rho * (here + slack)

    def loss_multipliers(self, state: Tensor) -> Tensor:
        """Multipliers of losses that couple entries."""
        return self.entries.multipliers(self._chosen(state)[1], self.copies, self.rho)
