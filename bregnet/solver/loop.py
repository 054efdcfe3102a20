"""The one ADMM loop of the library: two blocks, one state matrix a piece set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from bregnet.solver.checkpoints import Keeper, digest
from bregnet.solver.entries import Entries, EntryKernel
from bregnet.solver.geometry import Geometry
from bregnet.solver.interior import Interior, InteriorPoint, system_size, working_elements
from bregnet.solver.kernels import Kernel, Moments, choose_kernel, single_threaded_torch
from bregnet.solver.normal import Factor, NormalEquations, pull
from bregnet.solver.polish import keep_points, strictly_convex, tightest
from bregnet.solver.problem import Problem, StateMultipliers
from bregnet.solver.result import Check, Result, relative_gap

SLOPE_WEIGHT = 0.05  # kappa / n: weight of the copy of the slopes beside the slacks
FIRST_CHECK = 25
INTERIOR_STEPS = 100
POLISH_STEPS = 600
POLISH_GAP = 3.0  # of the tolerance: nearer than this, polishing is worth more of the time
INTERIOR_ELEMENTS = 30_000_000  # numbers in its largest array
FINE_TOLERANCE = 1e-3  # below, the state is in double precision and larger problems are finished by Newton steps
SMALL_SYSTEM, LARGE_SYSTEM = 400, 1500
COARSE_ELEMENTS = 10_000_000
SERIAL_ELEMENTS = 10_000_000  # threads that wait for each other, on a busy machine, take many times longer
QUICK_ELEMENTS = 2_000_000  # up to here a step of the interior-point method costs little
CHECK_GROWTH = 1.2  # checks move apart: certifying costs as much as some dozens of iterations


@dataclass(frozen=True)
class Options:
    """How to run the loop.

    Attributes
    ----------
    tol : float
        Stop when the certified relative gap is this small.
    max_iter : int
    relaxation : float
        Over-relaxation g of both blocks, in (0, 2).
    rho : float or None
        Step size; None chooses it from the problem.
    repairs : int
        How often a check may repair the multipliers before bounding.
    repairs_from : float
        The iteration before which it does not: a bound need not be tight where the fit goes on whatever it is.
    interior_after : int
        Iterations after which a small problem goes over to the interior-point method.
    interior_size : int or None
        The largest system of Newton equations for which it does; None chooses by the tolerance.
    verbose : int
        1 shows a progress bar.
    callback : callable or None
        Called with every :class:`Check`; returning True stops the fit.
    monitor : callable or None
        Called with every :class:`Check` and the best pieces so far, (Q, K, d + 1); returning True stops the fit.
    """

    tol: float = 1e-2
    max_iter: int = 5000
    relaxation: float = 1.7
    rho: float | None = None
    repairs: int = 2
    repairs_from: float = 0
    interior_after: int = 400
    interior_size: int | None = None
    verbose: int = 0
    callback: Callable[[Check], bool | None] | None = None
    monitor: Callable[[Check, Tensor], bool | None] | None = None


@dataclass
class State:
    """All that ADMM carries from one iteration to the next."""

    slacks: list[Tensor]  # w, one (K, n) matrix a piece set
    slopes: Tensor  # v, (Q, K, d)
    rho: float
    copies: Tensor | None = None  # of slacks that a loss couples

    @classmethod
    def zeros(cls, problem: Problem, kernel: Kernel, rho: float) -> State:
        """The state at rest."""
        geometry = problem.geometry
        slopes = geometry.lifted.new_zeros((problem.n_sets, geometry.n_pieces, geometry.dimension))
        copies = problem.entries.new_copies() if problem.entries is not None else None
        return cls([kernel.new_state() for _ in range(problem.n_sets)], slopes, rho, copies)

    def suits(self, entries: Entries | None) -> bool:
        """Whether it has as many copies as these entries need."""
        needed = None if entries is None else entries.new_copies().shape
        return needed == (None if self.copies is None else self.copies.shape)

    def to(self, dtype: torch.dtype) -> State:
        """The same state with its matrices in another precision."""
        return replace(self, slacks=[w.to(dtype) for w in self.slacks])


@dataclass(frozen=True)
class Solution:
    """The best functions found, their certificate, and the state to go on from."""

    pieces: Tensor  # (Q, K, d + 1)
    result: Result
    state: State
    last: Tensor  # pieces that go with the state, (Q, K, d + 1)


def default_rho(problem: Problem) -> float:
    """Step size for unit-variance points and targets.

    The best value falls with alpha and with the number of constraints; this rule is within a factor of about 3 of
    the best for alpha from 1e-3 to 1e-1, 30 to 1000 points and 2 to 16 features. Choosing it again from the sizes of
    slacks and multipliers, or from which of objective and bound moves faster, took more iterations, not fewer.
    """
    geometry = problem.geometry
    alpha = float(problem.penalty.level.mean().clamp(1e-5, 1.0))
    return problem.step_scale * math.sqrt(alpha) / (geometry.n_total * geometry.n_pieces)


class _Iteration:
    """One iteration and the quantities it leaves behind."""

    def __init__(self, problem: Problem, kernel: Kernel, state: State, relaxation: float) -> None:
        self.problem, self.kernel, self.state = problem, kernel, state
        self.relaxation = relaxation
        self.kappa = SLOPE_WEIGHT * problem.geometry.n_total
        kernel.start(state.rho)
        if isinstance(kernel, EntryKernel) and state.copies is not None:
            kernel.copies = state.copies
        self._normal = NormalEquations(problem.geometry, self.kappa)
        problem.prepare(self._normal, state.rho)
        self._plain: tuple[Kernel, Factor, float] | None = None
        self.n_polish = 0
        self.moments = [kernel.moments(w) for w in state.slacks]
        self.pieces = torch.zeros(
            (*state.slopes.shape[:2], state.slopes.shape[2] + 1), dtype=torch.float64, device=state.slopes.device
        )

    def step(self) -> None:
        """Both blocks of ADMM, over-relaxed, on the state."""
        state, geometry = self.state, self.problem.geometry
        clipped = self.clipped_slopes()
        self.pieces = self.problem.solve_pieces(self._right_hand_side(2 * clipped - state.slopes))
        self.moments = [
            self.kernel.advance(w, u, geometry.fitted(u), self.relaxation)
            for w, u in zip(state.slacks, self.pieces, strict=True)
        ]
        state.slopes.add_(self.pieces[..., :-1] - clipped, alpha=self.relaxation)

    def clipped_slopes(self) -> Tensor:
        """p, the slopes that the penalty agrees with."""
        return self.problem.penalty.prox(self.state.slopes, self.state.rho * self.kappa)

    def _right_hand_side(self, wanted_slopes: Tensor) -> Tensor:
        return pull(self.problem.geometry, self.moments, self.kappa, wanted_slopes)

    def rescale(self, rho: float) -> None:
        """Change the step size, keeping slopes, slacks and multipliers."""
        state, ratio = self.state, self.state.rho / rho
        clipped = self.clipped_slopes()
        state.slopes = clipped + ratio * (state.slopes - clipped)
        for w in state.slacks:
            self.kernel.start(state.rho)
            self.kernel.rescale(w, rho)
        state.rho = rho
        self.problem.prepare(self._normal, rho)
        self.moments = [self.kernel.moments(w) for w in state.slacks]

    def primal(self) -> tuple[float, Tensor]:
        """The better of two functions: with the slopes of block 1, and with those the penalty agrees with."""
        turned = self.pieces.clone()
        turned[..., :-1] = self.clipped_slopes()
        turned[..., -1] += ((self.pieces - turned)[..., :-1] * self.problem.geometry.centres).sum(-1)
        return self._best([self.pieces, turned])

    def _best(self, candidates: list[Tensor]) -> tuple[float, Tensor]:
        """The candidate of least value, the same for all ranks."""
        found = [self.problem.primal(pieces) for pieces in candidates]
        values = self.problem.geometry.ranks.agreed(*(value for value, _ in found))
        best = min(range(len(found)), key=lambda number: values[number])
        return values[best], found[best][1]

    def polished(self, limit: int) -> tuple[float, Tensor]:
        """The best function, after at most `limit` steps that only mend which piece is active where."""
        geometry = self.problem.geometry
        some = tightest(geometry, self.pieces[0])
        if some is not geometry:
            means = self._means_of_polishing(some)
        else:
            means = self._plain = self._plain or self._means_of_polishing(geometry)
        polished, n_steps = keep_points(some, *means, self.pieces[0], limit)
        self.n_polish += n_steps
        candidates = [self.pieces[0], polished]
        if geometry.own_piece:
            candidates.append(strictly_convex(geometry, polished))
        return self._best([pieces[None] for pieces in candidates])

    @staticmethod
    def _means_of_polishing(geometry: Geometry) -> tuple[Kernel, Factor, float]:
        kappa = SLOPE_WEIGHT * geometry.n_total
        return choose_kernel(geometry, torch.float64), NormalEquations(geometry, kappa).factor(0.0), kappa

    def bound(self, repairs: int) -> float:
        """A certified lower bound from the current multipliers."""
        state = self.state
        multipliers = tuple(StateMultipliers(self.kernel, w) for w in state.slacks)
        nu = state.rho * self.kappa * (state.slopes - self.clipped_slopes())
        bound = self.problem.bound(multipliers, self.pieces, nu, repairs=repairs)
        return self.problem.geometry.ranks.agreed(bound)[0]


class _Tracker:
    """The best function and the best bound so far, and what to tell about them."""

    def __init__(self, problem: Problem, options: Options, bar: tqdm | None) -> None:
        self._options, self._bar, self._ranks = options, bar, problem.geometry.ranks
        self.history: list[Check] = []
        resting = torch.zeros(
            (problem.n_sets, problem.geometry.n_pieces, problem.geometry.dimension + 1),
            dtype=torch.float64,
            device=problem.geometry.lifted.device,
        )
        self.objective, self.pieces = problem.primal(resting)
        self.objective = self._ranks.agreed(self.objective)[0]
        self.bound = problem.trivial_bound
        if not math.isfinite(self.objective):
            raise FloatingPointError("non-finite values before the first iteration")
        # with cells the maximum of all pieces may beat the program's optimum
        self._comparable = problem.geometry.own_piece
        self.stopped = False

    @property
    def gap(self) -> float:
        return relative_gap(self.objective, self.bound)

    @property
    def done(self) -> bool:
        return self.stopped or self.gap <= self._options.tol

    def look(self, iteration: int, objective: float, pieces: Tensor, bound: float) -> Check:
        """Take in a candidate and a bound, and tell the callback."""
        if not (math.isfinite(objective) and math.isfinite(bound)):
            raise FloatingPointError(
                f"non-finite values after {iteration} iterations: the data may span too many orders of magnitude"
            )
        if objective < self.objective:
            self.objective, self.pieces = objective, pieces
        self.bound = max(self.bound, bound)
        if self._comparable and self.bound > self.objective * (1 + 1e-6) + 1e-9:
            raise RuntimeError(
                f"the bound {self.bound} exceeds the objective {self.objective}: this is a bug, please report the data"
            )
        check = Check(iteration, self.objective, self.bound, self.gap)
        self.history.append(check)
        if self._options.callback is not None:
            self.stopped = bool(self._options.callback(check))
        if self._options.monitor is not None:
            self.stopped |= bool(self._options.monitor(check, self.pieces))
        self.stopped = self._ranks.any(self.stopped)
        if self._bar is not None:
            self._bar.update(iteration - self._bar.n)
            self._bar.set_postfix_str(f"gap {100 * self.gap:.3g}% (goal {100 * self._options.tol:.3g}%)")
        return check

    def result(self, n_iter: int, n_interior: int, n_polish: int, seconds: float) -> Result:
        return Result.of(
            tuple(self.history),
            self._options.tol,
            objective=self.objective,
            dual_bound=self.bound,
            stopped=self.stopped,
            n_iter=n_iter,
            seconds=seconds,
            n_interior=n_interior,
            n_polish=n_polish,
        )


def _progress(options: Options) -> AbstractContextManager[tqdm | None]:
    """A bar where one is wanted; a silent one would still start tqdm's monitoring thread."""
    if options.verbose < 1:
        return nullcontext()
    return tqdm(total=options.max_iter, unit="it", desc="ADMM")


