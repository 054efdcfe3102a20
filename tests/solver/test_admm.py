from copy import deepcopy
from itertools import pairwise

import numpy as np
import pytest
import torch

from benchmarks.peers import clarabel_program
from bregnet.solver import working_pairs
from bregnet.solver.admm import Options
from bregnet.solver.geometry import Geometry
from bregnet.solver.penalty import Penalty
from bregnet.solver.regression import LeastSquares
from bregnet.solver.solve import solve
from bregnet.solver.working_pairs import WorkingPairs
from tests.support import paper
from tests.support.regression_at_random import random_program, to_problem
from tests.support.selecting import some_slow

KINDS = [{}, {"monotone": True}, {"dc": True}]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind) or "convex")
@pytest.mark.parametrize("seed", some_slow(range(8), always=(0, 3, 4, 5)))
def test_objectives_agree_with_clarabel(kind, seed):
    program = random_program(seed + 1000, **kind)
    optimum = clarabel_program.solve(program).value
    result = solve(to_problem(program), Options(tol=5e-5, max_iter=40_000)).result
    assert result.converged, result.status
    assert result.objective == pytest.approx(optimum, rel=1e-4)
    assert result.dual_bound == pytest.approx(optimum, rel=1e-4)


@pytest.mark.parametrize("dc", [False, True])
@pytest.mark.parametrize("seed", some_slow(range(6), always=(1, 3, 4)))
def test_cells_agree_with_clarabel(seed, dc):
    """The certified program is the one with fixed cells; the returned maximum may be a little better."""
    program = random_program(seed + 2000, cells=True, dc=dc)
    optimum = clarabel_program.solve(program).value
    solution = solve(to_problem(program), Options(tol=5e-5, max_iter=40_000))
    assert solution.result.converged, solution.result.status
    assert solution.result.objective <= optimum * (1 + 1e-4)
    assert solution.result.dual_bound <= optimum * (1 + 1e-7)


@pytest.mark.parametrize("alpha", some_slow((0.05, 0.3), always=(0.3,)))
def test_objectives_agree_with_the_papers_algorithms(alpha):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((18, 2))
    y = np.square(X).sum(1) + 0.3 * rng.standard_normal(18)
    X, y = X - X.mean(0), y - y.mean()
    level = np.full(2, alpha)
    theirs = paper.objective([paper.convex_regression(X, y, 0.02, alpha, 8000)], X, y, alpha)
    ours = solve(
        to_problem(clarabel_program.Program(X, y, level, weights=np.ones(18))), Options(tol=1e-5, max_iter=20_000)
    )
    assert ours.result.objective == pytest.approx(theirs, rel=1e-4)
    theirs = paper.objective(paper.dc_regression(X, y, 0.02, alpha, 8000), X, y, alpha, (1, -1))
    program = clarabel_program.Program(X, y, level, signs=(1, -1), weights=np.ones(18))
    ours = solve(to_problem(program), Options(tol=1e-5, max_iter=20_000))
    assert ours.result.objective == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("n_steps", [30, 100, 400])
def test_theorem_two_bounds_the_averaged_iterates(n_steps):
    n, d = 20, 2
    rng = np.random.default_rng(3)
    X = rng.uniform(-0.9, 0.9, (n, d))
    X -= X.mean(0)
    y = np.abs(X).sum(1) + 0.1 * rng.standard_normal(n)
    y = (y - y.mean()) / y.std()
    assert np.abs(X).max() <= 1
    lam = 1.2 * 3 / np.sqrt(2 * n * d)
    assert n_steps >= n * np.sqrt(d)
    pieces = paper.convex_regression(X, y, np.sqrt(d) * lam**2 / n, lam, n_steps, average=True)
    lifted = np.column_stack([X, np.ones(n)])
    value = np.mean(((lifted @ pieces.T).max(1) - y) ** 2) + lam * np.abs(pieces[:, :-1]).max(0).sum()
    optimum = clarabel_program.solve(clarabel_program.Program(X, y, np.full(d, lam))).value
    assert optimum - 1e-9 <= value <= optimum + 6 * n * np.sqrt(d) / (n_steps + 1)


