"""Mini-batch k-means: running means of batches, for very many points.

A running mean moves towards the batch's mean in proportion to the weights: the best center of all points seen with
its label, under every Bregman divergence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bregnet._core.arrays import Array
from bregnet.clustering.assignment import Assignment
from bregnet.clustering.centered_points import CenteredPoints
from bregnet.clustering.centers import Clusters, check_count, farther, lloyd, scaled_weights, seeds, weighted_points
from bregnet.divergences import BregmanDivergence


@dataclass
class RunningMeans:
    """Centers that are updated by batches."""

    centers: Tensor  # (k, d)
    weights: Tensor  # of the points that each center has seen, (k,)
    n_since_placed: int = 0
    history: list[float] = field(default_factory=list)  # mean divergence of each batch before it moved the centers

    @classmethod
    def starting_at(cls, centers: Tensor) -> RunningMeans:
        """Centers before the first batch."""
        return cls(centers, torch.zeros(len(centers), dtype=torch.float64, device=centers.device))

    def absorb(self, batch: CenteredPoints, seed: np.random.RandomState) -> float:
        """Update the centers by a batch; returns its weighted mean divergence from them before the update."""
        found = Assignment(batch, self.centers)
        added = batch.unit * found.counts
        share = (added / (self.weights + added).clamp_min(torch.finfo(torch.float64).tiny))[:, None]
        share = share.to(self.centers.dtype)
        # not c + share * (mean - c), which may round to outside of the domain of f
        moved = (1 - share) * self.centers + share * batch.means(found.labels, self.centers)
        self.centers = batch.generator._interior(moved)
        self.weights = self.weights + added
        self.n_since_placed += len(batch)
        if self.n_since_placed >= 10 * len(self.centers) or not self.weights.all():
            self._reassign(batch, found.gaps.to(batch.x.dtype), seed)
            self.n_since_placed = 0
        self.history.append(float(batch.shares() @ found.gaps))
        return self.history[-1]

    def _reassign(self, batch: CenteredPoints, gaps: Tensor, seed: np.random.RandomState) -> None:
        """Move centers of little weight to points of the batch, far from the centers and from each other."""
        light = self.weights < 0.01 * self.weights.max()
        moving = light.nonzero()[:, 0][: len(batch) // 2]
        rows = farther(batch, gaps, len(moving), seed)
        moving = moving[: len(rows)]
        self.centers[moving] = batch.as_centers(rows)
        self.weights[moving] = self.weights[~light].min()


@torch.no_grad()
def mini_batch(
    divergence: BregmanDivergence,
    X: Tensor,
    n_clusters: int,
    *,
    batch_size: int,
    seed: np.random.RandomState,
    weights: Array | None = None,
    max_iter: int = 300,
    tol: float = 1e-4,
    init: str | Tensor = "k-means++",
) -> Clusters:
    """Clusters by running means of random batches, up to `max_iter` times as many points as there are.

    It stops when the smoothed objective has not fallen for ten batches. `tol` is not used: a running mean's steps
    shrink whether or not it has arrived. The history is that of the smoothed objective, a mean over points, for each
    batch. Up to ten iterations of Lloyd's over all points close it, for running means remember labels long given up:
    where labels then stay as they are, the centers are the means of their points.
    """
    x = divergence.generator._points("X", X)
    scaled, unit = scaled_weights(x, weights)
    rows = torch.arange(len(x), device=x.device) if scaled is None else scaled.nonzero()[:, 0]
    batch_size = min(batch_size, len(rows))  # a larger one is no better, and may not fit into memory

    def drawn(count: int) -> CenteredPoints:
        some = rows[torch.as_tensor(seed.randint(0, len(rows), count), device=x.device)]
        return CenteredPoints(divergence.generator, x[some], None if scaled is None else scaled[some])

    few = 3 * max(batch_size, n_clusters) >= len(rows)
    first = weighted_points(divergence, x, scaled) if few else drawn(3 * max(batch_size, n_clusters))
    check_count(first, n_clusters)
    running = RunningMeans.starting_at(seeds(first, n_clusters, init, seed))
    share = min(1.0, 2 * batch_size / (len(rows) + 1))
    history: list[float] = []  # of the objective, smoothed
    least, last_fall = math.inf, -1
    for step in range(max(1, max_iter * len(rows) // batch_size)):
        objective = running.absorb(drawn(batch_size), seed)
        history.append(history[-1] + share * (objective - history[-1]) if history else objective)
        if history[-1] < least:
            least, last_fall = history[-1], step
        elif step - last_fall >= 10:
            break
    n_iter = math.ceil(len(history) * batch_size / len(rows))
    start = running.centers
    closed = lloyd(divergence, x, n_clusters, seed=seed, weights=scaled, init=start, max_iter=10, tol=0)
    return replace(closed, inertia=unit * closed.inertia, n_iter=n_iter, history=tuple(history))
