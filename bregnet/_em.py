"""The two steps of EM for mixtures under a divergence, and their loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bregnet._points import Points


@dataclass(frozen=True)
class Components:
    """Parameters of a mixture."""

    weights: Tensor  # pi, (k,)
    means: Tensor  # mu, (k, d)
    concentrations: Tensor  # beta, (k,)


@dataclass(frozen=True)
class Shares:
    """What an M-step needs to know of the shares r_ik that components have in points."""

    weights: Tensor  # sum_i r_ik, (k,)
    sums: Tensor  # sum_i r_ik x_i, (k, d)
    values: Tensor  # sum_i r_ik D(x_i, o), (k,)


@dataclass(frozen=True)
class Concentration:
    """The rule for beta: fixed, or the likeliest up to a largest one, for each component or for all."""

    tied: bool
    fixed: float | None
    largest: float

    def likeliest(self, shares: Shares, spread: Tensor, n_features: int, before: Tensor) -> Tensor:
        """The beta that maximises (d / 2) N_k log beta - beta S_k, S_k the `spread`, below `largest`.

        The maximum is (d / 2) N_k / S_k; since the function is concave, a bound on beta just clips it.
        """
        if self.fixed is not None:
            return torch.full_like(before, self.fixed)
        counts = shares.weights
        if self.tied:
            counts, spread = counts.sum().expand_as(before), spread.sum().expand_as(before)
        found = (n_features / 2 * counts / spread.clamp_min(0)).clamp_max(self.largest)
        return torch.where(counts > 0, found, before)


def log_densities(points: Points, mixture: Components) -> Iterator[tuple[slice, Tensor]]:
    """Some rows at a time, log(pi_k p_k(x)), (rows, k)."""
    beta = mixture.concentrations
    constants = mixture.weights.log() + points.x.shape[1] / 2 * (beta / math.pi).log()
    for rows, heights in points.heights(*points.tangents(mixture.means)):
        divergences = (points.values[rows, None] - heights).clamp_min_(0)
        yield rows, torch.addcmul(constants, divergences, beta, value=-1)


def expect(points: Points, mixture: Components) -> tuple[float, Shares]:
    """The E-step: the mean log-likelihood, and the shares of the components."""
    n_components, n_features = mixture.means.shape
    weights, values = torch.zeros_like(mixture.weights), torch.zeros_like(mixture.weights)
    sums = torch.zeros(n_components, n_features).to(weights)
    total = 0.0
    for rows, logs in log_densities(points, mixture):
        level = torch.logsumexp(logs, dim=1, keepdim=True)
        shares = (logs - level).exp_()
        total += level.sum(dtype=torch.float64).item()
        weights += shares.sum(0)
        sums += shares.T @ points.x[rows]
        values += points.values[rows] @ shares
    return total / len(points), Shares(weights, sums, values)


def maximise(points: Points, shares: Shares, rule: Concentration, before: Components) -> Components:
    """The M-step. With mu_k the mean, sum_i r_ik D(x_i, mu_k) = sum_i r_ik D(x_i, o) - N_k D(mu_k, o)."""
    alive = shares.weights[:, None] > 0
    means = torch.where(alive, shares.sums / shares.weights[:, None], before.means)
    spread = shares.values - shares.weights * points.from_origin(means)
    concentrations = rule.likeliest(shares, spread, means.shape[1], before.concentrations)
    return Components(shares.weights / shares.weights.sum(), means, concentrations)


@dataclass(frozen=True)
class Fitted:
    """What a run of EM found; the last of the bounds is that of the components."""

    components: Components
    lower_bounds: tuple[float, ...]
    converged: bool


def em(points: Points, start: Components, rule: Concentration, max_iter: int, tol: float) -> Fitted:
    """Alternate the two steps until the mean log-likelihood gains no more than `tol`."""
    current = start
    bound, shares = expect(points, current)
    bounds = [bound]
    for _ in range(max_iter):
        after = maximise(points, shares, rule, current)
        bound, shares = expect(points, after)
        if not bound >= bounds[-1]:
            return Fitted(current, tuple(bounds), True)  # by rounding: what came before is as good as it gets
        current = after
        bounds.append(bound)
        if bounds[-1] - bounds[-2] <= tol:
            return Fitted(current, tuple(bounds), True)
    return Fitted(current, tuple(bounds), False)