def test_one_dimensional_fit_agrees_with_an_independent_program():
    """In one dimension convexity is that chord slopes increase, and the penalty is the larger end slope."""
    import clarabel
    from scipy import sparse

    rng = np.random.default_rng(0)
    n, alpha = 40, 0.05
    x = np.sort(rng.standard_normal(n))
    y = np.abs(x) + 0.2 * rng.standard_normal(n)
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    chord = np.zeros((n - 1, n + 1))
    for i in range(n - 1):
        chord[i, i], chord[i, i + 1] = -1 / (x[i + 1] - x[i]), 1 / (x[i + 1] - x[i])
    level = np.zeros(n + 1)
    level[-1] = 1
    rows = np.vstack([chord[:-1] - chord[1:], chord[[0, -1]] - level, -chord[[0, -1]] - level])
    quadratic = sparse.diags(np.r_[np.full(n, 2 / n), 0.0], format="csc")
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solver = clarabel.DefaultSolver(
        quadratic,
        np.r_[-2 * y / n, alpha],
        sparse.csc_matrix(rows),
        np.zeros(len(rows)),
        [clarabel.NonnegativeConeT(len(rows))],
        settings,
    )
    optimum = solver.solve().obj_val + np.mean(y**2)
    geometry = Geometry.build(torch.as_tensor(x[:, None]), torch.ones(n, dtype=torch.float64))
    problem = LeastSquares(geometry, torch.as_tensor(y), Penalty(torch.tensor([alpha], dtype=torch.float64)), (1,))
    result = solve(problem, Options(tol=5e-5, max_iter=20_000)).result
    assert result.objective == pytest.approx(optimum, rel=1e-4)


def test_the_history_is_the_certificate_over_time():
    problem = to_problem(random_program(1))
    seen = []
    result = solve(problem, Options(tol=1e-3, max_iter=5000, monitor=lambda check, _: seen.append(check))).result
    assert tuple(seen) == result.history
    assert [c.iteration for c in seen] == sorted({c.iteration for c in seen})
    assert result.objective == pytest.approx(seen[-1].objective, rel=1e-9)
    assert result.dual_bound == seen[-1].dual_bound
    assert all(a.objective >= b.objective and a.dual_bound <= b.dual_bound for a, b in pairwise(seen))
    assert result.status.startswith(
        f"converged: certified gap {100 * result.gap:.2g}% after {result.n_iter} iterations"
    )


def test_a_monitor_sees_the_best_pieces_and_can_stop_the_fit():
    problem = to_problem(random_program(1))
    seen = []

    def monitor(check, pieces):
        seen.append((check, problem.primal(pieces)[0]))
        return check.iteration >= 75

    solution = solve(problem, Options(tol=1e-12, monitor=monitor))
    assert solution.result.n_iter == seen[-1][0].iteration < 100
    assert solution.result.stopped
    assert solution.result.status.startswith("stopped early")
    for check, objective in seen:
        assert objective <= check.objective * (1 + 1e-9)


def test_bounds_are_not_tightened_before_they_are_wanted(monkeypatch):
    problem = to_problem(random_program(2, n=(30, 31)))
    asked = []
    monkeypatch.setattr(working_pairs, "repair", lambda operator, signs, point, *_: asked.append(1) or point)
    for start, expected in ((0, True), (np.inf, False)):
        asked.clear()
        solve(problem, Options(tol=5e-3, max_iter=300, tight_from=start))
        assert bool(asked) == expected


def test_non_finite_values_are_noticed():
    problem = to_problem(random_program(2))
    iteration = working_pairs.WorkingPairs(problem, Options())
    iteration.state.slopes[0, 0, 0] = torch.nan
    with pytest.raises(FloatingPointError, match="non-finite values after 5 iterations"):
        solve(problem, Options(), iteration=iteration)
    problem.targets[0] = torch.nan
    with pytest.raises(FloatingPointError, match="non-finite values before the first iteration"):
        solve(problem, Options())


def test_going_on_from_a_state_equals_not_stopping():
    program = random_program(4, n=(40, 40))
    whole = solve(to_problem(program), Options(tol=1e-12, max_iter=120))
    second = solve(to_problem(program), Options(tol=1e-12, max_iter=5), start=deepcopy(whole.state))
    assert second.result.gap <= 1.5 * whole.result.gap  # one check away, and not at the beginning
    iterations = [WorkingPairs(to_problem(program), Options(tol=1e-12)) for _ in range(2)]
    iterations[0].run(30)
    iterations[1].run(12)
    again = WorkingPairs(to_problem(program), Options(tol=1e-12), iterations[1].state)
    again.run(18)
    torch.testing.assert_close(again.state.pieces, iterations[0].state.pieces, rtol=1e-12, atol=1e-12)


def test_another_step_size_or_precision_goes_on_to_the_same_optimum():
    program = random_program(6, n=(30, 30))
    optimum = clarabel_program.solve(program).value
    problem = to_problem(program)
    coarse = solve(problem, Options(tol=0.01, max_iter=2000))
    assert coarse.state.slacks.dtype == torch.float32
    rho = coarse.state.rho
    fine = solve(problem, Options(tol=1e-4, max_iter=20_000, rho=3 * rho), start=coarse.state)
    assert fine.state.slacks.dtype == torch.float64
    assert fine.state.rho == pytest.approx(3 * rho)
    assert fine.result.objective == pytest.approx(optimum, rel=2e-4)
