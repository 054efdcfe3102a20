"""What a fit reports."""

from __future__ import annotations

from dataclasses import dataclass

from bregnet._core.notebook import shown_in_notebooks


@dataclass(frozen=True)
class Check:
    """One check of the certificate.

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


@shown_in_notebooks
@dataclass(frozen=True)
class Result:
    """How a fit went.

    Attributes
    ----------
    status : str
        A readable sentence.
    converged : bool
        Whether the certified gap reached the tolerance.
    stopped : bool
        Whether a callback, or early stopping, ended the fit.
    n_iter : int
    objective, dual_bound, gap : float
        The certificate of the returned function, see :class:`Check`.
    history : tuple of Check
    seconds : float
    n_interior : int
        How many of the iterations were interior-point steps.
    n_polish : int
        Further passes that polish pieces until each is the largest at its own points.

    Examples
    --------
    >>> from bregnet.solver.result import Result
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
    n_polish: int = 0

    @classmethod
    def from_history(
        cls,
        history: tuple[Check, ...],
        tol: float,
        *,
        objective: float,
        dual_bound: float,
        stopped: bool,
        n_iter: int,
        seconds: float,
        n_interior: int = 0,
        n_polish: int = 0,
    ) -> Result:
        """A result that says itself how the fit ended."""
        gap = relative_gap(objective, dual_bound)
        converged = gap <= tol
        how = "converged" if converged else "stopped early" if stopped else f"not converged to {tol:.2g}"
        status = f"{how}: certified gap {100 * gap:.2g}% after {n_iter} iterations"
        if n_interior:
            status += f" ({n_interior} of them interior-point)"
        certificate = objective, dual_bound, gap, history
        return cls(status, converged, stopped and not converged, n_iter, *certificate, seconds, n_interior, n_polish)

    def restated(self, objective: float, tol: float) -> Result:
        """The same fit when its function turns out to have another value."""
        kept = ("dual_bound", "stopped", "n_iter", "seconds", "n_interior", "n_polish")
        return Result.from_history(
            self.history, tol, objective=objective, **{name: getattr(self, name) for name in kept}
        )


def relative_gap(objective: float, bound: float) -> float:
    """(objective - bound) / |objective|; 0 where the bound is met."""
    excess = objective - bound
    if excess <= 0:
        return 0.0
    return excess / abs(objective) if objective != 0 else float("inf")
