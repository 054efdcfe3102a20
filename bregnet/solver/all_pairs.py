"""ADMM on all pairs: for a loss on every slack, with one state matrix w (K, n) and block 1 in closed form."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bregnet.solver.admm import Certified, Iteration, Options
from bregnet.solver.bregman import BregmanLearning
from bregnet.solver.entries import Entries, EntryKernel
from bregnet.solver.kernels import Kernel, Moments, choose_kernel
from bregnet.solver.multipliers import StateMultipliers
from bregnet.solver.normal import NormalEquations, pull
from bregnet.solver.polish import keep_points, strictly_convex, tightest
from bregnet.solver.result import relative_gap

STEP_SCALE = 10.0  # of rho; within a factor of about 3 of the best for alpha from 1e-3 to 1e-1 and 30 to 1000 points
RELAXATION = 1.7
SLOPE_WEIGHT = 0.05  # kappa / n: weight of the copy of the slopes beside the slacks


@dataclass
class State:
    """All that ADMM on all pairs carries from one iteration to the next."""

    slacks: Tensor  # w, (K, n)
    slopes: Tensor  # v, (K, d)
    pieces: Tensor  # u of the last iteration, (K, d + 1); later ones do not depend on it
    rho: float
    copies: Tensor | None = None  # of slacks that a loss couples

    @classmethod
    def zeros(cls, problem: BregmanLearning, kernel: Kernel, rho: float) -> State:
        """The state at rest."""
        geometry = problem.geometry
        pieces = geometry.lifted.new_zeros((geometry.n_pieces, geometry.dimension + 1))
        copies = problem.entries.new_copies() if problem.entries is not None else None
        return cls(kernel.new_state(), pieces[:, :-1].clone(), pieces, rho, copies)

    def suits(self, entries: Entries | None) -> bool:
        """Whether it has as many copies as these entries need."""
        needed = None if entries is None else entries.new_copies().shape
        return needed == (None if self.copies is None else self.copies.shape)


def default_rho(problem: BregmanLearning) -> float:
    """Step size for points of unit variance.

    Choosing it again on the way, from the sizes of slacks and multipliers or from which of objective and bound moves
    faster, took more iterations, not fewer.
    """
    geometry = problem.geometry
    alpha = float(problem.penalty.level.mean().clamp(1e-5, 1.0))
    return STEP_SCALE * math.sqrt(alpha) / (geometry.n_total * geometry.n_pieces)


class AllPairs(Iteration):
    """ADMM for learning a divergence.

    Parameters
    ----------
    problem : BregmanLearning
    options : Options
    start : State or None
        Where to go on; it is used up.
    kernel : Kernel or None
        How to pass over the state; None chooses by device, size and tolerance.
    """

    problem: BregmanLearning
    state: State

    def __init__(
        self, problem: BregmanLearning, options: Options, start: State | None = None, kernel: Kernel | None = None
    ) -> None:
        super().__init__(problem, options)
        self.kernel = kernel or problem.kernel(options.dtype)
        self.kappa = SLOPE_WEIGHT * problem.geometry.n_total
        self._factor = NormalEquations(problem.geometry, self.kappa).factor()
        self._polished_at = 0
        rho = options.rho or default_rho(problem)
        self.state = State.zeros(problem, self.kernel, rho) if start is None else start
        self.state = replace(self.state, slacks=self.state.slacks.to(self.kernel.dtype))
        self._start()
        if self.state.rho != rho:
            self.rescale(rho)

    def _start(self) -> None:
        """Take up the state."""
        self.kernel.start(self.state.rho)
        if isinstance(self.kernel, EntryKernel) and self.state.copies is not None:
            self.kernel.copies = self.state.copies
        self._moments = self.kernel.moments(self.state.slacks)

    def session(self) -> AbstractContextManager[None]:
        """That of the kernel."""
        return self.kernel.session()

    def step(self) -> None:
        """Both blocks of ADMM, over-relaxed, on the state."""
        state, geometry = self.state, self.problem.geometry
        relaxation = RELAXATION if self.options.relaxation is None else self.options.relaxation
        clipped = self._clipped_slopes()
        state.pieces = self._factor.solve(pull(geometry, self._moments, self.kappa, 2 * clipped - state.slopes))
        self._moments = self.kernel.advance(state.slacks, state.pieces, geometry.fitted(state.pieces), relaxation)
        state.slopes.add_(state.pieces[:, :-1] - clipped, alpha=relaxation)
        self.n_iter += 1

    def _clipped_slopes(self) -> Tensor:
        """p, the slopes that the penalty agrees with."""
        return self.problem.penalty.prox(self.state.slopes, self.state.rho * self.kappa)[0]

    def rescale(self, rho: float) -> None:
        """Change the step size, keeping slopes, slacks and multipliers."""
        state = self.state
        ratio, clipped = state.rho / rho, self._clipped_slopes()
        state.slopes = clipped + ratio * (state.slopes - clipped)
        self.kernel.rescale(state.slacks, rho)
        state.rho = rho
        self._moments = self.kernel.moments(state.slacks)

    def next_check(self) -> int:
        """Iterations between checks grow with those done: certifying costs as much as some dozens of them."""
        return max(self.n_iter + 25, math.ceil(self.n_iter * 1.2))

    def certify(self, best: Certified) -> Certified:
        """Bound, and value the function where its pieces are due to be polished."""
        multipliers = StateMultipliers(self.kernel, self.state.slacks)
        bound = self.problem.ranks.agreed(self.problem.bound(multipliers))[0]
        near = relative_gap(best.objective, bound) <= 3 * self.options.tol  # polishing is worth more of the time
        if self.n_iter < min((1.4 if near else 2.0) * self._polished_at, self.options.max_iter):
            return best._replace(bound=bound)
        self._polished_at = self.n_iter
        return Certified(*self._polished(min(self.n_iter, 600)), bound)

    def _polished(self, limit: int) -> tuple[float, Tensor]:
        """The best function, after at most `limit` steps that only mend which piece is active where."""
        geometry, pieces = self.problem.geometry, self.state.pieces
        some = tightest(geometry, pieces)
        kappa = SLOPE_WEIGHT * some.n_total
        factor = self._factor if some is geometry else NormalEquations(some, kappa).factor()
        polished, n_steps = keep_points(some, choose_kernel(some, torch.float64), factor, kappa, pieces, limit)
        self.n_polish += n_steps
        candidates = [pieces, polished]
        if geometry.own_piece:
            candidates.append(strictly_convex(geometry, polished))
        found = [self.problem.primal(each[None]) for each in candidates]
        values = self.problem.ranks.agreed(*(value for value, _ in found))
        least = min(range(len(found)), key=lambda number: values[number])
        return values[least], found[least][1]

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The state and the sums over it: a later sum of the same numbers may round otherwise."""
        state = self.state
        tensors = {"slacks": state.slacks, "slopes": state.slopes, "pieces": state.pieces, **self._moments._asdict()}
        if state.copies is not None:
            tensors["copies"] = state.copies
        return {"rho": state.rho, "polished_at": self._polished_at, "n_polish": self.n_polish}, tensors

    def restore(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from a snapshot."""
        device = self.state.slopes.device
        self.state.slacks.copy_(tensors.pop("slacks"))
        there = {name: part.to(device, copy=True) for name, part in tensors.items()}
        moments = Moments(*(there.pop(name) for name in Moments._fields))
        self.state = State(self.state.slacks, rho=values["rho"], **there)
        self._polished_at, self.n_polish = values["polished_at"], values["n_polish"]
        self._start()
        self._moments = moments
