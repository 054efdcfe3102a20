"""Small random regression problems for the tests."""

import numpy as np
import torch

from benchmarks.peers.clarabel_program import Program
from bregnet.solver.geometry import Geometry
from bregnet.solver.partition import kmeans_cells
from bregnet.solver.penalty import Penalty
from bregnet.solver.regression import LeastSquares


def random_program(seed, *, n=(20, 80), d=(1, 6), dc=False, cells=False, monotone=False):
    """A program with unit-variance data: convex, saddle-shaped or pure noise."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(n[0], n[1] + 1)), int(rng.integers(d[0], d[1] + 1))
    X = rng.standard_normal((n, d)) if rng.random() < 0.7 else rng.integers(0, 5, (n, d)) + 0.01 * rng.random((n, d))
    shape = [np.square(X).sum(1), X[:, 0] * X[:, -1] + np.abs(X).sum(1), np.zeros(n)][rng.integers(3)]
    y = shape + rng.uniform(0.05, 0.5) * (1 + shape.std()) * rng.standard_normal(n)
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    return Program(
        X,
        y,
        np.full(d, 10 ** rng.uniform(-3, 0)),
        signs=(1, -1) if dc else (1,),
        weights=rng.integers(1, 4, n).astype(float) if rng.random() < 0.3 else np.ones(n),
        cells=kmeans_cells(X, int(rng.integers(2, max(3, n // 2))), np.ones(n), seed) if cells else None,
        monotone=rng.integers(-1, 2, d).astype(float) if monotone else None,
    )


def to_problem(program):
    """The same program for the library's solver."""
    cells = None if program.cells is None else torch.as_tensor(program.cells)
    geometry = Geometry.build(
        torch.as_tensor(program.points),
        torch.as_tensor(program.weights),
        cells,
        None if cells is None else int(cells.max()) + 1,
    )
    signs = None if program.monotone is None else torch.as_tensor(program.monotone)
    penalty = Penalty(torch.as_tensor(program.alpha), signs)
    return LeastSquares(geometry, torch.as_tensor(program.targets), penalty, program.signs)
