"""Points assigned to the nearest of some centers: a search for the largest inner product with k tangent planes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bregnet._core.chunks import CACHE, rows_at_once
from bregnet._core.parallel import shared, shares
from bregnet.clustering.centered_points import CenteredPoints, inverse_power_of_two

# Work of a thread at least, some 0.1 ms. Two threads took 1.3 times as long as one with 0.4 of it each, as long with
# 0.7, and 0.8 times with 1.5.
SHARE = 1 << 23


class Assignment:
    """The nearest center c of each point x by D(x, c), and sums of the points of each center.

    Between centers with the same tangent plane, as on one piece of a max-affine function, the squared Euclidean
    distance decides. Means minimize that too, so the objective of k-means still decreases.

    On a CPU the products are made in single precision. Centers that rounding cannot tell apart are compared again in
    double precision, and so are all divergences, so that the answer is that of double precision.

    Parameters
    ----------
    points : CenteredPoints
    centers : Tensor of shape (k, d)

    Attributes
    ----------
    labels : Tensor of shape (n,)
        Number of the nearest center.
    gaps : Tensor of shape (n,), double precision
        D(x, c).
    objective : float
        Their weighted sum, in units of the weights.
    n_changed : int
        How many labels changed when the centers moved last.
    counts : Tensor of shape (k,), double precision
        Weight of the points of each center.
    """

    def __init__(self, points: CenteredPoints, centers: Tensor) -> None:
        self.points = points
        self.labels = torch.zeros(len(points), dtype=torch.int64, device=centers.device)
        self.gaps = torch.zeros(len(points), dtype=torch.float64, device=centers.device)
        self.move(centers)

    def move(self, centers: Tensor) -> None:
        """Assign the points to other centers."""
        points = self.points
        slopes, below = points.tangents(centers)
        steepness = torch.linalg.vector_norm(slopes, dim=1, dtype=torch.float64).max().item()
        repeated, suspects = _may_repeat(slopes), self._suspects(steepness)
        before = self.labels.clone() if repeated or len(suspects) else self.labels
        self._find_highest(slopes, below, steepness)
        if repeated:
            self._separate(centers, slopes)
        recovered = len(suspects) > 0 and self._recover(suspects, centers, slopes, below)
        if repeated or recovered:
            self.n_changed = int((self.labels != before).sum())
            self.counts, self._sums = points.counts(self.labels, len(centers)), points.sums(self.labels, len(centers))
            self.objective = points.weighted(self.gaps).sum().item()
        points.finite(self.objective)

    def means(self, centers: Tensor) -> Tensor:
        """Weighted means of the points of each center, (k, d), after :func:`fill_empty`."""
        if not self.counts.all():
            return self.points.means(fill_empty(self.points, self.labels, self.gaps, len(centers)), centers)
        return self.points.generator._interior((self._sums / self.counts[:, None]).to(centers.dtype))

    def _find_highest(self, slopes: Tensor, below: Tensor, steepness: float) -> None:
        """Set all attributes by the highest tangent plane at each point; the longest slope has length `steepness`."""
        if slopes.device.type == "cpu":
            self._find_compiled(slopes, below, steepness)
        else:
            self._find_by_torch(slopes, below)

    def _find_by_torch(self, slopes: Tensor, below: Tensor) -> None:
        points, n_centers = self.points, len(slopes)
        before = self.labels.clone()
        for rows, block in points.heights(slopes, below):
            highest, self.labels[rows] = block.max(1)
            self.gaps[rows] = (points.values[rows] - highest).clamp_min_(0).double()
        self.n_changed = int((self.labels != before).sum())
        self.counts, self._sums = points.counts(self.labels, n_centers), points.sums(self.labels, n_centers)
        self.objective = points.weighted(self.gaps).sum().item()

    def _find_compiled(self, slopes: Tensor, below: Tensor, steepness: float) -> None:
        from bregnet.clustering.compiled_assignment import assign_all  # numba is slow to import

        tiles, of_points, origin, scale = self.points.tiles
        planes = origin, slopes.double().numpy(), below.double().numpy()
        scales = scale, inverse_power_of_two(steepness)
        given = tiles, scales, steepness, planes, of_points, self.labels.numpy(), self.gaps.numpy()
        n_centers, n_features = slopes.shape
        of_tile = tiles.shape[2] * (n_features + 12) * (n_centers + 12)  # 12 for what takes as long with few of them
        parts = list(shares(len(tiles), torch.get_num_threads(), least=-(-SHARE // of_tile)))
        found = shared(lambda part: assign_all(part.start, part.stop, *given), parts)
        sums, counts, totals, changed = zip(*found, strict=True)
        self._sums, self.counts = torch.from_numpy(sum(sums)), torch.from_numpy(sum(counts))
        self.objective, self.n_changed = sum(totals), sum(changed)

    def _suspects(self, steepness: float) -> Tensor:
        """Numbers of points x where some product slope . (x - o) is so large that rounding may decide, (m,)."""
        least = math.sqrt(torch.finfo(self.points.x.dtype).eps) * steepness
        if not self.points.generator._stable or least <= self.points.least_rise:
            return self.labels[:0]
        return (self.points.rises < least).nonzero()[:, 0]

    def _recover(self, suspects: Tensor, centers: Tensor, slopes: Tensor, below: Tensor) -> bool:
        """Compute D(x, c) directly where that is so; returns whether it was anywhere."""
        points, recovered = self.points, False
        eps = torch.finfo(points.x.dtype).eps
        steepness = torch.linalg.vector_norm(slopes, dim=1, dtype=torch.float64)  # (k,)
        for rows in suspects.split(rows_at_once(max(centers.shape), budget=CACHE)):
            errors = eps * points.reach[rows, None] * steepness  # (rows, k)
            least = math.sqrt(eps) * points.values[rows, None].double()
            rough = points.values[rows, None] - torch.addmm(-below, points.shifted[rows], slopes.T)
            may_win = rough - errors <= (rough + errors).amin(1, keepdim=True)
            lost = rows[((errors > least) & may_win).any(1)]
            if len(lost):
                exact = torch.stack([points.from_one(points.x[lost], center) for center in centers], dim=1)
                gaps, self.labels[lost] = exact.min(1)
                self.gaps[lost] = gaps.double()
                recovered = True
        return recovered

    def _separate(self, centers: Tensor, slopes: Tensor) -> None:
        """Among centers that share a slope, assign points by squared Euclidean distance."""
        _, plane = torch.unique(slopes, dim=0, return_inverse=True)
        sizes = torch.bincount(plane)
        of_points = plane[self.labels]
        order = torch.argsort(of_points, stable=True)
        rows_of = order.split(torch.bincount(of_points, minlength=len(sizes)).tolist())
        shifted = centers - self.points.origin
        for number in (sizes > 1).nonzero()[:, 0].tolist():
            rows, group = rows_of[number], (plane == number).nonzero()[:, 0]
            half_norms = shifted[group].square().sum(1) / 2
            near = torch.addmm(-half_norms, self.points.shifted[rows], shifted[group].T)
            self.labels[rows] = group[near.argmax(1)]


def _may_repeat(rows: Tensor) -> bool:
    """False where no two rows are equal, by sums of their bits, which are exact."""
    bits = rows.contiguous().view(torch.int64 if rows.dtype == torch.float64 else torch.int32).sum(1)
    return len(set(bits.tolist())) < len(rows)


def fill_empty(points: CenteredPoints, labels: Tensor, gaps: Tensor, n_clusters: int) -> Tensor:
    """Labels after each empty cluster was given the point of the largest weighted divergence.

    A point is moved only where others stay in its cluster and its divergence is more than rounding, so that the
    objective decreases.
    """
    sizes = points.counts(labels, n_clusters)
    empty = (sizes == 0).nonzero()[:, 0].tolist()
    if not empty:
        return labels
    labels = labels.clone()
    counted = None if points.weights is None else (points.weights > 0).double()
    members = torch.bincount(labels, counted, minlength=n_clusters)
    costs = points.weighted(torch.where(gaps > points.rounding, gaps, 0.0))
    for cluster in empty:
        costs[members[labels] < 2] = 0
        farthest = int(costs.argmax())
        if costs[farthest] <= 0:
            break
        members[labels[farthest]] -= 1
        labels[farthest], costs[farthest] = cluster, 0
    return labels
