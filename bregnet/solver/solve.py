"""The one loop of the library: ADMM until the certified gap is small, and an interior-point finish where that pays."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass
from typing import Any, cast

import torch
from torch import Tensor
from tqdm.auto import tqdm

from bregnet.solver.admm import Certified, Iteration, Options, single_threaded_torch
from bregnet.solver.all_pairs import AllPairs
from bregnet.solver.checkpoints import STRIDE, CheckpointWriter, digest
from bregnet.solver.interior import InteriorPoint, system_size, working_elements
from bregnet.solver.problem import Problem
from bregnet.solver.result import Check, Result, relative_gap
from bregnet.solver.working_pairs import WorkingPairs

LAYOUTS: dict[str, Any] = {"all_pairs": AllPairs, "working_pairs": WorkingPairs}


@dataclass(frozen=True)
class Solution:
    """The best functions found, their certificate, and the state to go on from."""

    pieces: Tensor  # (Q, K, d + 1)
    result: Result
    state: Any


class _Monitor:
    """The best function and the best bound so far, reported after every check."""

    def __init__(self, problem: Problem, options: Options, bar: tqdm | None) -> None:
        self._options, self._bar, self._ranks = options, bar, problem.ranks
        geometry = problem.geometry
        resting = geometry.lifted.new_zeros((problem.n_sets, geometry.n_pieces, geometry.dimension + 1))
        objective, pieces = problem.primal(resting)
        self.best = Certified(self._ranks.agreed(objective)[0], pieces, problem.trivial_bound)
        if not math.isfinite(self.best.objective):
            raise FloatingPointError("non-finite values before the first iteration")
        # with cells the maximum of all pieces may beat the program's optimum
        self._comparable = geometry.own_piece
        self.history: list[Check] = []
        self.stopped = False

    @property
    def gap(self) -> float:
        return relative_gap(self.best.objective, self.best.bound)

    @property
    def done(self) -> bool:
        return self.stopped or self.gap <= self._options.tol

    def look(self, iteration: int, found: Certified) -> None:
        """Take in a function and a bound, and tell who listens."""
        objective, bound = self._ranks.agreed(found.objective, found.bound)
        if not (math.isfinite(objective) and math.isfinite(bound)):
            raise FloatingPointError(
                f"non-finite values after {iteration} iterations: the data may span too many orders of magnitude"
            )
        better = objective < self.best.objective
        self.best = Certified(
            objective if better else self.best.objective,
            found.pieces if better else self.best.pieces,
            max(self.best.bound, bound),
        )
        if self._comparable and self.best.bound > self.best.objective * (1 + 1e-5) + 1e-9:
            raise RuntimeError(
                f"the bound {self.best.bound} exceeds the objective {self.best.objective}: this is a bug, please report"
                " the data"
            )
        check = Check(iteration, self.best.objective, self.best.bound, self.gap)
        self.history.append(check)
        if self._options.monitor is not None:
            self.stopped = bool(self._options.monitor(check, self.best.pieces))
        self.stopped = self._ranks.any(self.stopped)
        if self._bar is not None:
            self._bar.total = self._likely_end(iteration)
            self._bar.update(iteration - self._bar.n)
            self._bar.set_postfix_str(f"gap {100 * self.gap:.3g}% (goal {100 * self._options.tol:.3g}%)")

    def _likely_end(self, iteration: int) -> int:
        """The iteration at which the gap is at the goal, if it goes on as since half of the iterations."""
        before = next(each for each in self.history if 2 * each.iteration >= iteration)
        past, now, goal = (max(each, 1e-300) for each in (before.gap, self.gap, self._options.tol))
        if not now < past < math.inf:
            return self._options.max_iter
        left = (iteration - before.iteration) * math.log(max(now / goal, 1.0)) / math.log(past / now)
        return min(self._options.max_iter, iteration + math.ceil(left))


def _progress(options: Options, rank: int) -> AbstractContextManager[tqdm | None]:
    """A bar where one is wanted; a silent one would still start tqdm's monitoring thread."""
    if options.verbose < 1 or rank > 0:
        return nullcontext()
    return tqdm(total=options.max_iter, unit="it", desc="ADMM")


