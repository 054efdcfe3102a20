"""From rows of X, which may lie in a file, to the points of a program: units, duplicates, cells, room needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from bregnet._core.chunks import CACHE, blocks
from bregnet.distributed import ALONE, Ranks
from bregnet.solver import partition
from bregnet.solver.normal import few_a_cell
from bregnet.solver.partition import Merged, row_blocks
from bregnet.solver.polish import SUBSET_SHARE

VECTOR_BYTES = 150  # of targets, weights, cells, sums and the like, a point
WORK_BYTES = 50_000_000  # tiles, compiled code and the like, whatever the size
CGROUP_FILES = (  # limit, use, and the statistics that say how much of it is a mere cache of files
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    *[tuple(f"/sys/fs/cgroup/memory/memory.{name}" for name in ("limit_in_bytes", "usage_in_bytes", "stat"))],
)


@dataclass(frozen=True)
class Standardization:
    """Affine maps to the solver's coordinates: unit-variance features and targets.

    The solver always works there, so that its step size suits data of any scale; whether the penalty acts there
    or on the original slopes is a matter of its level per feature.
    """

    center: np.ndarray
    scale: np.ndarray  # 0 where a feature does not vary
    target_center: float = 0.0
    target_scale: float = 1.0

    @classmethod
    def from_rows(
        cls, X: np.ndarray, y: np.ndarray | None = None, weights: np.ndarray | None = None
    ) -> Standardization:
        """Means and standard deviations, of rows that count by weights if these are given."""
        center, scale = _spread("X", X, weights)
        if y is None:
            return cls(center, scale)
        target_center, target_scale = _spread("y", y[:, None], weights)
        return cls(center, scale, float(target_center[0]), float(target_scale[0]) or 1.0)

    @property
    def unit(self) -> np.ndarray:
        """The scale of each feature, 1 for one that does not vary."""
        return np.where(self.scale > 0, self.scale, 1.0)

    def serves(self, fresh: Standardization) -> bool:
        """Whether data with the units `fresh` are well scaled in these, too: no feature lost, none far off."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.append(self.scale / fresh.scale, self.target_scale / fresh.target_scale)
            shift = np.append((self.center - fresh.center) / fresh.scale, 0.0)
        alike = np.append((self.scale == 0) & (fresh.scale == 0), False)
        near = (ratio > 1 / 4) & (ratio < 4) & (np.abs(shift) < 4)  # in factors, and in standard deviations
        return bool((alike | near).all())

    def refuse_below(self, least: float) -> None:
        """Raise an error for features that vary, but too little to be divided by their deviation."""
        if (self.unit < least).any():
            found = f"got {self.unit.min():g} for feature {self.unit.argmin()}"
            raise ValueError(f"X must have features whose standard deviation is 0 or at least {least:g}, {found}")

    def points(self, X: np.ndarray) -> np.ndarray:
        """Features in the solver's coordinates; 0 where a feature does not vary."""
        return np.where(self.scale > 0, (X - self.center) / self.unit, 0.0)

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Targets in the solver's coordinates."""
        return (y - self.target_center) / self.target_scale

    def original(self, pieces: np.ndarray, *, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Slopes and intercepts of pieces (K, d + 1) in the original coordinates, raised by `level`."""
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = np.where(self.scale > 0, self.target_scale * pieces[:, :-1] / self.unit, 0.0)
            intercepts = self.target_scale * pieces[:, -1] + level - slopes @ self.center
        if not (np.isfinite(slopes).all() and np.isfinite(intercepts).all()):
            found = f"deviations from {self.unit.min():.3g} in X and of {self.target_scale:.3g} in y"
            raise ValueError(f"X and y must not have units whose ratios, the slopes, overflow, got {found}")
        return slopes, intercepts


def _spread(name: str, values: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, without overflow; 0 where a column varies by rounding only."""
    n = len(values) if weights is None else weights.sum()

    def total(part: slice, rows: np.ndarray) -> np.ndarray:
        return rows.sum(0) if weights is None else weights[part] @ rows

    with np.errstate(over="ignore", invalid="ignore"):
        center = np.asarray(sum(total(part, rows) for part, rows in row_blocks(values)) / n)
        sizes = [(np.abs(rows - center).max(0), np.abs(rows).max(0)) for _, rows in row_blocks(values)]
        largest, height = np.max(sizes, axis=0)
        unit = np.where(largest > 0, largest, 1.0)
        squares = sum(total(part, np.square((rows - center) / unit)) for part, rows in row_blocks(values))
        scale = unit * np.sqrt(squares / n)
    if not (np.isfinite(center).all() and np.isfinite(scale).all()):
        raise ValueError(f"{name} must have finite means and deviations, got values up to {height.max():.3g}")
    return center, np.where(largest <= 1e-13 * height, 0.0, scale)


@dataclass(frozen=True)
class Points:
    """The distinct rows of X in the solver's coordinates, and this rank's share of them."""

    features: np.ndarray  # rows (n, d), possibly in a file and in any precision
    units: Standardization
    merged: Merged
    device: torch.device
    ranks: Ranks = ALONE

    def __len__(self) -> int:
        return len(self.merged.first)

    @property
    def share(self) -> slice:
        """The distinct points that are this rank's."""
        return self.ranks.share(len(self))

    def here(self, values: np.ndarray) -> Tensor:
        """Values (m, ...) of this rank's points."""
        return torch.as_tensor(values[self.share], device=self.device)

    @cached_property
    def weights(self) -> Tensor:
        """How many rows each of this rank's points stands for."""
        return self.here(self.merged.counts.astype(np.float64))

    def lifted(self, units: Standardization | None = None) -> Tensor:
        """The points of this rank with a trailing 1; `units` other than its own may be given."""
        units = units or self.units
        share, n_features = self.share, self.features.shape[1]
        size = share.stop - share.start
        out = torch.empty((size, n_features + 1), dtype=torch.float64)
        out[:, -1] = 1
        target = np.full(len(self.features), -1)
        target[self.merged.first[share]] = np.arange(size)
        for part, rows in row_blocks(self.features):
            places = target[part]
            kept = np.flatnonzero(places >= 0)
            out.numpy()[places[kept], :-1] = units.points(rows[kept])
        return out.to(self.device)

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Some of all distinct points, in memory."""
        rows = np.asarray(self.features[self.merged.first[numbers]], dtype=np.float64)
        return self.units.points(rows)

    def cut(self, lifted: Tensor, n_cells: int, classes: np.ndarray | None, seed: Any) -> tuple[Tensor, int]:
        """Cells of this rank's points, inside each class where classes (m,) are given, and how many there are."""
        counts = self.merged.counts.astype(np.float64)
        if len(self) <= partition.FEW_POINTS:
            every = self.at(np.arange(len(self)))
            if classes is None:
                cells = partition.kmeans_cells(every, n_cells, counts, seed)
            else:
                cells = partition.class_cells(every, classes, n_cells, counts, seed)
            agreed = self.ranks.first(torch.as_tensor(cells))
            return agreed[self.share].to(self.device), int(agreed.max()) + 1
        centers = partition.sampled_centers(self.at, classes, n_cells, counts, seed)
        centers = [self.ranks.first(torch.as_tensor(each)).numpy() for each in centers]
        mine = None if classes is None or len(centers) == 1 else classes[self.share]
        cells = _assigned(lifted[:, :-1].cpu().numpy(), mine, centers)
        n_members = torch.bincount(torch.as_tensor(cells), minlength=sum(map(len, centers)))
        used = self.ranks.sum(n_members) > 0
        number = used.cumsum(0) - 1
        return number[torch.as_tensor(cells)].to(self.device), int(used.sum())


def _assigned(points: np.ndarray, classes: np.ndarray | None, centers: list[np.ndarray]) -> np.ndarray:
    """The nearest of all centers, or of those of the point's class, counted through all classes."""
    if classes is None:
        return partition.nearest_center(points, centers[0])
    cells = np.empty(len(points), dtype=np.int64)
    firsts = np.cumsum([0, *(len(each) for each in centers)])
    for label in np.unique(classes):
        inside = np.flatnonzero(classes == label)
        for rows in blocks(len(inside), points.shape[1], budget=CACHE):
            part = inside[rows]
            cells[part] = firsts[label] + partition.nearest_center(points[part], centers[label])
    return cells


@dataclass(frozen=True)
class MemoryNeed:
    """What a fit takes at most, in bytes, beside the data themselves.

    Attributes
    ----------
    state : int
        The solver's state: numbers for every pair of a piece and a point, or for the working pairs of a regression.
    points : int
        The points in the solver's coordinates.
    other : int
        Everything else, checks of the certificate included.

    Examples
    --------
    >>> from bregnet import PBDL
    >>> need = PBDL(n_pieces=400).memory_needed(100_000, 50)
    >>> need.state
    160000000
    """

    state: int
    points: int
    other: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.state + self.points + self.other

    def __str__(self) -> str:
        return f"{readable(self.total)} ({readable(self.state)} of them its state)"


def all_pairs_need(n_points: int, n_features: int, n_pieces: int, *, fine: bool, own_piece: bool) -> MemoryNeed:
    """What a fit with a state for all pairs takes; `fine` is double precision."""
    each = 8 if fine else 4
    state = each * n_pieces * n_points
    points = (8 + each) * n_points * (n_features + 1)
    polishing = 8 * (n_pieces if own_piece else n_pieces // SUBSET_SHARE)
    size = n_features + 1
    if own_piece:
        factors = 4 * n_pieces * size
    elif few_a_cell(n_points, n_pieces, size):  # two copies of the points, another with empty places, and cells of 16
        factors = 6 * n_points * size + 32 * n_points
    else:
        factors = 4 * n_pieces * size**2
    return MemoryNeed(state, points, (VECTOR_BYTES + polishing) * n_points + 8 * factors + WORK_BYTES)


def working_pairs_need(
    n_points: int, n_features: int, n_pieces: int, n_sets: int, *, fine: bool, n_processes: int = 1
) -> MemoryNeed:
    """What a fit on working pairs, which processes share, takes of each; `fine` is double precision."""
    each, size = 8 if fine else 4, n_features + 1
    n_pairs = n_points * min(40 * n_sets, n_pieces) // n_processes  # about 40 a point (benchmarks.scale)
    keys = 80  # bytes of a pair: what it joins, also while it is sorted in, and its part in a check
    state = n_pairs * (keys + each * (4 * n_sets + n_features))  # w, R u, and the changes of these in an iteration
    points = (8 + 2 * each) * n_points * size
    n_arrays = 24  # of the size of all pieces that an iteration, or a check, has at the same time
    pieces = n_pieces * n_sets * size * (each * size + n_arrays * each)
    checks = 1500 * n_sets  # bytes a point, for multipliers and scans
    return MemoryNeed(state, points, (VECTOR_BYTES + checks) * n_points + pieces + WORK_BYTES)


def free_bytes(device: torch.device) -> int:
    """Memory that a fit could take now: of the machine, or of the container it runs in, or of a GPU."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = psutil.virtual_memory().available
    for limit, used, statistics in CGROUP_FILES:
        try:
            found = dict(line.split() for line in Path(statistics).read_text().splitlines())
            cached = int(found.get("total_inactive_file", found.get("inactive_file", 0)))
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()) + cached)
        except (OSError, ValueError):  # no such group, or no limit in it
            continue
    return free


def readable(n_bytes: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n_bytes) < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"