def _next_check(iteration: int, max_iter: int) -> int:
    """Iterations between checks grow with those done."""
    return min(max(iteration + FIRST_CHECK, math.ceil(iteration * CHECK_GROWTH)), max_iter)


@dataclass
class _Progress:
    """Where the loop is, beside the state and the tracker."""

    iteration: int = 0
    next_check: int = 0
    polished_at: int = 0
    n_interior: int = 0
    seconds: float = 0.0  # of earlier runs


def _snapshot(work: _Iteration, tracker: _Tracker, at: _Progress) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """All that is needed to go on, as plain values and tensors."""
    values = {
        "at": asdict(at),
        "rho": work.state.rho,
        "n_polish": work.n_polish,
        "objective": tracker.objective,
        "bound": tracker.bound,
        "history": [astuple(each) for each in tracker.history],
    }
    tensors = {f"slacks.{number}": w for number, w in enumerate(work.state.slacks)}
    for number, moments in enumerate(work.moments):  # a later sum of the same numbers may round otherwise
        tensors |= {f"moments.{number}.{name}": part for name, part in moments._asdict().items()}
    tensors |= {"slopes": work.state.slopes, "pieces": work.pieces, "best": tracker.pieces}
    if work.state.copies is not None:
        tensors["copies"] = work.state.copies
    return values, tensors | {"cells": work.problem.geometry.cells}


