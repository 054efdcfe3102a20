"""The two steps of EM for mixtures under a divergence, and their loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bregnet._core.chunks import CACHE, blocks
from bregnet.clustering.centered_points import CenteredPoints


@dataclass(frozen=True)
class Components:
    """Parameters of a mixture."""

    weights: Tensor  # pi, (k,)
    means: Tensor  # mu, (k, d)
    concentrations: Tensor  # beta, (k,)


@dataclass(frozen=True)
class Shares:
    """Sums over the responsibilities r_ik of components for points, as the M-step needs them."""

    weights: Tensor  # sum_i r_ik, (k,)
    sums: Tensor  # sum_i r_ik x_i, (k, d)
    values: Tensor  # sum_i r_ik D(x_i, o), (k,)
    blocks: Callable[[], Iterator[tuple[slice, Tensor]]]  # blocks of the r_ik themselves, (rows, k)


@dataclass(frozen=True)
class Concentration:
    """The rule for beta: fixed, or of maximum likelihood below a bound, for each component or for all."""

    tied: bool
    fixed: float | None
    largest: float

    def likeliest(self, shares: Shares, spread: Tensor, n_features: int, before: Tensor) -> Tensor:
        """The beta that maximizes (d / 2) N_k log beta - beta S_k, S_k the `spread`, below `largest`.

        The maximum is (d / 2) N_k / S_k; since the function is concave, a bound on beta just clips it.
        """
        if self.fixed is not None:
            return torch.full_like(before, self.fixed)
        counts = shares.weights
        if self.tied:
            counts, spread = counts.sum().expand_as(before), spread.sum().expand_as(before)
        found = (n_features / 2 * counts / spread.clamp_min(0)).clamp_max(self.largest)
        return torch.where(counts > 0, found, before)


def log_densities(points: CenteredPoints, mixture: Components) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of log(pi_k p_k(x)), (rows, k)."""
    beta = mixture.concentrations
    constants = mixture.weights.log() + points.x.shape[1] / 2 * (beta / math.pi).log()
    for rows, heights in points.heights(*points.tangents(mixture.means)):
        divergences = (points.values[rows, None] - heights).clamp_min_(0)
        yield rows, torch.addcmul(constants, divergences, beta, value=-1)


def expect(points: CenteredPoints, mixture: Components) -> tuple[float, Shares]:
    """The E-step: the mean log-likelihood, and sums over the responsibilities."""
    weights, values = (torch.zeros_like(mixture.weights, dtype=torch.float64) for _ in range(2))
    sums = torch.zeros_like(mixture.means, dtype=torch.float64)
    total = 0.0
    for rows, logs in log_densities(points, mixture):
        level, shares = _level_and_shares(logs)
        total += level.sum(dtype=torch.float64).item()
        weights += shares.sum(0)
        sums += shares.T @ points.x[rows].double()
        values += points.values[rows].double() @ shares

    def again() -> Iterator[tuple[slice, Tensor]]:
        return ((rows, _level_and_shares(logs)[1]) for rows, logs in log_densities(points, mixture))

    return points.finite(total / len(points)), Shares(weights, sums, values, again)


def _level_and_shares(logs: Tensor) -> tuple[Tensor, Tensor]:
    """log p(x), (rows, 1), and the responsibilities in double precision, (rows, k)."""
    level = torch.logsumexp(logs, dim=1, keepdim=True)
    return level, (logs - level).double().exp_()


def hard_shares(points: CenteredPoints, labels: Tensor, n_components: int) -> Shares:
    """Responsibilities of 1 for the component of the label, and 0 for others."""

    def again() -> Iterator[tuple[slice, Tensor]]:
        for rows in blocks(len(points), n_components, budget=CACHE):
            yield rows, torch.nn.functional.one_hot(labels[rows], n_components).double()

    values = torch.bincount(labels, points.values.double(), minlength=n_components)
    return Shares(points.counts(labels, n_components), points.sums(labels, n_components), values, again)


def maximize(points: CenteredPoints, shares: Shares, rule: Concentration, before: Components) -> Components:
    """The M-step. With mu_k the mean, sum_i r_ik D(x_i, mu_k) = sum_i r_ik D(x_i, o) - N_k D(mu_k, o)."""
    alive = shares.weights[:, None] > 0
    means = torch.where(alive, (shares.sums / shares.weights[:, None]).to(points.x), before.means)
    means = points.generator._interior(means)
    spread = shares.values - shares.weights * points.from_one(means, points.origin).double()
    lost = spread < math.sqrt(torch.finfo(points.x.dtype).eps) * shares.values
    if rule.fixed is None and lost.any():  # the difference has lost its digits
        spread = torch.where(lost, _spread(points, shares, means, lost.nonzero()[:, 0].tolist()), spread)
    concentrations = rule.likeliest(shares, spread, means.shape[1], before.concentrations)
    weights = shares.weights / shares.weights.sum()
    return Components(weights.to(points.x), means, concentrations.to(points.x))


def _spread(points: CenteredPoints, shares: Shares, means: Tensor, components: list[int]) -> Tensor:
    """sum_i r_ik D(x_i, mu_k), term by term, for some components, (k,), 0 for the others."""
    out = torch.zeros_like(shares.weights)
    for rows, block in shares.blocks():
        for k in components:
            here = block[:, k] > 0
            if here.any():
                out[k] += block[here, k] @ points.from_one(points.x[rows][here], means[k]).double()
    return out


@dataclass(frozen=True)
class EMFit:
    """The result of a run of EM; the last of the bounds is that of the components."""

    components: Components
    lower_bounds: tuple[float, ...]
    converged: bool
    status: str


def em(points: CenteredPoints, start: Components, rule: Concentration, max_iter: int, tol: float) -> EMFit:
    """Alternate the two steps until the mean log-likelihood gains no more than `tol`."""
    current = start
    bound, shares = expect(points, current)
    bounds = [bound]
    for _ in range(max_iter):
        after = maximize(points, shares, rule, current)
        bound, shares_after = expect(points, after)
        drop = bounds[-1] - bound
        if drop > 0:  # the last step found nothing better
            rounding = _rounding(points, shares, current, bounds[-1]) + _rounding(points, shares_after, after, bound)
            status = f"stopped since the mean log-likelihood fell by {drop:g}, where rounding explains {rounding:g}"
            return EMFit(current, tuple(bounds), drop <= rounding, f"{status}; scale X, or use double precision")
        current, shares = after, shares_after
        bounds.append(bound)
        if -drop <= tol:
            return EMFit(current, tuple(bounds), True, f"converged after {len(bounds) - 1} iterations")
    return EMFit(current, tuple(bounds), False, f"stopped after max_iter={max_iter} iterations; raise max_iter or tol")


def _rounding(points: CenteredPoints, shares: Shares, mixture: Components, bound: float) -> float:
    """The rounding error of the mean log-likelihood, from the size of the terms that cancel in beta D(x, mu)."""
    slopes, below = points.tangents(mixture.means)
    steepness = torch.linalg.vector_norm(slopes, dim=1, dtype=torch.float64) + points.steepness
    reach = sum(points.reach[rows] @ block for rows, block in shares.blocks())  # (k,)
    sizes = shares.values + steepness * reach + below.double() * shares.weights
    relative = 1 + abs(bound) + (mixture.concentrations.double() @ sizes).item() / len(points)
    return 4 * torch.finfo(points.x.dtype).eps * relative
