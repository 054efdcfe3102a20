"""The peers of Bregman divergence learning against each other and against answers worked out by hand."""

import numpy as np
import pytest
import torch

from benchmarks.peers.bregman_program import BregmanProgram, label_weights, solve
from benchmarks.peers.paper import PaperBregman
from tests.support import paper


def labelled(seed, n, d, n_classes):
    X = np.random.default_rng(seed).uniform(-1.5, 1.5, size=(n, d))
    X -= X.mean(0)
    height = X[:, 0] ** 2 + X[:, 1]
    return X, np.digitize(height, np.quantile(height, np.arange(1, n_classes) / n_classes))


def value_of(program, pieces):
    """The program's objective written with dense arrays; infinite where the pieces are not feasible."""
    n = len(program.points)
    cells = np.arange(n) if program.cells is None else program.cells
    values = pieces @ np.column_stack([program.points, np.ones(n)]).T  # (K, n)
    s = values[cells, np.arange(n)] - values
    if s.min() < -1e-7:
        return np.inf
    triplets = [] if program.triplets is None else program.triplets
    ranking = sum(max(0, 1 + s[cells[i], j] - s[cells[i], k]) for i, j, k in triplets)
    loss = np.sum(program.pull * s + program.push * np.maximum(0, 2 - s)) + program.triplet_weight * ranking
    return loss + program.alpha @ np.abs(pieces[:, :-1]).max(0)


@pytest.mark.parametrize("balanced", [False, True])
def test_weights_of_labels_are_over_ordered_pairs(balanced):
    y = np.array([0, 0, 0, 1])
    pull, push = label_weights(y, balanced)
    assert (pull > 0).sum() == 10
    assert (push > 0).sum() == 6
    assert not np.any((pull > 0) & (push > 0))
    assert (pull.sum(), push.sum()) == pytest.approx((0.5, 0.5) if balanced else (10 / 16, 6 / 16))


@pytest.mark.parametrize(("alpha", "value", "slope"), [(0.3, 0.3, 1.0), (1.5, 1.0, 0.0)])
def test_two_points_of_two_classes(alpha, value, slope):
    # D(x1, x2) + D(x2, x1) = 2 (a2 - a1) <= 4 L, and each of the two counts up to 2 at weight 1/4:
    # 1 - L + alpha L for L <= 1, so L = 1 where alpha < 1 and L = 0 where it is more
    program = BregmanProgram(np.array([[-1.0], [1.0]]), np.array([alpha]), *label_weights(np.array([0, 1]), False))
    solution = solve(program)
    assert solution.value == pytest.approx(value)
    assert solution.pieces[:, 0] == pytest.approx([-slope, slope])


@pytest.mark.parametrize("cells", [None, np.array([0, 0, 1])])
def test_a_triplet_on_a_line(cells):
    # anchor 0, positive -1, negative 2: D(2, 0) = 4 L with a kink at 0 of slopes -L and L, so 4 L = 1 is enough.
    # The pull on D(0, 2) costs nothing then, and would if the tangent point were the other one
    n_pieces = 3 if cells is None else 2
    pull = np.zeros((n_pieces, 3))
    pull[-1, 0] = 1.0
    points = np.array([[0.0], [-1.0], [2.0]])
    triplets = np.array([[0, 1, 2]])
    program = BregmanProgram(points, np.array([0.2]), pull, np.zeros_like(pull), cells, triplets, triplet_weight=1.0)
    assert solve(program).value == pytest.approx(0.2 / 4)


@pytest.mark.parametrize("seed", range(4))
def test_no_feasible_pieces_do_better_than_highs(seed):
    rng = np.random.default_rng(seed)
    n, d, n_pieces = 20, 2, 5
    X, centers = rng.normal(size=(n, d)), rng.normal(size=(n_pieces, d))
    tangents = np.column_stack([2 * centers, -(centers**2).sum(1)])  # of |x|^2: cells are the nearest centers
    cells = (tangents @ np.column_stack([X, np.ones(n)]).T).argmax(0)
    pull, push = rng.exponential(size=(2, n_pieces, n)) * (rng.random((2, n_pieces, n)) < 0.3)
    triplets = rng.integers(n, size=(30, 3))
    program = BregmanProgram(X, np.full(d, 5.0), pull, push, cells, triplets, triplet_weight=0.7)

    solution = solve(program)
    assert value_of(program, solution.pieces) == pytest.approx(solution.value)
    n_feasible = 0
    for step in np.geomspace(1e-4, 1, 400):
        other = rng.exponential(2) * tangents + rng.normal(scale=0.3, size=tangents.shape)
        value = value_of(program, (1 - step) * solution.pieces + step * other)
        assert value >= solution.value - 1e-6
        n_feasible += np.isfinite(value)
    assert n_feasible > 20


@pytest.mark.parametrize(
    ("seed", "n", "d", "n_classes", "lam", "n_steps"),
    [(1, 20, 3, 2, 0.05, 4000), (4, 15, 3, 2, 0.02, 4000), (3, 20, 2, 3, 0.05, 8000)],
)
def test_the_papers_algorithm_solves_the_linear_program(seed, n, d, n_classes, lam, n_steps):
    X, y = labelled(seed, n, d, n_classes)
    pull, push = label_weights(y, False)
    solution = solve(BregmanProgram(X, np.full(d, lam), pull, push))
    assert paper.bregman_objective(solution.pieces, X, pull, push, lam) == pytest.approx(solution.value, rel=1e-6)

    pieces = paper.bregman_learning(X, y, 0.03, lam, n_steps)
    value = paper.bregman_objective(pieces, X, pull, push, lam)
    assert solution.value * (1 - 1e-6) <= value <= solution.value * (1 + 1e-3)


def test_both_transcriptions_take_the_same_steps():
    X, y = labelled(0, 18, 3, 3)
    algorithm = PaperBregman(torch.from_numpy(X), torch.from_numpy(y), rho=0.03, lam=0.05)
    for n_steps in range(1, 41):
        pieces = algorithm.step().numpy()
        np.testing.assert_allclose(pieces, paper.bregman_learning(X, y, 0.03, 0.05, n_steps), rtol=0, atol=1e-10)