class _Run:
    """One run of the loop: an iteration, what has been found, and where the loop is."""

    def __init__(self, iteration: Iteration, monitor: _Monitor, writer: CheckpointWriter | None, began: float) -> None:
        self.iteration, self.monitor, self.writer = iteration, monitor, writer
        self.options, self.problem = iteration.options, cast(Any, iteration.problem)
        self.last: Certified | None = None  # what the last check found
        self.n_interior, self.next_check = 0, iteration.next_check()
        self._stride = STRIDE if writer is not None else iteration.options.max_iter
        self.seconds = -began  # plus those of earlier runs

    @property
    def n_iter(self) -> int:
        return self.iteration.n_iter + self.n_interior

    def resume(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from a snapshot."""
        best = tensors.pop("best").to(self.monitor.best.pieces.device, copy=True)
        tensors.pop("cells")
        self.monitor.best = Certified(values["objective"], best, values["bound"])
        self.monitor.history = [Check(*each) for each in values["history"]]
        self.seconds += values["seconds"]
        self.iteration.n_iter, self.next_check = values["n_iter"], values["next_check"]
        self.iteration.restore(values["state"], tensors)

    def save(self) -> None:
        """Write a snapshot where that is due."""
        if self.writer is None or self.monitor.done or not self.writer.due(self.iteration.n_iter):
            return
        state, tensors = self.iteration.snapshot()
        values = {
            "objective": self.monitor.best.objective,
            "bound": self.monitor.best.bound,
            "history": [astuple(each) for each in self.monitor.history],
            "seconds": self.seconds + time.perf_counter(),
            "n_iter": self.iteration.n_iter,
            "next_check": self.next_check,
            "state": state,
        }
        known = {"best": self.monitor.best.pieces, "cells": self.problem.geometry.cells}
        self.writer.save(self.iteration.n_iter, values, tensors | known)

    def check(self) -> None:
        """Certify the current iteration."""
        self.last = self.iteration.certify(self.monitor.best)
        self.monitor.look(self.n_iter, self.last)
        self.next_check = self.iteration.next_check() + self.n_interior

    def alternate(self, limit: float) -> None:
        """ADMM until the gap is closed or so many iterations are done."""
        with self.iteration.session():
            while self.n_iter < limit and not self.monitor.done:
                until = int(min(self.next_check, limit))
                self.iteration.run(min(until - self.n_iter, self._stride))
                if self.n_iter >= until:
                    self.check()
                self.save()

    def finish(self) -> None:
        """Close the gap of a small problem by the interior-point method."""
        pieces, state = self.monitor.best.pieces[0], self.iteration.state
        # the best function may have lost pieces that are active nowhere
        method = InteriorPoint(self.problem, pieces if pieces.shape == state.pieces.shape else state.pieces)
        try:
            while self.n_interior < 100 and self.n_iter < self.options.max_iter and not self.monitor.done:
                method.step()
                self.n_interior += 1
                self.monitor.look(self.n_iter, method.certify())
        except (FloatingPointError, torch.linalg.LinAlgError):  # numerically at its end: what was certified stays
            pass

    def run(self) -> None:
        """ADMM, the interior-point method where the problem is small, and ADMM again should that give up."""
        limit = self.options.max_iter
        unseen = not self.monitor.history or self.monitor.history[-1].iteration < self.iteration.n_iter
        if self.iteration.n_iter >= limit and unseen:  # of which there were more when the checkpoint was written
            with self.iteration.session():
                self.check()
        first = _interior_from(self.problem, self.options)
        self.alternate(min(limit, first))
        if first < limit and not self.monitor.done:
            # threads that wait for each other, on a busy machine, take many times longer
            small = working_elements(self.problem) <= 10_000_000
            with single_threaded_torch if small else nullcontext():
                self.finish()
            self.next_check = self.iteration.next_check() + self.n_interior
            self.alternate(limit)


def _interior_from(problem: Any, options: Options) -> float:
    """The iteration from which the interior-point method should finish, if it should."""
    if not problem.interior or problem.ranks.size > 1:
        return math.inf
    most = 30_000_000 if options.fine else 10_000_000  # numbers in its largest array, by tolerance
    size = 1500 if options.interior_size is None else options.interior_size  # unknowns of its equations
    elements = working_elements(problem)
    if system_size(problem) > size or elements > most:
        return math.inf
    return int(max(1.0, elements / 2_000_000) * options.interior_after)  # up to so many, a step costs little


def solve(
    problem: Problem,
    options: Options,
    *,
    start: Any = None,
    writer: CheckpointWriter | None = None,
    iteration: Iteration | None = None,
) -> Solution:
    """Minimize `problem` by two-block ADMM until its certified gap is small enough.

    Parameters
    ----------
    problem : Problem
    options : Options
    start : state or None
        That of an earlier solution, to go on from; it is used up.
    writer : CheckpointWriter or None
        Keeps the state in files, and has what an interrupted run has left.
    iteration : Iteration or None
        The iteration to run, ready to start; None makes the one that the problem asks for.

    Returns
    -------
    Solution
    """
    began = time.perf_counter()
    kept = None if writer is None else writer.resumed(_identity(problem, options))
    iteration = iteration or LAYOUTS[problem.layout](problem, options, start)
    with _progress(options, problem.ranks.rank) as bar:
        run = _Run(iteration, _Monitor(problem, options, bar), writer, began)
        if kept is not None:
            run.resume(*kept)
            del kept
        run.run()
    best, monitor = run.monitor.best, run.monitor
    found_last = run.last is not None and best.pieces is run.last.pieces
    # what was found on the way may be rounded
    if problem.layout == "working_pairs" and not (found_last and monitor.gap <= options.tol):
        objective, pieces = problem.primal(best.pieces)
        best = Certified(problem.ranks.agreed(objective)[0], pieces, best.bound)
    result = Result.from_history(
        tuple(monitor.history),
        options.tol,
        objective=best.objective,
        dual_bound=best.bound,
        stopped=monitor.stopped,
        n_iter=run.n_iter,
        seconds=run.seconds + time.perf_counter(),
        n_interior=run.n_interior,
        n_polish=iteration.n_polish,
    )
    if writer is not None:
        writer.finish()
    return Solution(best.pieces, result, iteration.state)


def _identity(problem: Problem, options: Options) -> str:
    values, tensors = problem.identity()
    return digest([*values, options.relaxation, options.rho, options.tol, str(options.dtype)], tensors)