def _state_of(values: dict[str, Any], tensors: dict[str, Tensor], problem: Problem, kernel: Kernel) -> State:
    """The state of a snapshot, its matrices where the geometry wants them."""
    slacks = []
    for number in range(problem.n_sets):
        slacks.append(kernel.new_state().copy_(tensors.pop(f"slacks.{number}")))
    device = problem.geometry.lifted.device
    copies = tensors["copies"].to(device, copy=True) if "copies" in tensors else None
    return State(slacks, tensors["slopes"].to(device, copy=True), values["rho"], copies)


def _restore(work: _Iteration, tracker: _Tracker, values: dict[str, Any], tensors: dict[str, Tensor]) -> _Progress:
    """Set everything else as a snapshot has it."""
    device = work.state.slopes.device
    for number in range(len(work.moments)):
        parts = {name: tensors[f"moments.{number}.{name}"].to(device, copy=True) for name in Moments._fields}
        work.moments[number] = Moments(**parts)
    work.pieces, work.n_polish = tensors["pieces"].to(device, copy=True), values["n_polish"]
    tracker.objective, tracker.bound = values["objective"], values["bound"]
    tracker.pieces = tensors["best"].to(device, copy=True)
    tracker.history = [Check(*each) for each in values["history"]]
    return _Progress(**values["at"])


