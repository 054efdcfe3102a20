"""ADMM on working pairs: regression with a state of some dozens of numbers a point.

Of the n K convexity constraints of a regression only a few a point carry a multiplier. The others need not be part of
the iterations. A scan over all pieces and points looks now and then for those that are violated, and these join; pairs
that have had no multiplier at several scans leave, for they cost time and hold their piece back. With the notation of
:mod:`bregnet.solver.pairs`, and p the slopes that the penalty agrees with, an iteration is

    s = max(-w, 0)        p = prox of the penalty / (rho kappa) at v
    block 1:  (R'R + data + kappa on slopes) u = R'(w + 2 s) + data y + kappa (2 p - v)
    w += g (s - R u)      v += g (a - p)

with multipliers mu = rho (w + s) of the constraints and nu = rho kappa (v - p) of the penalty. For a loss other than
squares, y is replaced by 2 r - z, with r = prox of the loss / (rho data) at z, and z += g (fitted values - r).

Block 1 is not solved but improved by a few steps of conjugate gradients, preconditioned by the diagonal block of each
piece, from the last solution; that takes about as many iterations as exact solutions, as long as the preconditioner
is that of the pairs there are. (One step along with the last change of the pieces, whose image is known, would cost a
third less, but does not always converge. Anderson acceleration and weights of pairs by their length change the
iterations by little.)
"""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet.solver.admm import Certified, Iteration, Options, single_threaded_torch
from bregnet.solver.block_one import CONJUGATE_GRADIENTS, BlockOne
from bregnet.solver.certificate import DualPoint, repair, stationarity
from bregnet.solver.pairs import CompiledPairs, PairOperator, pair_operator, starting_keys
from bregnet.solver.regression import Regression
from bregnet.solver.result import relative_gap

