"""The regression programs written out for Clarabel, a general interior-point solver."""

from __future__ import annotations

from dataclasses import dataclass

import clarabel
import numpy as np
from scipy import sparse


@dataclass(frozen=True)
class Program:
    """min (1/sum w) sum_j w_j (sum_q sign_q u^q_c(j).xh_j - y_j)^2 + sum_q sum_l alpha_l L^q_l.

    Subject to u^q_k.xh_j <= u^q_c(j).xh_j for all k, j and |a^q_kl| <= L^q_l; `monotone` fixes signs of slopes.
    """

    points: np.ndarray
    targets: np.ndarray
    alpha: np.ndarray
    signs: tuple[int, ...] = (1,)
    weights: np.ndarray | None = None
    cells: np.ndarray | None = None
    monotone: np.ndarray | None = None


@dataclass(frozen=True)
class Optimum:
    """What Clarabel found."""

    value: float
    pieces: np.ndarray  # (Q, K, d + 1)
    seconds: float
    iterations: int


def solve(program: Program, *, tolerance: float = 1e-8, max_iter: int = 200) -> Optimum:
    """Solve `program`; raises where Clarabel does not report success."""
    points, targets = program.points, program.targets
    n, d = points.shape
    cells = np.arange(n) if program.cells is None else program.cells
    weights = np.ones(n) if program.weights is None else program.weights
    n_pieces, n_sets, size = int(cells.max()) + 1, len(program.signs), d + 1
    lifted = np.column_stack([points, np.ones(n)])

    # columns: pieces (Q, K, d + 1), bounds L (Q, d), residuals (n)
    n_piece_columns = n_sets * n_pieces * size
    first_residual = n_piece_columns + n_sets * d
    n_columns = first_residual + n

    def piece_column(q: int, k: np.ndarray, part: int) -> np.ndarray:
        return (q * n_pieces + k) * size + part

    def block(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, n_rows: int) -> sparse.csc_matrix:
        return sparse.csc_matrix((values, (rows, columns)), shape=(n_rows, n_columns))

    index = np.arange(n)
    residual = block(index, first_residual + index, np.ones(n), n)
    for q, sign in enumerate(program.signs):
        for part in range(size):
            residual -= sign * block(index, piece_column(q, cells, part), lifted[:, part], n)

    below = []
    k, j = np.divmod(np.arange(n_pieces * n), n)
    k, j = k[k != cells[j]], j[k != cells[j]]
    pair = np.arange(len(k))
    level = np.arange(n_pieces * d)
    piece, feature = np.divmod(level, d)
    for q in range(n_sets):
        rows = sum(
            block(pair, piece_column(q, k, part), lifted[j, part], len(k))
            - block(pair, piece_column(q, cells[j], part), lifted[j, part], len(k))
            for part in range(size)
        )
        below.append(rows)
        slope = block(level, (q * n_pieces + piece) * size + feature, np.ones(len(level)), len(level))
        bound = block(level, n_piece_columns + q * d + feature, np.ones(len(level)), len(level))
        below += [slope - bound, -slope - bound]
        if program.monotone is not None:
            forced = program.monotone[feature] != 0
            below.append(sparse.csc_matrix(-sparse.diags(program.monotone[feature]) @ slope)[forced])
    inequality = sparse.vstack(below, format="csc")

    quadratic = sparse.diags(np.r_[np.zeros(first_residual), 2 * weights / weights.sum()], format="csc")
    linear = np.r_[np.zeros(n_piece_columns), np.tile(program.alpha, n_sets), np.zeros(n)]
    matrix = sparse.vstack([residual, inequality], format="csc")
    right = np.r_[-targets, np.zeros(inequality.shape[0])]
    cones = [clarabel.ZeroConeT(n), clarabel.NonnegativeConeT(inequality.shape[0])]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = max_iter
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    solution = clarabel.DefaultSolver(quadratic, linear, matrix, right, cones, settings).solve()
    if str(solution.status) != "Solved":
        raise RuntimeError(f"Clarabel stopped with {solution.status}")
    x = np.asarray(solution.x)
    pieces = x[:n_piece_columns].reshape(n_sets, n_pieces, size)
    return Optimum(float(solution.obj_val), pieces, float(solution.solve_time), int(solution.iterations))