def solve(
    problem: Problem,
    options: Options,
    *,
    kernel: Kernel | None = None,
    start: State | None = None,
    keeper: Keeper | None = None,
) -> Solution:
    """Minimise `problem` by two-block ADMM until its certified gap is small enough.

    Parameters
    ----------
    problem : Problem
    options : Options
    kernel : Kernel or None
        How to pass over the state; None chooses by device, size and tolerance.
    start : State or None
        Go on from here; it is used up.
    keeper : Keeper or None
        Keeps the state in files, and has what an interrupted run has left.

    Returns
    -------
    Solution
    """
    began = time.perf_counter()
    if kernel is None:
        # single precision reaches gaps of about 1e-4
        kernel = problem.kernel(torch.float32 if options.tol >= FINE_TOLERANCE else torch.float64)
    rho = options.rho or default_rho(problem)
    kept = None if keeper is None else keeper.resumed(_identity(problem, options, kernel.dtype))
    if kept is not None:
        state = _state_of(*kept, problem, kernel)
    else:
        state = State.zeros(problem, kernel, rho) if start is None else start.to(kernel.dtype)
    work = _Iteration(problem, kernel, state, options.relaxation)
    if state.rho != rho:
        work.rescale(rho)
    with _progress(options if problem.geometry.ranks.rank == 0 else replace(options, verbose=0)) as bar:
        tracker = _Tracker(problem, options, bar)
        at = _Progress(next_check=_next_check(0, options.max_iter)) if kept is None else _restore(work, tracker, *kept)
        at.seconds -= began
        del kept
        at.next_check = min(at.next_check, options.max_iter)
        if at.iteration >= options.max_iter:  # of which there were more when the checkpoint was written
            with kernel.session():
                _check(work, tracker, options, at)
        _run(work, tracker, options, at, keeper)
    result = tracker.result(at.iteration, at.n_interior, work.n_polish, at.seconds + time.perf_counter())
    if keeper is not None:
        keeper.finish()
    return Solution(tracker.pieces, result, state, work.pieces)


def _identity(problem: Problem, options: Options, dtype: torch.dtype) -> str:
    values, tensors = problem.identity()
    return digest([*values, options.relaxation, options.rho, options.tol, options.repairs, str(dtype)], tensors)


