"""What a fit reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One look at the certificate.

    Attributes
    ----------
    iteration : int
    objective : float
        Value of the best function so far.
    dual_bound : float
        No feasible point of the program has a smaller value. (With cells, feasible means that each point's own
        piece is the largest there; the returned maximum need not be feasible in this sense, only better.)
    gap : float
        ``(objective - dual_bound) / |objective|``, never below 0.

    Examples
    --------
    >>> from bregnet import Check
    >>> Check(iteration=50, objective=1.0, dual_bound=0.9, gap=0.1).gap
    0.1
    """

    iteration: int
    objective: float
    dual_bound: float
    gap: float


@dataclass(frozen=True)
class Result:
    """How a fit went.

    Attributes
    ----------
    status : str
        A sentence for people.
    converged : bool
        Whether the certified gap reached the tolerance.
    stopped : bool
        Whether the callback ended the fit.
    n_iter : int
    objective, dual_bound, gap : float
        The certificate of the returned function, see :class:`Check`.
    history : tuple of Check
    seconds : float
    n_interior : int
        How many of the iterations were interior-point steps.

    Examples
    --------
    >>> from bregnet.admm.result import Result
    >>> Result("converged: certified gap 0.8% after 420 iterations", True, False, 420, 1.0, 0.992, 0.008, (), 0.3).gap
    0.008
    """

    status: str
    converged: bool
    stopped: bool
    n_iter: int
    objective: float
    dual_bound: float
    gap: float
    history: tuple[Check, ...]
    seconds: float
    n_interior: int = 0


def relative_gap(objective: float, bound: float) -> float:
    """(objective - bound) / |objective|; 0 where the bound is met."""
    excess = objective - bound
    if excess <= 0:
        return 0.0
    return excess / abs(objective) if objective != 0 else float("inf")
