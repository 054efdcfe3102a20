"""What an iteration of two-block ADMM is to the loop that runs it: a state, a step, a certificate, a snapshot."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bregnet.solver.problem import Problem
from bregnet.solver.result import Check

FINE_TOLERANCE = 1e-3  # below, the state is in double precision: single precision reaches gaps of about 1e-4


@dataclass(frozen=True)
class Options:
    """How to run the loop.

    Attributes
    ----------
    tol : float
        Stop when the certified relative gap is this small.
    max_iter : int
    relaxation : float or None
        Over-relaxation g of both blocks, in (0, 2); None chooses by the kind of iteration.
    rho : float or None
        Step size; None chooses it from the problem.
    tight_from : float
        The iteration before which no effort goes into a tight bound, where the fit goes on whatever it is.
    interior_after : int
        Iterations after which a small problem goes over to the interior-point method.
    interior_size : int or None
        The largest system of Newton equations for which it does; None chooses by the tolerance.
    verbose : int
        1 shows a progress bar.
    monitor : callable or None
        Called with every :class:`Check` and the best pieces so far, (Q, K, d + 1); returning True stops the fit.
    """

    tol: float = 1e-2
    max_iter: int = 5000
    relaxation: float | None = None
    rho: float | None = None
    tight_from: float = 0
    interior_after: int = 400
    interior_size: int | None = None
    verbose: int = 0
    monitor: Callable[[Check, Tensor], bool | None] | None = None

    @property
    def fine(self) -> bool:
        """Whether the tolerance asks for double precision."""
        return self.tol < FINE_TOLERANCE

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the state."""
        return torch.float64 if self.fine else torch.float32


class Certified(NamedTuple):
    """A function, its value, and a number that no feasible point of the program can go below."""

    objective: float
    pieces: Tensor  # (Q, K, d + 1)
    bound: float


class Iteration(ABC):
    """ADMM on one problem.

    Attributes
    ----------
    problem : Problem
    options : Options
    state : object
        All that is carried from one iteration to the next; a later fit may start from it.
    n_iter : int
        Steps taken.
    n_polish : int
        Passes, beside the iterations, that made pieces keep their points.
    """

    state: Any

    def __init__(self, problem: Problem, options: Options) -> None:
        self.problem, self.options = problem, options
        self.n_iter = self.n_polish = 0

    def session(self) -> AbstractContextManager[None]:
        """What must hold while iterations run."""
        return nullcontext()

    @abstractmethod
    def step(self) -> None:
        """Both blocks of ADMM, over-relaxed, on the state."""

    def run(self, n_steps: int) -> None:
        """Several steps."""
        for _ in range(n_steps):
            self.step()

    @abstractmethod
    def certify(self, best: Certified) -> Certified:
        """The function and the bound of the current state; `best` is the best found before."""

    @abstractmethod
    def next_check(self) -> int:
        """The iteration at which to certify next."""

    @abstractmethod
    def snapshot(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """All that is needed to go on, as plain values and tensors."""

    @abstractmethod
    def restore(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from a snapshot."""


class _SingleThreadedTorch:
    """Torch on one thread for whoever is inside.

    The setting is the thread's own, and what new threads start from: everybody restores it, to what it was before
    anyone came in.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = torch.get_num_threads()
            self._inside += 1
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            torch.set_num_threads(self._before)


single_threaded_torch = _SingleThreadedTorch()
