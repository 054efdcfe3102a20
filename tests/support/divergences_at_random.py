"""Small random problems of learning a divergence, for the tests."""

import numpy as np
import torch

from benchmarks.peers.bregman_program import BregmanProgram
from bregnet.solver.bregman import BregmanLearning, LabelLoss, PairLoss, TripletLoss
from bregnet.solver.geometry import Geometry
from bregnet.solver.partition import kmeans_cells
from bregnet.solver.penalty import Penalty


def random_points(rng, n, d):
    """Clusters, or a grid with many equal distances; unit variance."""
    if rng.random() < 0.7:
        X = rng.standard_normal((n, d)) + 2 * rng.integers(-1, 2, (n, 1))
    else:
        X = rng.integers(0, 4, (n, d)) + 0.01 * rng.random((n, d))
    return (X - X.mean(0)) / X.std(0)


def random_supervision(seed, kind, *, n=(5, 25), d=(1, 4), cells=False):
    """The same program for HiGHS and for the library's solver."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(n[0], n[1] + 1)), int(rng.integers(d[0], d[1] + 1))
    X = random_points(rng, n, d)
    alpha = np.full(d, 10 ** rng.uniform(-3, 0))
    n_cells = int(rng.integers(2, max(3, n // 2))) if cells else n
    at = kmeans_cells(X, n_cells, np.ones(n), seed) if cells else np.arange(n)
    n_pieces = int(at.max()) + 1
    geometry = Geometry.build(torch.as_tensor(X), torch.ones(n, dtype=torch.float64), torch.as_tensor(at), n_pieces)
    pull, push, triplets, weight = np.zeros((n_pieces, n)), np.zeros((n_pieces, n)), None, 1.0
    if kind == "labels":
        supervision = _labels(rng, geometry, pull, push)
    elif kind == "pairs":
        supervision = _pairs(rng, geometry, pull, push)
    else:
        triplets = np.array([rng.permutation(n)[:3] for _ in range(int(rng.integers(1, 3 * n)))])
        weight = 1 / len(triplets)
        weights = torch.full((len(triplets),), weight, dtype=torch.float64)
        supervision = TripletLoss(geometry, torch.as_tensor(triplets), weights)
    program = BregmanProgram(X, alpha, pull, push, at if cells else None, triplets, weight)
    return program, BregmanLearning(geometry, Penalty(torch.as_tensor(alpha)), supervision)


def _labels(rng, geometry, pull, push):
    """Points that stand for up to three observations, of one class or of several."""
    n = geometry.n_points
    n_groups = int(rng.integers(2, min(n, 6) + 1))
    sizes = rng.multinomial(n - n_groups, np.ones(n_groups) / n_groups) + 1
    histograms = np.unique(rng.integers(0, 3, (n_groups, 3)) + np.eye(3)[rng.integers(0, 3, n_groups)], axis=0)
    histograms = np.concatenate([histograms, histograms[rng.integers(0, len(histograms), n_groups - len(histograms))]])
    low, high = rng.uniform(0.1, 2, 2) / n**2
    at_points = np.repeat(histograms, sizes, axis=0)
    cells = geometry.cells.numpy()
    for i in range(n):
        similar = at_points @ at_points[i]
        pull[cells[i]] += low * similar
        push[cells[i]] += high * (at_points.sum(1) * at_points[i].sum() - similar)
    return LabelLoss(geometry, torch.as_tensor(histograms), torch.as_tensor(sizes), low, high)


def _pairs(rng, geometry, pull, push):
    n = geometry.n_points
    m = int(rng.integers(2, 4 * n))
    tangents, points = rng.integers(0, n, (2, m))
    down, up = rng.random((2, m)) * (rng.random((2, m)) < 0.6) / m
    np.add.at(pull, (geometry.cells.numpy()[tangents], points), down)
    np.add.at(push, (geometry.cells.numpy()[tangents], points), up)
    return PairLoss(geometry, *(torch.as_tensor(v) for v in (tangents, points, down, up)))