STEP_SCALE = 2.7  # of rho; a factor of 2 either way costs little (alpha from 1e-5 to 1e-1, 2 to 37 features)
# Of kappa, in units of a piece's share of R'R, for one piece set, and for two over the root of 2: 0.05 fails at 32
# features, 5 doubles iterations. DC takes a tenth more with 0.5 in place of 0.35, convex regression fewer.
SLOPE_WEIGHT = 0.5
RELAXATION = 1.7, 1.8  # of one piece set and of two: DC takes 5% more with 1.7, and at times twice as many with 1.95
TINY_ALPHA = 1e-5  # below, targets are interpolated, and multipliers fall with alpha itself
DRIFT = 1.3  # of the number of pairs, or of how far they span, before step sizes are chosen again
# The most by which the mean square that pairs span in a feature may fall from a check to the next: a few pairs may all
# be level in a feature. Slopes that are next to free for some iterations grow by thousands; 3 points took over 100,000.
LEVELLING = 4.0
IDLE_CHECKS = 2  # without a multiplier, after which a pair leaves: a fifth of the pairs, 0.6 of the iterations (DC)
STAYS = -128  # in place of a count
# Of what primal and dual infeasibility cost, from which the step size changes, by 2 at most: this takes SML2010
# (3000 x 24) from 1014 to 488 iterations.
IMBALANCE = 4.0
# Iterations and gap between which the two can be distinguished. With gaps down to 1.2%, and not 3%, DC of 1000 x 16
# points with alpha 1e-4 takes 1354 iterations in place of 1654.
BALANCED_FROM, BALANCED_GAP = 20, 0.012
# Until then pairs are missing. So the bound of two piece sets lags, and the balance must not fall: DC of 1000 x 2
# points with alpha 0.1 took 577 iterations, now 236. For one set it may: 822 points on a line and alpha 7e-4 take 79,
# not 214.
LAGGING_UNTIL = 40
# The growth of the number of iterations from one such change to the next, after those: with a change at every check the
# balance swings by a factor of 1000, and the errors chase each other. DC of 100 points on a line with alpha 2e-5 had a
# gap of 80% after 5000 iterations in place of 20%.
REBALANCED_AFTER = 2
VIOLATION = 0.05  # in tolerances, of the root of the objective: pairs that are violated by more join
# Iterations between scans, and the least and largest growth of that number: pairs are found early and change little
# later. With 5, 1.2, 1.2 DC takes as many iterations and a fifth more time; with 8 two features may take twice as many.
FIRST_CHECKS, CHECK_GROWTH = 5, (1.1, 1.25)
# Iterations between scans, at most, while one finds as many pairs as this share of those there are: they wait for each
# other. DC of 1000 x 16 points with alpha 1e-4 takes 1000 iterations in place of 9500. So many again as make a scan
# take no more than a third of the time.
WAITING, JOINING, SCAN_COST = 30, 0.01, 0.4
# The gap, in tolerances, up to which pains are taken with a function and a bound, and the iteration from which they
# always are. For one set a repair of multipliers gains a factor of 1.5 to 3; for two, closing the masses along short
# paths gains 2 or 3. The mean of the iterates since the last check may have half the gap of the last one, and much less
# where alpha is small: DC with 600 x 16 points and alpha 1e-4 takes 4092 iterations in place of 8669.
NEAR_GAP, LATE = 3.0, 500


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
        u, as (value at the center, slopes).
    heights : Tensor of shape (Q, d), float64
        Where the penalty clipped the slopes.
    kappa : Tensor of shape (d,), float64
    rho : float
    unit : float
        rho where alpha is 1 and infeasibility is balanced.
    balance : float
        What rho was multiplied by on the way.
    rebalanced : int
        The iteration of the last such change.
    idle : Tensor of shape (E,), int8
        Checks in a row at which a pair had no multiplier, or STAYS.
    left : Tensor, int64
        Pairs that have left, sorted.
    alpha : float
        Mean level of the penalty.
    copies : Tensor of shape (n,), float64, or None
        z, where the loss is not part of block 1.
    """

    keys: Tensor
    slacks: Tensor
    slopes: Tensor
    pieces: Tensor
    heights: Tensor
    kappa: Tensor
    rho: float
    unit: float
    balance: float
    rebalanced: int
    idle: Tensor
    left: Tensor
    alpha: float
    copies: Tensor | None = None

    def to(self, dtype: torch.dtype) -> PairState:
        """The same state in another precision."""
        names = ("slacks", "slopes", "pieces")
        return replace(self, **{name: getattr(self, name).to(dtype) for name in names})


class WorkingPairs(Iteration):
    """ADMM for a regression problem, on working pairs.

    Parameters
    ----------
    problem : Regression
    options : Options
    start : PairState or None
        Where to go on; it is used up.
    operator : PairOperator or None
        How to sum over pairs; None chooses by device and tolerance.
    """

    problem: Regression
    state: PairState

    def __init__(
        self,
        problem: Regression,
        options: Options,
        start: PairState | None = None,
        operator: PairOperator | None = None,
    ) -> None:
        super().__init__(problem, options)
        self.operator = operator or pair_operator(problem.geometry, options.dtype, problem.ranks)
        self._targets = problem.targets.to(self.operator.dtype)
        self._relaxation = RELAXATION[problem.n_sets - 1] if options.relaxation is None else options.relaxation
        self._alpha = float(problem.penalty.level.mean())
        if start is None:
            self.state = state = self._resting()
        else:
            self.state = state = self._carried_over(start.to(self.operator.dtype))
            self.operator.choose(state.keys)
        self._distance = self._waiting = math.inf  # the gap in tolerances, and how long new pairs may wait
        self._restart_sums()
        with self.session():
            self._rescale(options.rho or self._rho(state.unit))

    def _carried_over(self, state: PairState) -> PairState:
        """A state for another penalty: neighbors join again, and all multipliers fall with alpha.

        The conditions that they meet are homogeneous in them, but for the error of the fit. From a smaller penalty
        they are taken as they are: to let them grow with alpha may take forever to mend.
        """
        state = replace(state, rebalanced=0)
        if self._alpha == state.alpha:
            return state
        ratio = min(1.0, self._alpha / state.alpha)
        operator = self.operator
        keys = torch.unique(torch.cat([state.keys, operator.mine(starting_keys(self.problem.geometry))]))
        operator.choose(keys)
        slacks = torch.stack([-operator.slacks(u).clamp_min(0) for u in state.pieces])
        old = torch.searchsorted(keys, state.keys)
        slacks[:, old] = torch.where(state.slacks > 0, ratio * state.slacks, state.slacks)
        heights = state.heights[:, None].to(state.slopes.dtype)
        clipped = state.slopes.clamp(-heights, heights)
        slopes = clipped + ratio * (state.slopes - clipped)
        idle = torch.zeros_like(keys, dtype=torch.int8)
        renewed = {"keys": keys, "slacks": slacks, "slopes": slopes, "idle": idle, "left": keys[:0]}
        return replace(state, **renewed, balance=1.0, alpha=self._alpha)

    def _rho(self, unit: float) -> float:
        """The step size; multipliers fall with the root of alpha while there is an error to weigh it against."""
        alpha = min(max(self._alpha, TINY_ALPHA**2), 1.0)
        return unit * self.state.balance * math.sqrt(alpha) * min(1.0, math.sqrt(alpha / TINY_ALPHA))

    def _resting(self) -> PairState:
        """Zeros on the pairs of neighbors."""
        geometry, n_sets, operator = self.problem.geometry, self.problem.n_sets, self.operator
        keys = starting_keys(geometry)
        pieces = torch.zeros(
            (n_sets, geometry.n_pieces, geometry.dimension + 1), dtype=operator.dtype, device=keys.device
        )
        slopes = torch.zeros_like(pieces[..., 1:])
        keys = operator.mine(keys)
        slacks = pieces.new_zeros((n_sets, len(keys)))
        heights = torch.zeros_like(slopes[:, 0], dtype=torch.float64)
        operator.choose(keys)
        unit, kappa = self._scales()
        idle = torch.zeros_like(keys, dtype=torch.int8)
        more = idle, keys[:0], self._alpha, self.problem.starting_copies()
        return PairState(keys, slacks, slopes, pieces, heights, kappa, unit, unit, 1.0, 0, *more)

    def _scales(self) -> tuple[float, Tensor]:
        """rho where alpha is 1, and kappa (d,), for the pairs of all ranks: their number, and how far they span."""
        geometry, ranks = self.problem.geometry, self.problem.ranks
        spread = ranks.sum(self.operator.spread())  # (d + 1,), the last entry the number of pairs
        weight = SLOPE_WEIGHT / math.sqrt(self.problem.n_sets)
        kappa = torch.where(spread > 0, weight * spread / geometry.n_pieces, 1.0)[:-1]
        per_pair = math.sqrt(geometry.n_points * max(1.0, float(spread[-1])))  # with the number alone tiny alphas fail
        return STEP_SCALE / (self.problem.n_sets * per_pair), kappa

    def session(self) -> AbstractContextManager[None]:
        """One thread for torch on a CPU: its own would spin between small operations and take the cores of the sums."""
        return single_threaded_torch if self.problem.geometry.lifted.device.type == "cpu" else nullcontext()

    def _prepare(self) -> None:
        """Compute what depends on the pairs and on the step sizes."""
        problem, state = self.problem, self.state
        strength = problem.curvature * (problem.n_sets / state.rho)
        self._block = BlockOne(self.operator, problem.n_sets, state.kappa, strength)
        self._slacks_now = self._slacks_of_pieces()
        self._moments = self._moments_now()

    def _slacks_of_pieces(self) -> Tensor:
        """R u, (Q, E)."""
        return torch.stack([self.operator.slacks(u) for u in self.state.pieces])

    def _moments_now(self) -> Tensor:
        """R'(|w| - R u), (Q, K, d + 1)."""
        return torch.stack([self.operator.adjoint(values) for values in self.state.slacks.abs() - self._slacks_now])

    def _clipped_slopes(self) -> Tensor:
        """p, the slopes that the penalty agrees with."""
        state = self.state
        clipped, state.heights = self.problem.penalty.prox(state.slopes, state.rho * state.kappa, state.heights)
        return clipped

    def run(self, n_steps: int) -> None:
        """Several steps: on a CPU in one call, where the loss is part of block 1."""
        by_steps = self.problem.ranks.size > 1 or self.state.copies is not None
        if not isinstance(self.operator, CompiledPairs) or by_steps:
            super().run(n_steps)
            return
        from bregnet.solver import compiled_steps  # numba is slow to import

        state, penalty, operator, targets = self.state, self.problem.penalty, self.operator, self._targets.numpy()
        signs = np.zeros(0) if penalty.signs is None else penalty.signs.numpy()
        compiled_steps.iterate(
            *operator.team,
            operator.layout,
            operator.members,
            (targets, self._block.strength.numpy()),
            ((penalty.level / (state.rho * state.kappa)).numpy(), signs),
            self._block.kappa.numpy(),
            targets.dtype.type(self._relaxation),
            CONJUGATE_GRADIENTS,
            self._block.preconditioner.arrays,
            tuple(part.numpy() for part in self._block.linear),
            tuple(part.numpy() for part in (state.slacks, self._slacks_now, state.slopes, state.pieces, state.heights)),
            self._moments.numpy(),
            tuple(part.numpy() for part in self._sums),
            n_steps,
        )
        self.n_iter += n_steps

    def step(self) -> None:
        """Both blocks, over-relaxed."""
        state, relaxation = self.state, self._relaxation
        clipped = self._clipped_slopes()
        residual = self._moments
        residual[..., 1:] += state.kappa.to(residual.dtype) * (2 * clipped - state.slopes - state.pieces[..., 1:])
        modes = _modes(residual)
        fitted = self.operator.fitted(_modes(state.pieces)[-1])
        targets = self._targets
        if state.copies is not None:
            agreed = self.problem.prox(state.copies)
            targets = (2 * agreed - state.copies).to(fitted.dtype)
        modes[-1] += self.operator.from_points(self._block.strength * (targets - fitted))
        changes = torch.stack([self._block.change(mode, each) for mode, each in enumerate(modes)])
        state.pieces += _modes(changes) / len(modes)
        if state.copies is not None:
            state.copies.add_(self.operator.fitted(_modes(state.pieces)[-1]) - agreed, alpha=relaxation)
        self._slacks_now = self._slacks_of_pieces()
        state.slacks.add_((-state.slacks).clamp_min_(0) - self._slacks_now, alpha=relaxation)
        self._moments = self._moments_now()
        state.slopes.add_(state.pieces[..., 1:] - clipped, alpha=relaxation)
        self._sums[0].add_(torch.cat([state.pieces[..., :1], clipped], dim=-1))
        self._sums[1].add_(state.slacks.clamp_min(0))
        self.n_iter += 1

    def _rescale(self, rho: float, kappa: Tensor | None = None) -> None:
        """Change the step sizes, keeping slopes, slacks and multipliers."""
        state = self.state
        kappa = state.kappa if kappa is None else kappa
        clipped, ratio = self._clipped_slopes(), state.rho / rho
        by_feature = (ratio * state.kappa / kappa).to(clipped.dtype)
        state.slopes = clipped + by_feature * (state.slopes - clipped)
        state.slacks = torch.where(state.slacks > 0, ratio * state.slacks, state.slacks)
        state.rho, state.kappa = rho, kappa
        self._prepare()

    def _restart_sums(self) -> None:
        """Begin with the sums of iterates from a check on: of pieces, with the penalty's slopes, and of max(w, 0)."""
        self._sums = torch.zeros_like(self.state.pieces), torch.zeros_like(self.state.slacks)
        self._summed_from = self.n_iter

    def next_check(self) -> int:
        """Scans are frequent at first, when pairs are missing, and when the end is near.

        The gap falls about with the square of the number of iterations.
        """
        growth = min(max(math.sqrt(self._distance), CHECK_GROWTH[0]), CHECK_GROWTH[1])
        return max(self.n_iter + FIRST_CHECKS, math.ceil(min(growth * self.n_iter, self.n_iter + self._waiting)))

    def _waiting_for(self, n_joined: int) -> float:
        """How long pairs that are violated next may wait for a scan, in steps that rounding hardly ever changes."""
        n, n_pieces, ranks = self.problem.geometry.n_points, self.problem.geometry.n_pieces, self.problem.ranks
        numbers = torch.tensor([n_joined, len(self.state.keys)], dtype=torch.float64)
        n_joined, n_pairs = ranks.sum(numbers).clamp_min(1).tolist()
        waiting = max(WAITING, SCAN_COST * n * n_pieces / n_pairs) * max(1.0, JOINING * n_pairs / n_joined)
        return WAITING * 2.0 ** math.floor(math.log2(waiting / WAITING))

    def certify(self, best: Certified) -> Certified:
        """Scan all pieces and points, value the function, bound, and exchange pairs."""
        tol, problem = self.options.tol, self.problem
        # the penalty's slopes, not those of block 1, are bounded: their function is nearer to the optimum
        slopes = self._clipped_slopes()
        # violations of a residual's size are what matters
        level = VIOLATION * tol * best.objective ** (1 / problem.degree)
        objective, pieces, violated = self._scanned(torch.cat([self.state.pieces[..., :1], slopes], dim=-1), level)
        if not math.isfinite(objective):
            return Certified(math.nan, pieces, math.nan)
        # while the objective still falls by more than the tolerance, no bound can come close enough
        settled = best.objective - objective <= tol * abs(objective) and self.n_iter >= self.options.tight_from
        bound = max(best.bound, self._bound(min(objective, best.objective) if settled else None))
        if settled and 1 < self._far(min(objective, best.objective), bound) <= _near(self.n_iter):
            mean = self._sums[0] / (self.n_iter - self._summed_from)
            averaged, its_pieces, _ = self._scanned(mean, math.inf)
            objective, pieces = min((objective, pieces), (averaged, its_pieces), key=lambda found: found[0])
            bound = max(bound, self._averaged_bound(mean))
        if self._far(min(objective, best.objective), bound) <= 1:
            objective, pieces = problem.primal(pieces)  # the scan may be in single precision
        self._distance = self._far(min(objective, best.objective), bound)
        if self._distance > 1:
            self._waiting = self._waiting_for(self._exchange(violated))
            self._choose_steps(self._imbalance(min(objective, best.objective), bound, slopes))
        self._restart_sums()
        return Certified(objective, pieces, bound)

    def _scanned(self, pieces: Tensor, level: float) -> tuple[float, Tensor, Tensor]:
        """The value of functions, (value, slope) pieces (Q, K, d + 1), their improved pieces, and violated pairs."""
        lifted = torch.stack([self.operator.lifted(u) for u in pieces])
        scans = [self.operator.scan(u, level) for u in lifted]
        largest = torch.stack([found.largest for found in scans])
        if not torch.isfinite(largest).all():
            return math.nan, lifted, self.state.keys[:0]
        objective, improved = self.problem.improved(lifted, largest)
        violated = torch.cat([found.violated for found in scans])
        return self.problem.ranks.agreed(objective)[0], improved, violated  # what follows is a matter of all ranks

    def _averaged_bound(self, pieces: Tensor) -> float:
        """The bound from the mean of the iterates since the last check."""
        multipliers = self.state.rho / (self.n_iter - self._summed_from) * self._sums[1].double()
        fitted = self.operator.fitted_sets(pieces)
        return self._value(DualPoint(multipliers, self.problem.theta(fitted, self.state.copies)), tight=True)

    def _imbalance(self, objective: float, bound: float, slopes: Tensor) -> float:
        """How much more primal than dual infeasibility costs; 1 where it is not known.

        The value of the iterate, which need not be that of a convex function, lies between the best bound and the best
        objective of all checks. (Of this check alone, a pair that is missing would make the objective worse, whatever
        the step size.)
        """
        fitted = self.operator.fitted_sets(self.state.pieces)
        value = self.problem.relaxed_value(fitted, slopes)
        early = self.n_iter < BALANCED_FROM or relative_gap(objective, bound) < BALANCED_GAP
        # of absolute errors the bound may lag for other reasons: 3000 iterations in place of 250 with 18 points
        known = not early and value < objective and self.state.copies is None
        ratio = (objective - value) / max(value - bound, sys.float_info.min) if known else 1.0
        lagging = self.problem.n_sets > 1 and self.n_iter < LAGGING_UNTIL
        return self.problem.ranks.agreed(max(ratio, 1.0) if lagging else ratio)[0]

    def _bound(self, objective: float | None) -> float:
        """A certified lower bound, tightened where it is near enough to an objective for that to help."""
        problem, state, operator = self.problem, self.state, self.operator
        fitted = operator.fitted_sets(state.pieces)
        point = DualPoint(state.rho * state.slacks.double().clamp_min(0), problem.theta(fitted, self.state.copies))
        found = stationarity(operator, problem.signs, point)
        bound = self._value(point, found, tight=False)
        mass = float(operator.ranks.sum(point.pairs.sum())) / problem.n_sets
        if objective is None or not mass > 0 or self._far(objective, bound) > _near(self.n_iter):
            return bound
        if problem.n_sets > 1:
            bound = max(bound, self._value(point, found, tight=True))
        else:
            nu = state.rho * state.kappa * (state.slopes - self._clipped_slopes()).double()
            flexibility = mass / float(problem.geometry.weights.sum()) * problem.geometry.weights
            bound = max(bound, self._value(repair(operator, problem.signs, point, nu, flexibility), tight=True))
        return bound

    def _far(self, objective: float, bound: float) -> float:
        """The gap in units of the tolerance, the same for all ranks."""
        return self.problem.ranks.agreed(relative_gap(objective, bound) / self.options.tol)[0]

    def _value(self, point: DualPoint, found: Tensor | None = None, *, tight: bool) -> float:
        """The bound of a dual point, whose stationarity may be known."""
        found = stationarity(self.operator, self.problem.signs, point) if found is None else found
        return self.problem.dual_value(found, point.theta, point.mass(self.operator), tight=tight)

    def _exchange(self, violated: Tensor) -> int:
        """Let violated pairs join, whose number is returned, and idle ones leave.

        A pair joins without a multiplier, and with the slack that it has where that is positive. One that has left
        and joins again stays: pairs that come and go would keep a fit from converging.
        """
        state, operator = self.state, self.operator
        without = (state.slacks < 0).all(0) & (state.idle != STAYS)
        state.idle = torch.where(without, state.idle + 1, state.idle.clamp_max(0))
        keys, kept, places, again, left = _exchanged(
            state.keys, state.idle < IDLE_CHECKS, operator.mine(violated), state.left
        )
        if not operator.ranks.any(len(left) > len(state.left) or len(keys) > len(kept)):
            return 0
        operator.choose(keys)
        slacks = torch.stack([-operator.slacks(u).clamp_min(0) for u in state.pieces])
        idle = torch.full_like(keys, -IDLE_CHECKS, dtype=torch.int8)  # who joins has twice the time
        idle[again] = STAYS
        state.slacks = slacks.index_copy_(1, places, state.slacks.index_select(1, kept))
        state.idle = idle.index_copy_(0, places, state.idle[kept])
        state.keys, state.left = keys, left
        return len(keys) - len(kept)

    def _choose_steps(self, imbalance: float) -> None:
        """Choose step sizes for the pairs there are, and for how primal and dual infeasibility compare."""
        state = self.state
        unit, kappa = self._scales()
        alike = state.kappa * (state.unit / unit) ** 2  # were the pairs as long as before, whatever their number
        kappa = torch.maximum(kappa, alike / LEVELLING)
        drift = torch.cat([kappa / state.kappa, kappa.new_tensor([state.unit / unit])])
        moved = bool(drift.amax() > DRIFT or drift.amin() < 1 / DRIFT)
        in_time = self.n_iter <= LAGGING_UNTIL or self.n_iter >= REBALANCED_AFTER * state.rebalanced
        if in_time and not 1 / IMBALANCE < imbalance < IMBALANCE:
            state.balance *= min(max(math.sqrt(imbalance), 0.5), 2.0)
            state.rebalanced, moved = self.n_iter, True
        if moved and self.options.rho is None:
            state.unit = unit
            self._rescale(self._rho(unit), kappa)
        else:
            self._prepare()

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The state, and what would come out otherwise, if only by rounding, were it computed again."""
        parts = {field.name: getattr(self.state, field.name) for field in fields(PairState)}
        tensors = {name: part for name, part in parts.items() if isinstance(part, Tensor)}
        values = {name: part for name, part in parts.items() if name not in tensors}
        values["summed_from"] = self._summed_from
        sums = dict(zip(("sum_of_pieces", "sum_of_slacks"), self._sums, strict=True))
        return values, {**tensors, **sums, "moments": self._moments, "slacks_now": self._slacks_now}

    def restore(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from a snapshot."""
        device = self.state.keys.device
        there: dict[str, Any] = {name: part.to(device, copy=True) for name, part in tensors.items()}
        moments, slacks = there.pop("moments"), there.pop("slacks_now")
        self._sums = there.pop("sum_of_pieces"), there.pop("sum_of_slacks")
        values = dict(values)
        self._summed_from = values.pop("summed_from")
        self.state = PairState(**values, **there)
        self.operator.choose(self.state.keys)
        self._prepare()
        self._moments, self._slacks_now = moments, slacks


