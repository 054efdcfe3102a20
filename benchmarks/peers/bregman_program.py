"""Bregman divergence learning written out as a linear program for HiGHS, a general solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import linprog


@dataclass(frozen=True)
class BregmanProgram:
    """min sum_kj [P_kj s_kj + M_kj max(0, 2 - s_kj)] + sum_l alpha_l max_k |a_kl|, and triplets.

    The slack s_kj = (u_c(j) - u_k).xh_j >= 0 is the divergence of x_j from the points of cell k. A triplet
    (anchor i, positive j, negative m) adds triplet_weight * max(0, 1 + s_c(i)j - s_c(i)m).
    """

    points: np.ndarray  # (n, d)
    alpha: np.ndarray  # (d,)
    pull: np.ndarray  # P (K, n), non-negative
    push: np.ndarray  # M (K, n), non-negative
    cells: np.ndarray | None = None  # (n,) piece of every point; None: a piece per point
    triplets: np.ndarray | None = None  # (m, 3) anchor, positive, negative
    triplet_weight: float = 1.0


@dataclass(frozen=True)
class Solution:
    """What HiGHS found."""

    value: float
    pieces: np.ndarray  # (K, d + 1)


def label_weights(y: np.ndarray, balanced: bool) -> tuple[np.ndarray, np.ndarray]:
    """P and M (n, n) of labels with a piece per point, over all ordered pairs, i = j counted.

    `balanced`: similar pairs weigh 1/2 in total and dissimilar pairs 1/2; otherwise every pair weighs 1/n^2.
    """
    similar = (y[:, None] == y[None, :]).astype(float)
    different = 1 - similar
    if not balanced:
        return similar / similar.size, different / similar.size
    return similar / (2 * similar.sum()), different / (2 * max(different.sum(), 1))


def solve(program: BregmanProgram) -> Solution:
    """Solve `program`; raises where HiGHS does not report an optimum."""
    n, d = program.points.shape
    n_pieces = len(program.pull)
    cells = np.arange(n) if program.cells is None else program.cells
    triplets = np.zeros((0, 3), dtype=int) if program.triplets is None else program.triplets

    slack = _slack_rows(program.points, cells, n_pieces)
    pushed = np.flatnonzero(program.push)
    anchor, positive, negative = triplets.T
    closer = slack[cells[anchor] * n + negative] - slack[cells[anchor] * n + positive]
    slope = sparse.eye_array(n_pieces * (d + 1), format="csr")
    slope = slope[np.flatnonzero(np.arange(n_pieces * (d + 1)) % (d + 1) < d)]
    bound = sparse.csr_array(np.tile(np.eye(d), (n_pieces, 1)))
    apart, ranked = sparse.eye_array(len(pushed)), sparse.eye_array(len(triplets))

    # columns: pieces (K, d + 1), bounds L (d), hinges of the pushed pairs, hinges of the triplets
    inequality = sparse.block_array(
        [
            [-slack, None, None, None],
            [slope, -bound, None, None],
            [-slope, -bound, None, None],
            [-slack[pushed], None, -apart, None],
            [-closer, None, None, -ranked],
        ],
        format="csr",
    )
    right = np.zeros(inequality.shape[0])
    right[len(right) - len(pushed) - len(triplets) :] = np.repeat([-2.0, -1.0], [len(pushed), len(triplets)])
    cost = np.concatenate(
        [
            slack.T @ program.pull.ravel(),
            program.alpha,
            program.push.ravel()[pushed],
            np.full(len(triplets), program.triplet_weight),
        ]
    )
    lower = np.r_[np.full(n_pieces * (d + 1), -np.inf), np.zeros(len(cost) - n_pieces * (d + 1))]
    upper = np.full(len(cost), np.inf)
    lower[d] = upper[d] = 0.0  # the common constant is free: the first intercept is fixed

    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    bounds = np.column_stack([lower, upper])
    found = linprog(cost, inequality, right, bounds=bounds, method="highs", options=exact)
    if found.status != 0:
        raise RuntimeError(f"HiGHS stopped: {found.message}")
    return Solution(float(found.fun), found.x[: n_pieces * (d + 1)].reshape(n_pieces, d + 1))


def _slack_rows(points: np.ndarray, cells: np.ndarray, n_pieces: int) -> sparse.csr_array:
    """The matrix that takes the pieces, row by row, to the slacks s_kj, row by row."""
    n, d = points.shape
    piece, point = np.divmod(np.arange(n_pieces * n), n)
    lifted = np.column_stack([points, np.ones(n)])[point]  # (K n, d + 1)
    part = np.arange(d + 1)
    rows = np.repeat(np.arange(n_pieces * n), d + 1)
    own = (cells[point][:, None] * (d + 1) + part).ravel()
    other = (piece[:, None] * (d + 1) + part).ravel()
    shape = (n_pieces * n, n_pieces * (d + 1))
    values = lifted.ravel()
    return sparse.csr_array((values, (rows, own)), shape) - sparse.csr_array((values, (rows, other)), shape)
