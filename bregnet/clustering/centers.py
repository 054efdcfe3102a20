"""Centers of points under a divergence: nearest centers, seeds, and Lloyd's iteration.

The weighted mean is the best center under every Bregman divergence (Banerjee et al., 2005), so k-means needs no more
of a divergence than the nearest center of a point: the one whose tangent plane is highest there. Where f has no
tangent at a mean, as Kullback-Leibler at 0, the center is the nearest point that has one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.arrays import Array
from bregnet._core.chunks import CACHE, rows_at_once
from bregnet.clustering.assignment import Assignment
from bregnet.clustering.centered_points import CenteredPoints
from bregnet.divergences import BregmanDivergence, Generator, SquaredEuclidean


@dataclass(frozen=True)
class Clusters:
    """What Lloyd's iteration found."""

    centers: Tensor  # (n_clusters, n_features)
    labels: Tensor  # number of the center nearest to each point, (n_points,)
    inertia: float  # weighted sum of the divergences D(x, c) of the points from their centers
    n_iter: int
    history: tuple[float, ...]  # that sum at the seeds and after each iteration; it never increases


@torch.no_grad()
def nearest_centers(divergence: BregmanDivergence, X: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """The number of the center c nearest to each row x of X, by D(x, c), and these divergences, (n_points,) each.

    Of centers with the same tangent plane the one of least squared Euclidean distance is taken.
    """
    return _nearest(divergence.generator, *divergence._both(X, centers))


def _nearest(generator: Generator, x: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    origin = centers.mean(0)
    parts = x.split(rows_at_once(x.shape[1], budget=4 * CACHE))  # what is computed for each part is forgotten
    found = [Assignment(CenteredPoints(generator, part, None, origin), centers) for part in parts]
    return torch.cat([each.labels for each in found]), torch.cat([each.gaps for each in found]).to(x.dtype)


@torch.no_grad()
def lloyd(
    divergence: BregmanDivergence,
    X: Tensor,
    n_clusters: int,
    *,
    seed: np.random.RandomState,
    weights: Array | None = None,
    max_iter: int = 300,
    tol: float = 1e-4,
    init: str | Tensor = "k-means++",
) -> Clusters:
    """Clusters by Lloyd's iteration: points go to the nearest center, centers to the mean of their points.

    It stops when the squared shift of all centers together is at most `tol` times the mean variance of the features.
    `init` is "k-means++", "random" or the centers to start from.
    """
    points = weighted_points(divergence, X, weights)
    check_count(points, n_clusters)
    centers = seeds(points, n_clusters, init, seed)
    assigned = Assignment(points, centers)
    history = [assigned.objective]
    tolerance = tol * points.variance()
    for _ in range(max_iter):
        moved = assigned.means(centers)
        assigned.move(moved)
        if assigned.objective > history[-1]:
            break  # by rounding: the last step found nothing better
        shift = (moved - centers).square().sum().item()
        centers = moved
        history.append(assigned.objective)
        if assigned.n_changed == 0 or shift <= tolerance:
            break
    generator, unit = divergence.generator, points.unit
    labels, _ = _nearest(generator, points.x, centers)
    step = generator._batch_size(points.x)
    pairs = zip(points.x.split(step), labels.split(step), strict=True)
    accurate = torch.cat([generator._paired(x, centers[own]) for x, own in pairs])
    objectives = tuple(unit * each for each in history)
    return Clusters(centers, labels, unit * points.total(accurate), max(1, len(history) - 1), objectives)


def weighted_points(divergence: BregmanDivergence, X: Tensor, weights: Array | None) -> CenteredPoints:
    """Points to cluster, checked."""
    x = divergence.generator._points("X", X)
    scaled, unit = scaled_weights(x, weights)
    points = CenteredPoints(divergence.generator, x, scaled, unit=unit)
    points.total(points.values)  # raises an error where it overflows
    return points


def scaled_weights(x: Tensor, weights: Array | None) -> tuple[Tensor | None, float]:
    """Weights, checked, as multiples of a unit such that the largest is between 1 and 2, and the unit."""
    checked = check.sample_weights(weights, len(x), "weights")
    if checked is None:
        return None, 1.0
    unit = 2.0 ** (math.frexp(checked.max())[1] - 1)  # a power of 2: nothing is rounded
    return torch.as_tensor(checked / unit).to(x), unit


def check_count(points: CenteredPoints, n_clusters: int) -> None:
    """Raise an error where there are fewer points than clusters."""
    check.integer_at_least("n_clusters", n_clusters, 1)
    n_counted = int((points.shares() > 0).sum())
    if n_clusters > n_counted:
        counted = "rows of X" if n_counted == len(points) else "rows of X with a positive weight"
        raise ValueError(f"n_clusters must be at most the number of {counted}, n_samples={n_counted}, got {n_clusters}")


def seeds(
    points: CenteredPoints, n_clusters: int, init: str | Tensor, seed: np.random.RandomState, *, name: str = "init"
) -> Tensor:
    """Centers to start from, (n_clusters, d); `name` is that of the argument."""
    if isinstance(init, Tensor):
        centers = points.generator._points(name, init, n_features=points.x.shape[1]).to(points.x)
        if len(centers) != n_clusters:
            raise ValueError(f"{name} must have one row for each of {n_clusters} clusters, got {len(centers)}")
        return points.generator._interior(centers.clone())
    check_count(points, n_clusters)
    if init == "random":
        rows = seed.choice(len(points), n_clusters, replace=False, p=points.shares().cpu().numpy())
        return points.as_centers(torch.as_tensor(rows, device=points.x.device))
    if init == "k-means++":
        return plus_plus(points, n_clusters, seed)
    raise ValueError(f"{name} must be 'k-means++', 'random' or an array of centers, got {init!r}")


def plus_plus(points: CenteredPoints, n_clusters: int, seed: np.random.RandomState) -> Tensor:
    """Greedy k-means++ with D(x, c), (n_clusters, d).

    Where D is 0 between all points and the seeds, as it may be on the pieces of a max-affine function, the squared
    Euclidean distance takes over; where that is 0 too, points are drawn by weight alone.
    """
    chosen = _draw(points, points.shares(), 1, seed)
    for generator in (points.generator, SquaredEuclidean()):
        if len(chosen) < n_clusters:
            seen = points if generator is points.generator else points.under(generator)
            closest = Assignment(seen, points.as_centers(chosen)).gaps.to(points.x.dtype)
            chosen = torch.cat([chosen, farther(seen, closest, n_clusters - len(chosen), seed)])
    return points.as_centers(torch.cat([chosen, _draw(points, points.shares(), n_clusters - len(chosen), seed)]))


def farther(points: CenteredPoints, closest: Tensor, count: int, seed: np.random.RandomState) -> Tensor:
    """Row numbers of `count` more seeds; `closest` (n,) are the divergences from the nearest seed so far.

    Of a few points drawn in proportion to their weighted divergence, the one that reduces the sum most is taken. There
    are fewer where all divergences are 0.
    """
    n_trials = 2 + int(np.log(count + 1))
    chosen: list[Tensor] = []
    for _ in range(count):
        mass = points.weighted(torch.where(closest > points.rounding, closest, 0.0))
        if not mass.any():
            break
        candidates = _draw(points, mass, n_trials, seed)
        after = torch.minimum(points.divergences(points.as_centers(candidates)), closest[:, None])
        best = int(points.weighted(after).sum(0).argmin())
        chosen.append(candidates[best])
        closest = after[:, best]
    return torch.stack(chosen) if chosen else torch.empty(0, dtype=torch.int64, device=closest.device)


def _draw(points: CenteredPoints, mass: Tensor, count: int, seed: np.random.RandomState) -> Tensor:
    """Row numbers drawn in proportion to `mass` (n,), independent of the order of the rows."""
    reached = mass[points.order].double().cumsum(0)
    thresholds = torch.as_tensor(seed.random_sample(count), device=mass.device) * reached[-1]
    last = mass[points.order].nonzero()[-1, 0]  # a threshold may round up to the total
    return points.order[torch.searchsorted(reached, thresholds, right=True).clamp_max(last)]
