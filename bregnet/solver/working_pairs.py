"""ADMM on working pairs: regression with a state of some dozens of numbers a point.

Of the n K convexity constraints of a regression only a few a point carry a multiplier. The others need not be part of
the iterations: a scan over all pieces and points looks now and then for those that are violated, and these join. With
the notation of :mod:`bregnet.solver.pairs`, and p the slopes that the penalty agrees with, an iteration is

    s = max(-w, 0)        p = prox of the penalty / (rho kappa) at v
    block 1:  (R'R + data + kappa on slopes) u = R'(w + 2 s) + data y + kappa (2 p - v)
    w += g (s - R u)      v += g (a - p)

with multipliers mu = rho (w + s) of the constraints and nu = rho kappa (v - p) of the penalty. Block 1 is not solved
but improved by a few steps of conjugate gradients, preconditioned by the diagonal block of each piece, from the last
solution; that takes about as many iterations as exact solutions. (One step along with the last change of the pieces,
whose image is known, would cost a third less, but does not always converge.)
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet.solver.admm import Certified, Iteration, Options, single_threaded_torch
from bregnet.solver.certificate import DualPoint, repair, stationarity
from bregnet.solver.pairs import CompiledPairs, PairOperator, pair_operator, starting_keys
from bregnet.solver.regression import LeastSquares
from bregnet.solver.result import relative_gap

STEP_SCALE = 10.0  # of rho; a factor of 3 either way costs little (alpha from 1e-4 to 1e-1, 2 to 32 features)
SLOPE_WEIGHT = 0.5  # of kappa, in units of a piece's share of R'R; 0.05 fails at 32 features, 5 doubles iterations
TINY_ALPHA = 1e-5  # below, targets are interpolated, and multipliers fall with alpha itself
DRIFT = 1.3  # of the number of pairs, or of how far they span, before step sizes are chosen again
VIOLATION = 0.05  # in tolerances, of the root of the objective: pairs that are violated by more join
FIRST_CHECKS, CHECK_GROWTH = 5, 1.2  # iterations between scans; pairs are found early and change little later
REPAIRED_GAP = 4.0  # in tolerances: a repair gains a factor of up to 3, so it is not tried farther away
CLOSED_GAP = 20.0  # in tolerances: closing the masses of two sets along short paths gains a factor of 2 or 3
STALE = 1.1  # growth of a piece's pairs from which its block of the preconditioner is computed again
LEAST_STEPS, MOST_STEPS = 2, 10  # of conjugate gradients in block 1; two nearly always do for one piece set
REDUCTION = 0.03  # of the energy of its residual, after which they end; two sets with small alpha need it
RIDGE = 1e-9  # of the largest diagonal entry, so that a piece without pairs can be divided by
BLOCK_ELEMENTS = 1 << 20  # numbers of diagonal blocks held at once in double precision


@dataclass
class PairState:
    """All that ADMM on working pairs carries from one iteration to the next.

    Attributes
    ----------
    keys : Tensor of shape (E,), int64
        The working pairs k n + j, sorted.
    slacks : Tensor of shape (Q, E)
        w, for each piece set.
    slopes : Tensor of shape (Q, K, d)
        v.
    pieces : Tensor of shape (Q, K, d + 1)
        u, as (value at the centre, slopes).
    heights : Tensor of shape (Q, d), float64
        Where the penalty clipped the slopes.
    kappa : Tensor of shape (d,), float64
    rho : float
    unit : float
        rho where alpha is 1.
    """

    keys: Tensor
    slacks: Tensor
    slopes: Tensor
    pieces: Tensor
    heights: Tensor
    kappa: Tensor
    rho: float
    unit: float

    def to(self, dtype: torch.dtype) -> PairState:
        """The same state in another precision."""
        names = ("slacks", "slopes", "pieces")
        return replace(self, **{name: getattr(self, name).to(dtype) for name in names})


class WorkingPairs(Iteration):
    """ADMM for a least-squares problem, on working pairs.

    Parameters
    ----------
    problem : LeastSquares
    options : Options
    start : PairState or None
        Where to go on; it is used up.
    operator : PairOperator or None
        How to sum over pairs; None chooses by device and tolerance.
    """

    problem: LeastSquares
    state: PairState

    def __init__(
        self,
        problem: LeastSquares,
        options: Options,
        start: PairState | None = None,
        operator: PairOperator | None = None,
    ) -> None:
        super().__init__(problem, options)
        self.operator = operator or pair_operator(problem.geometry, options.dtype, problem.ranks)
        self._targets = problem.targets.to(self.operator.dtype)
        state = self._resting() if start is None else start.to(self.operator.dtype)
        self._use(state)
        rho = options.rho or state.unit * self._alpha_scale
        if rho != state.rho:
            self._rescale(rho)

    @property
    def _alpha_scale(self) -> float:
        """How rho depends on alpha: multipliers fall with its root while there is an error to weigh it against."""
        alpha = float(self.problem.penalty.level.mean().clamp(TINY_ALPHA**2, 1.0))
        return math.sqrt(alpha) * min(1.0, math.sqrt(alpha / TINY_ALPHA))

    def _resting(self) -> PairState:
        """Zeros on the pairs of neighbours."""
        geometry, n_sets, operator = self.problem.geometry, self.problem.n_sets, self.operator
        keys = starting_keys(geometry)
        pieces = torch.zeros(
            (n_sets, geometry.n_pieces, geometry.dimension + 1), dtype=operator.dtype, device=keys.device
        )
        slopes = torch.zeros_like(pieces[..., 1:])
        keys = operator.mine(keys)
        slacks = pieces.new_zeros((n_sets, len(keys)))
        heights = torch.zeros_like(slopes[:, 0], dtype=torch.float64)
        unit, kappa = self._scales(keys)
        return PairState(keys, slacks, slopes, pieces, heights, kappa, unit * self._alpha_scale, unit)

    def _scales(self, keys: Tensor) -> tuple[float, Tensor]:
        """rho where alpha is 1, and kappa (d,), for the pairs of all ranks: their number, and how far they span."""
        geometry, ranks = self.problem.geometry, self.problem.ranks
        spread = torch.zeros_like(geometry.lifted[0])  # (d + 1,), the last entry the number of pairs
        for part in keys.split(BLOCK_ELEMENTS // len(spread)) if len(keys) else ():
            apart = geometry.lifted[part % geometry.n_points]
            apart[:, :-1] -= self.operator.centres[part // geometry.n_points]
            spread += apart.square().sum(0)
        spread = ranks.sum(spread)
        kappa = torch.where(spread > 0, SLOPE_WEIGHT * spread / geometry.n_pieces, 1.0)[:-1]
        return STEP_SCALE / (self.problem.n_sets * max(1.0, float(spread[-1]))), kappa

    def session(self) -> AbstractContextManager[None]:
        """One thread for torch on a CPU: its own would spin between small operations and take the cores of the sums."""
        return single_threaded_torch if self.problem.geometry.lifted.device.type == "cpu" else nullcontext()

    def _use(self, state: PairState) -> None:
        """Take up a state."""
        self.state = state
        self.operator.choose(state.keys)
        self._inverse = state.pieces.new_empty((*state.pieces.shape, state.pieces.shape[-1]))
        self._n_pairs = torch.zeros_like(self.problem.geometry.cells[: len(state.pieces[0])])  # when it was computed
        self._prepare(anew=True)

    def _prepare(self, *, anew: bool = False) -> None:
        """Compute what depends on the pairs, or (anew) on the step size as well."""
        state = self.state
        self._strength = self.problem.curvature * (self.problem.n_sets / state.rho)  # of the data, (n,)
        n_pairs = self.operator.pairs_of_pieces()
        stale = n_pairs > STALE * self._n_pairs
        chosen = torch.nonzero(torch.ones_like(stale) if anew else stale).squeeze(1)
        size = state.pieces.shape[-1] ** 2
        for part in chosen.split(max(1, BLOCK_ELEMENTS // size)) if len(chosen) else ():
            self._invert(part)
        self._n_pairs[chosen] = n_pairs[chosen]
        self._moments = self._advanced(0.0)

    def _invert(self, chosen: Tensor) -> None:
        """The preconditioners of some pieces: inverse diagonal blocks of the matrices of block 1."""
        blocks = self.operator.blocks(torch.ones_like(self.state.slacks[0]), chosen)
        diagonal = blocks.diagonal(dim1=-2, dim2=-1)
        diagonal[:, 1:] += self.state.kappa
        diagonal += RIDGE * diagonal.amax()
        for mode in range(self.problem.n_sets):
            if mode == self.problem.n_sets - 1:
                self.operator.add_at_points(blocks, self._strength, chosen)
            inverse = torch.cholesky_inverse(torch.linalg.cholesky(blocks))
            self._inverse[mode, chosen] = inverse.to(self._inverse.dtype)

    def _advanced(self, relaxation: float) -> Tensor:
        """The step of w, and R'(|w| - R u), (Q, K, d + 1)."""
        each = zip(self.state.pieces, self.state.slacks, strict=True)
        return torch.stack([self.operator.advance(u, w, relaxation) for u, w in each])

    def _clipped_slopes(self) -> Tensor:
        """p, the slopes that the penalty agrees with."""
        state = self.state
        clipped, state.heights = self.problem.penalty.prox(state.slopes, state.rho * state.kappa, state.heights)
        return clipped

    def run(self, n_steps: int) -> None:
        """Several steps: on one thread of a CPU without a return to Python, where they are small."""
        if not isinstance(self.operator, CompiledPairs) or self.operator.shared or self.problem.ranks.size > 1:
            super().run(n_steps)
            return
        from bregnet.solver import compiled_steps  # numba is slow to import

        state, penalty, kind = self.state, self.problem.penalty, self._moments.numpy().dtype.type
        signs = np.zeros(0) if penalty.signs is None else penalty.signs.numpy()
        compiled_steps.iterate(
            self.operator.layout,
            (self.problem.geometry.cells.numpy(), self.operator.offsets.numpy()),
            (self._targets.numpy(), self._strength.to(self._targets.dtype).numpy()),
            ((penalty.level / (state.rho * state.kappa)).numpy(), signs),
            (state.kappa.to(state.pieces.dtype).numpy(), kind(self.options.relaxation)),
            (LEAST_STEPS, MOST_STEPS, REDUCTION),
            *(part.numpy() for part in (self._inverse, state.slacks, state.slopes, state.pieces, state.heights)),
            self._moments.numpy(),
            n_steps,
        )
        self.n_iter += n_steps

    def step(self) -> None:
        """Both blocks, over-relaxed."""
        state, relaxation = self.state, self.options.relaxation
        clipped = self._clipped_slopes()
        residual = self._moments
        residual[..., 1:] += state.kappa.to(residual.dtype) * (2 * clipped - state.slopes - state.pieces[..., 1:])
        modes = _modes(residual)
        fitted = self.operator.fitted(_modes(state.pieces)[-1])
        strength = self._strength.to(fitted.dtype)
        modes[-1] += self.operator.from_points(strength * (self._targets - fitted))
        changes = torch.stack([self._change(mode, each) for mode, each in enumerate(modes)])
        state.pieces += _modes(changes) / len(modes)
        self._moments = self._advanced(relaxation)
        state.slopes.add_(state.pieces[..., 1:] - clipped, alpha=relaxation)
        self.n_iter += 1

    def _change(self, mode: int, residual: Tensor) -> Tensor:
        """A few steps of preconditioned conjugate gradients for block 1, from the last solution."""
        change = torch.zeros_like(residual)
        direction = self.operator.precondition(self._inverse[mode], residual)
        energy = first = _product(residual, direction)
        for n_steps in range(1, MOST_STEPS + 1):
            image = self._image(mode, direction)
            curvature = _product(direction, image)
            if not (energy > 0 and curvature > 0):  # solved, or rounding is all that is left
                break
            change.add_(direction, alpha=energy / curvature)
            residual = torch.add(residual, image, alpha=-energy / curvature)
            scaled = self.operator.precondition(self._inverse[mode], residual)
            before, energy = energy, _product(residual, scaled)
            if n_steps >= LEAST_STEPS and energy <= REDUCTION * first:
                break
            direction = torch.add(scaled, direction, alpha=energy / before)
        return change

    def _image(self, mode: int, pieces: Tensor) -> Tensor:
        """The product of the matrix of block 1 with pieces."""
        out = self.operator.normal(pieces)
        out[:, 1:] += self.state.kappa.to(out.dtype) * pieces[:, 1:]
        if mode == self.problem.n_sets - 1:
            out += self.operator.from_points(self._strength.to(pieces.dtype) * self.operator.fitted(pieces))
        return out

    def _rescale(self, rho: float, kappa: Tensor | None = None) -> None:
        """Change the step sizes, keeping slopes, slacks and multipliers."""
        state = self.state
        kappa = state.kappa if kappa is None else kappa
        clipped, ratio = self._clipped_slopes(), state.rho / rho
        by_feature = (ratio * state.kappa / kappa).to(clipped.dtype)
        state.slopes = clipped + by_feature * (state.slopes - clipped)
        state.slacks = torch.where(state.slacks > 0, ratio * state.slacks, state.slacks)
        state.rho, state.kappa = rho, kappa
        self._prepare(anew=True)

    def next_check(self) -> int:
        """Scans are frequent at first, when pairs are missing."""
        return max(self.n_iter + FIRST_CHECKS, math.ceil(CHECK_GROWTH * self.n_iter))

    def certify(self, best: Certified) -> Certified:
        """Scan all pieces and points, value the function, bound, and let violated pairs join."""
        tol, problem = self.options.tol, self.problem
        # the penalty's slopes, not those of block 1, are bounded: their function is nearer to the optimum
        values, slopes = self.state.pieces[..., :1], self._clipped_slopes()
        lifted = torch.stack([self.operator.lifted(u) for u in torch.cat([values, slopes], dim=-1)])
        level = VIOLATION * tol * math.sqrt(best.objective)  # violations of a residual's size are what matters
        scans = [self.operator.scan(u, level) for u in lifted]
        largest = torch.stack([found.largest for found in scans])
        if not torch.isfinite(largest).all():
            return Certified(math.nan, lifted, math.nan)
        objective, pieces = problem.improved(lifted, largest)
        # while the objective still falls by more than the tolerance, no bound can come close enough
        settled = best.objective - objective <= tol * abs(objective) and self.n_iter >= self.options.tight_from
        bound = self._bound(min(objective, best.objective) if settled else None)
        if self._far(min(objective, best.objective), max(bound, best.bound)) <= 1:
            objective, pieces = problem.primal(pieces)  # the scan may be in single precision
        if self._far(min(objective, best.objective), max(bound, best.bound)) > 1:
            self._join(torch.unique(torch.cat([found.violated for found in scans])))
        return Certified(objective, pieces, bound)

    def _bound(self, objective: float | None) -> float:
        """A certified lower bound, tightened where it is near enough to an objective for that to help."""
        problem, state, operator = self.problem, self.state, self.operator
        fitted = torch.stack([operator.fitted(u) for u in state.pieces]).double()
        point = DualPoint(state.rho * state.slacks.double().clamp_min(0), problem.theta(fitted))
        bound = self._value(point, tight=False)
        mass = float(operator.ranks.sum(point.pairs.sum())) / problem.n_sets
        if objective is None or not mass > 0:
            return bound
        if problem.n_sets > 1 and self._far(objective, bound) <= CLOSED_GAP:
            bound = max(bound, self._value(point, tight=True))
        if self._far(objective, bound) <= REPAIRED_GAP:
            nu = state.rho * state.kappa * (state.slopes - self._clipped_slopes()).double()
            flexibility = mass / float(problem.geometry.weights.sum()) * problem.geometry.weights
            bound = max(bound, self._value(repair(operator, problem.signs, point, nu, flexibility), tight=True))
        return bound

    def _far(self, objective: float, bound: float) -> float:
        """The gap in units of the tolerance, the same for all ranks."""
        return self.problem.ranks.agreed(relative_gap(objective, bound) / self.options.tol)[0]

    def _value(self, point: DualPoint, *, tight: bool) -> float:
        found = stationarity(self.operator, self.problem.signs, point)
        return self.problem.dual_value(found, point.theta, point.mass(self.operator), tight=tight)

    def _join(self, violated: Tensor) -> None:
        """Let pairs join, without a multiplier, and with the slack that they have where that is positive."""
        state, operator = self.state, self.operator
        violated = operator.mine(violated)
        new = violated[~torch.isin(violated, state.keys)]
        if not operator.ranks.any(len(new) > 0):
            return
        state.keys, order = torch.cat([state.keys, new]).sort()
        operator.choose(state.keys)
        fresh = order >= state.slacks.shape[1]
        old, at_rest = state.slacks, [-operator.slacks(u).clamp_min(0) for u in state.pieces]
        state.slacks = torch.stack(at_rest)
        state.slacks[:, ~fresh] = old
        unit, kappa = self._scales(state.keys)
        drift = torch.cat([kappa / state.kappa, kappa.new_tensor([state.unit / unit])])
        if self.options.rho is None and (drift.amax() > DRIFT or drift.amin() < 1 / DRIFT):
            state.unit = unit
            self._rescale(unit * self._alpha_scale, kappa)
        else:
            self._prepare()

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The state, and what would come out otherwise, if only by rounding, were it computed again."""
        parts = {field.name: getattr(self.state, field.name) for field in fields(PairState)}
        tensors = {name: part for name, part in parts.items() if isinstance(part, Tensor)}
        values = {name: part for name, part in parts.items() if name not in tensors}
        return values, {**tensors, "inverse": self._inverse, "n_pairs": self._n_pairs, "moments": self._moments}

    def restore(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from a snapshot."""
        device = self.state.keys.device
        there: dict[str, Any] = {name: part.to(device, copy=True) for name, part in tensors.items()}
        self._inverse, self._n_pairs, moments = (there.pop(name) for name in ("inverse", "n_pairs", "moments"))
        self.state = PairState(**values, **there)
        self.operator.choose(self.state.keys)
        self._prepare()
        self._moments = moments


def _modes(sets: Tensor) -> Tensor:
    """Sum and difference of two piece sets, which the matrix of block 1 does not mix; one set as it is."""
    return sets.clone() if len(sets) == 1 else torch.stack([sets[0] + sets[1], sets[0] - sets[1]])


def _product(one: Tensor, other: Tensor) -> float:
    """The inner product, summed up in parts so that single precision does."""
    return float(torch.linalg.vecdot(one, other).sum(dtype=torch.float64))