def _run(work: _Iteration, tracker: _Tracker, options: Options, at: _Progress, keeper: Keeper | None) -> None:
    """ADMM, the interior-point method where the problem is small, and ADMM again should that give up."""
    problem = work.problem
    if at.n_interior == 0:
        with work.kernel.session():
            _alternate(work, tracker, options, at, keeper)
        if not tracker.done and at.iteration < options.max_iter and isinstance(problem, Interior):
            # the best function may have lost pieces that are active nowhere
            pieces = tracker.pieces if tracker.pieces.shape == work.pieces.shape else work.pieces
            small = working_elements(problem.geometry, problem.n_sets, problem.coupled) <= SERIAL_ELEMENTS
            with single_threaded_torch if small else nullcontext():
                at.n_interior = _finish(InteriorPoint(problem, pieces), tracker, options, at.iteration)
            at.iteration += at.n_interior
            at.next_check, at.polished_at = _next_check(at.iteration, options.max_iter), at.iteration
    if not tracker.done and at.iteration < options.max_iter:  # the interior-point method gave up
        with work.kernel.session():
            _alternate(work, tracker, replace(options, interior_size=0), at, keeper)


def _ends_by_newton(problem: Problem, options: Options) -> bool:
    """Whether the interior-point method should finish: ADMM reaches a coarse gap sooner unless a problem is small."""
    coarse, most = options.tol >= FINE_TOLERANCE, INTERIOR_ELEMENTS
    limit = options.interior_size
    if limit is None:
        limit = SMALL_SYSTEM if coarse else LARGE_SYSTEM
        if problem.polished and coarse:  # a degenerate linear program, where ADMM is slow
            limit, most = LARGE_SYSTEM, COARSE_ELEMENTS
    of = problem.geometry, problem.n_sets, problem.coupled
    size, elements = system_size(*of), working_elements(*of)
    alone = problem.geometry.ranks.size == 1
    return alone and problem.newton and size <= limit and elements <= most


def _alternate(
    work: _Iteration, tracker: _Tracker, options: Options, at: _Progress, keeper: Keeper | None = None
) -> None:
    """ADMM until the gap is closed, iterations run out, or the interior-point method should take over."""
    limit = options.max_iter
    if _ends_by_newton(work.problem, options):
        elements = working_elements(work.problem.geometry, work.problem.n_sets, work.problem.coupled)
        patience = max(1.0, elements / QUICK_ELEMENTS)  # its steps are dear where these are many
        limit = min(limit, int(patience * options.interior_after))
    while at.iteration < limit and not tracker.done:
        work.step()
        at.iteration += 1
        if at.iteration == at.next_check:
            at.next_check = _next_check(at.iteration, options.max_iter)
            _check(work, tracker, options, at)
        if keeper is not None and not tracker.done and keeper.due(at.iteration):
            now = replace(at, seconds=at.seconds + time.perf_counter())
            keeper.save(at.iteration, *_snapshot(work, tracker, now))


def _check(work: _Iteration, tracker: _Tracker, options: Options, at: _Progress) -> None:
    """Certify the functions of the current iteration."""
    if work.problem.polished:
        bound = work.bound(0)
        near = relative_gap(tracker.objective, bound) <= POLISH_GAP * options.tol
        due = at.iteration >= min((1.4 if near else 2.0) * at.polished_at, options.max_iter)
        at.polished_at = at.iteration if due else at.polished_at
        best = work.polished(min(at.iteration, POLISH_STEPS)) if due else (tracker.objective, tracker.pieces)
        tracker.look(at.iteration, *best, bound)
    else:
        objective, pieces = work.primal()
        # while the objective still falls by more than the tolerance, no bound can come close enough
        settled = tracker.objective - objective <= options.tol * abs(objective)
        settled &= at.iteration >= options.repairs_from
        tracker.look(at.iteration, objective, pieces, work.bound(options.repairs if settled else 0))


def _finish(method: InteriorPoint, tracker: _Tracker, options: Options, iteration: int) -> int:
    """Close the gap of a small problem by the interior-point method; returns the steps it took."""
    n_steps = 0
    try:
        while n_steps < min(INTERIOR_STEPS, options.max_iter - iteration) and not tracker.done:
            method.step()
            n_steps += 1
            tracker.look(iteration + n_steps, *method.certify())
    except (FloatingPointError, torch.linalg.LinAlgError):  # numerically at its end: what was certified stays
        pass
    return n_steps