def _exchanged(keys: Tensor, staying: Tensor, violated: Tensor, left: Tensor) -> list[Tensor]:
    """Kept and new keys; which are kept, and where they are now; where keys are that had left; those that have left."""
    from bregnet.solver import compiled  # numba is slow to import

    given = [part.cpu().numpy() for part in (keys, staying, violated, left)]
    given[2] = np.sort(given[2])
    sizes = len(keys) + len(violated), len(keys), len(keys), len(violated), len(keys)
    joined, kept, places, again, leaving = (np.empty(size, dtype=np.int64) for size in sizes)
    n_joined, n_kept, n_again, n_leaving = compiled.exchange(*given, joined, kept, places, again, leaving)
    left_now = np.sort(np.concatenate([given[3], leaving[:n_leaving]]), kind="stable")  # merges two sorted parts
    parts = joined[:n_joined], kept[:n_kept], places[:n_kept], again[:n_again], left_now
    return [torch.as_tensor(part, device=keys.device) for part in parts]


def _near(n_iter: int) -> float:
    """The gap, in tolerances, up to which pains are taken: what they cost is little beside many iterations."""
    return NEAR_GAP if n_iter < LATE else math.inf


def _modes(sets: Tensor) -> Tensor:
    """Sum and difference of two piece sets, which the matrix of block 1 does not mix; one set as it is."""
    return sets.clone() if len(sets) == 1 else torch.stack([sets[0] + sets[1], sets[0] - sets[1]])
