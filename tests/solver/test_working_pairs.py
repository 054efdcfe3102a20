"""ADMM on working pairs: one iteration in three ways, and what happens between iterations."""

import os
import subprocess
import sys
import warnings
from copy import deepcopy

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from benchmarks.peers import clarabel_program
from bregnet import ConvexRegressor, DCRegressor
from bregnet.distributed import ALONE
from bregnet.solver import pairs as pairs_module
from bregnet.solver import working_pairs
from bregnet.solver.admm import Certified, Options
from bregnet.solver.pairs import CompiledPairs, TorchPairs
from bregnet.solver.preconditioner import BlockPreconditioner, CompiledPreconditioner
from bregnet.solver.solve import solve
from bregnet.solver.working_pairs import WorkingPairs
from tests.support.regression_at_random import random_program, to_problem
from tests.support.selecting import some_slow

KINDS = [{}, {"monotone": True}, {"dc": True}, {"cells": True}, {"dc": True, "cells": True}]
NAMED = {"ids": lambda kind: "-".join(kind) or "convex"}
REGRESSORS = pytest.mark.parametrize("regressor", [ConvexRegressor, DCRegressor])


def iterated(problem, kind, n_steps, dtype=torch.float64, *, by_steps=False):
    work = WorkingPairs(problem, Options(), operator=kind(problem.geometry, dtype, ALONE))
    if by_steps:
        for _ in range(n_steps):
            work.step()
    else:
        work.run(n_steps)
    assert work.n_iter == n_steps
    return work


@pytest.mark.parametrize("kind", KINDS, **NAMED)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_all_passes_make_the_same_iterates(kind, n_threads, monkeypatch):
    """Whole iterations compiled, on one thread or on a team, compiled sums on several threads, and torch."""
    problem = to_problem(random_program(31, n=(60, 60), d=(3, 3), **kind))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    whole = iterated(problem, CompiledPairs, 40).state
    monkeypatch.setattr(pairs_module, "SERIAL_WORK", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    by_team = iterated(problem, CompiledPairs, 40)
    assert len(by_team.operator.team[1]) == n_threads
    sums = iterated(problem, CompiledPairs, 40, by_steps=True).state
    torchs = iterated(problem, TorchPairs, 40).state
    for other in (by_team.state, sums, torchs):
        torch.testing.assert_close(other.pieces, whole.pieces, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(other.slacks, whole.slacks, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(other.slopes, whole.slopes, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slacks_that_follow_the_pieces_stay_those_of_the_pieces(dtype):
    """They are summed up from the changes, and not computed anew from check to check."""
    problem = to_problem(random_program(35, n=(200, 200), d=(3, 3), dc=True))
    work = iterated(problem, CompiledPairs, 600, dtype)
    size = float(work.state.pieces.abs().max())
    lost = (work._slacks_now - work._slacks_of_pieces()).abs().max()
    assert 0 < lost <= 1000 * torch.finfo(dtype).eps * size


def test_scans_follow_each_other_while_many_pairs_join():
    problem = to_problem(random_program(37, n=(60, 60), d=(2, 2), dc=True))
    work = WorkingPairs(problem, Options())
    n_pairs = len(work.state.keys)
    assert work._waiting_for(n_pairs) == working_pairs.WAITING
    waits = [work._waiting_for(n_joined) for n_joined in range(n_pairs + 1)]
    assert waits[0] > working_pairs.WAITING
    assert (np.diff(waits) <= 0).all()


def test_the_balance_changes_at_first_and_then_where_iterations_have_doubled():
    problem = to_problem(random_program(39, n=(60, 60), d=(2, 2), dc=True))
    work, changes = WorkingPairs(problem, Options()), []
    for iteration in range(20, 400, 10):
        work.n_iter, before = iteration, work.state.balance
        work._choose_steps(100.0 if len(changes) % 2 else 0.01)
        changes += [iteration] * (work.state.balance != before)
    assert changes == [20, 30, 40, 80, 160, 320]


@pytest.mark.parametrize("cells", [False, True])
def test_linear_functions_take_one_step_in_the_sum_of_two_piece_sets(cells):
    """R u is 0 for them, so that their images are known, and the preconditioner finds them at once."""
    problem = to_problem(random_program(40, n=(80, 80), d=(4, 4), dc=True, cells=cells))
    work = iterated(problem, CompiledPairs, 5)
    block, rng = work._block, np.random.default_rng(0)
    slopes = torch.as_tensor(rng.standard_normal(4), dtype=block.kappa.dtype)
    centers = work.operator.centers - work.operator.centers.mean(0)
    pieces = torch.cat([(centers.to(slopes.dtype) @ slopes)[:, None], slopes.expand(len(centers), 4)], dim=1)
    image = block._image(0, pieces)
    torch.testing.assert_close(image[:, 0], torch.zeros_like(image[:, 0]), rtol=0, atol=1e-5)
    added = block._preconditioned(0, image) - block.preconditioner.apply(0, image)
    torch.testing.assert_close(added, pieces, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS, **NAMED)
def test_the_fit_is_the_same_on_torch(kind):
    problem = to_problem(random_program(33, n=(50, 50), d=(2, 3), **kind))
    options = Options(tol=1e-3, max_iter=4000)
    work = WorkingPairs(problem, options, operator=TorchPairs(problem.geometry, torch.float64, ALONE))
    ours, torchs = solve(problem, options).result, solve(problem, options, iteration=work).result
    assert torchs.converged
    assert ours.objective == pytest.approx(torchs.objective, rel=2e-3)


def optimum_of(program):
    """Clarabel's optimum, and how well it is known: a few programs are not solved to the last digits."""
    for tolerance, known in ((1e-8, 1e-7), (1e-6, 1e-5)):
        try:
            return clarabel_program.solve(program, tolerance=tolerance).value, known
        except RuntimeError:
            continue
    raise AssertionError("Clarabel fails")


@pytest.mark.parametrize("kind", KINDS, **NAMED)
@pytest.mark.parametrize("block", some_slow(range(20), always=(0,)))
def test_bound_optimum_and_objective_are_in_order(kind, block):
    """1000 random programs in all, at the default tolerance and a fine one."""
    for seed in range(10 * block, 10 * block + 10):
        program = random_program(5000 + seed, n=(20, 60), d=(1, 6), **kind)
        optimum, known = optimum_of(program)
        for tol in (1e-2, 1e-4):
            result = solve(to_problem(program), Options(tol=tol, max_iter=5000)).result
            assert result.dual_bound <= optimum * (1 + known) + 1e-9
            assert kind.get("cells") or result.objective >= optimum * (1 - known) - 1e-9


def test_pairs_that_are_violated_join_and_nothing_else_changes():
    problem = to_problem(random_program(35, n=(80, 80), d=(2, 2)))
    work = iterated(problem, CompiledPairs, 5)
    before = deepcopy(work.state)
    work.certify(Certified(1.0, work.state.pieces, 0.0))
    after = work.state
    assert len(after.keys) > len(before.keys)
    old = torch.isin(after.keys, before.keys)
    assert old.sum() == len(before.keys)
    new_slacks = work.operator.slacks(after.pieces[0])[~old]
    torch.testing.assert_close(after.slacks[0, ~old], -new_slacks.clamp_min(0))
    if after.rho == before.rho:
        assert torch.equal(after.slacks[:, old], before.slacks)


def test_another_step_size_keeps_slacks_and_multipliers():
    problem = to_problem(random_program(36, n=(40, 40), d=(2, 3), dc=True))
    work = iterated(problem, CompiledPairs, 30)

    def looks():
        state = work.state
        clipped = work._clipped_slopes()
        nu = state.rho * state.kappa * (state.slopes - clipped)
        return state.rho * state.slacks.clamp_min(0), (-state.slacks).clamp_min(0), clipped, nu

    before = looks()
    work._rescale(3.7 * work.state.rho, 0.4 * work.state.kappa)
    for old, new in zip(before, looks(), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [{}, {"dc": True, "cells": True}], **NAMED)
def test_a_snapshot_goes_on_to_the_last_bit(kind):
    problem = to_problem(random_program(37, n=(60, 60), d=(3, 3), **kind))
    work = WorkingPairs(problem, Options())
    best = Certified(1.0, work.state.pieces, 0.0)
    for n_steps in (5, 5, 7):
        work.run(n_steps)
        work.certify(best)
    values, tensors = deepcopy(work.snapshot())
    other = WorkingPairs(problem, Options())
    other.restore(values, tensors)
    other.n_iter = work.n_iter
    for each in (work, other):
        each.run(4)
        each.certify(best)
        each.run(4)
    assert torch.equal(work.state.keys, other.state.keys)
    assert torch.equal(work.state.pieces, other.state.pieces)
    assert torch.equal(work.state.slacks, other.state.slacks)


@pytest.mark.parametrize("kind", KINDS, **NAMED)
@pytest.mark.parametrize("d", [3, 14])
def test_iterates_are_the_same_wherever_arrays_lie_in_memory(kind, d):
    """Compiled loops once chose by addresses whether to add up side by side, which rounds in another way."""
    problem = to_problem(random_program(43, n=(50, 50), d=(d, d), **kind))
    found, apart = [], []
    for shift in range(12):
        found.append(iterated(problem, CompiledPairs, 8, torch.float32).state.pieces)
        apart.append(np.empty(1000 + 7 * shift, dtype=np.float32))  # the next arrays lie elsewhere
    assert all(torch.equal(pieces, found[0]) for pieces in found)


def test_preconditioners_follow_the_pairs():
    problem = to_problem(random_program(38, n=(80, 80), d=(2, 2), dc=True))
    work = iterated(problem, CompiledPairs, 5)
    for _ in range(4):
        work.certify(Certified(1.0, work.state.pieces, 0.0))
        work.run(4)
    followed = work._block.preconditioner.arrays[1].copy()
    work._prepare()
    np.testing.assert_array_equal(followed, work._block.preconditioner.arrays[1])


@pytest.mark.parametrize("kind", KINDS, **NAMED)
@pytest.mark.parametrize(("d", "some_by_pairs"), [(3, False), (140, True)])
def test_both_preconditioners_are_inverses_of_the_same_blocks(kind, d, some_by_pairs):
    """By blocks, and where there are many features some pieces by their pairs, others by blocks."""
    problem = to_problem(random_program(41, n=(50, 50), d=(d, d), **kind))
    work = iterated(problem, CompiledPairs, 20)
    given = work.operator, problem.n_sets, work.state.kappa, work._block.strength.double()
    by_blocks, compiled = BlockPreconditioner(*given), CompiledPreconditioner(*given)
    by_pairs = compiled.arrays[3]
    assert (by_pairs.any() and not by_pairs.all()) == (some_by_pairs and not kind.get("cells", False))
    residual = torch.randn(problem.geometry.n_pieces, d + 1, dtype=torch.float64)
    for mode in range(problem.n_sets):
        torch.testing.assert_close(
            by_blocks.apply(mode, residual), compiled.apply(mode, residual), rtol=1e-6, atol=1e-8
        )


def test_few_pairs_of_many_features_make_the_same_iterates():
    problem = to_problem(random_program(42, n=(60, 60), d=(300, 300), dc=True))
    work = iterated(problem, CompiledPairs, 5)
    assert work._block.preconditioner.arrays[3].all()
    steps = iterated(problem, CompiledPairs, 5, by_steps=True)
    torch.testing.assert_close(work.state.pieces, steps.state.pieces, rtol=1e-8, atol=1e-8)


def test_pairs_without_a_multiplier_leave():
    problem = to_problem(random_program(39, n=(80, 80), d=(2, 2), dc=True))
    work = iterated(problem, CompiledPairs, 200)
    state = work.state
    idle = (state.slacks < 0).all(0)
    assert 0 < idle.sum() < len(idle)
    carrying = state.keys[~idle]
    for _ in range(working_pairs.IDLE_CHECKS):
        work._exchange(state.keys[:0])
    assert torch.equal(state.keys, carrying)
    assert (state.slacks >= 0).any(0).all()


@pytest.mark.parametrize("violated", [[], [3, 17]])
def test_pairs_that_are_exchanged_keep_their_state(violated):
    problem = to_problem(random_program(40, n=(80, 80), d=(2, 2), dc=True))
    work = iterated(problem, CompiledPairs, 50)
    before = deepcopy(work.state)
    work.state.idle[::3] = working_pairs.IDLE_CHECKS - 1
    work._exchange(torch.tensor(violated, dtype=torch.int64))
    after = work.state
    kept = torch.isin(before.keys, after.keys)
    assert 0.6 < kept.double().mean() < 1
    assert torch.equal(after.slacks[:, torch.isin(after.keys, before.keys)], before.slacks[:, kept])
    assert set(violated) <= set(after.keys.tolist())


# --- what data may be like -----------------------------------------------------------------------------------------


@REGRESSORS
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_units_do_not_matter(regressor, scale):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.abs(X).sum(1) + 0.1 * rng.standard_normal(60)
    plain = regressor(tol=1e-3).fit(X, y)
    scaled = regressor(tol=1e-3).fit(scale * X, scale * y)
    np.testing.assert_allclose(scaled.predict(scale * X), scale * plain.predict(X), rtol=1e-2, atol=1e-2 * scale)


@pytest.mark.parametrize("seed", [26, *range(12)])
def test_a_handful_of_points_converges(seed):
    rng = np.random.default_rng(seed)
    n, d = rng.integers(3, 7), rng.integers(2, 6)
    assert ConvexRegressor(1e-3, max_iter=1000).fit(rng.standard_normal((n, d)), rng.standard_normal(n)).gap_ <= 0.01


def test_the_last_pair_may_be_level_in_a_feature():
    """Its slopes were all but free then, and the gap stayed at 76%."""
    X = np.array(
        [[-0.0994, -1.5807, 1.0252, -2.1882], [-0.4661, 0.6325, 0.2678, 0.1476], [2.4298, -1.5816, -2.3644, 1.45]]
    )
    model = ConvexRegressor(0.00125, monotone=[1, 1, -1, -1], max_iter=200).fit(X, [-0.9107, 0.6002, -2.0903])
    assert model.gap_ <= 0.01


@REGRESSORS
def test_two_points(regressor):
    model = regressor(1e-3, tol=1e-4).fit([[0.0], [2.0]], [1.0, 3.0])
    np.testing.assert_allclose(model.predict([[0.0], [2.0]]), [1.0, 3.0], atol=0.01)


@REGRESSORS
def test_a_thousand_copies_of_one_point(regressor):
    y = np.random.default_rng(0).standard_normal(1000)
    model = regressor().fit(np.ones((1000, 3)), y)
    assert model.gap_ == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(model.predict(np.ones((1, 3))), y.mean())


@REGRESSORS
def test_one_point_among_a_thousand_copies(regressor):
    X = np.r_[np.zeros((999, 1)), np.ones((1, 1))]
    y = np.r_[np.zeros(999), 1.0]
    model = regressor(1e-6, tol=1e-3, standardize=False).fit(X, y)
    assert model.result_.converged
    np.testing.assert_allclose(model.predict([[0.0], [1.0]]), [0.0, 1.0], atol=0.05)


@pytest.mark.parametrize("alpha", [1e-5, 1e-4])
def test_the_bound_does_not_lag_behind_for_small_penalties(alpha):
    """Before masses were closed along short paths and block 1 was solved well enough, 2000 steps left over 20%."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (150, 3))
    y = np.abs(X[:, 0]) - np.abs(X[:, 1]) + np.sin(3 * X[:, 2]) + 0.1 * rng.standard_normal(150)
    model = DCRegressor(alpha, max_iter=3000).fit(X, y)
    assert model.gap_ < 0.05


@REGRESSORS
def test_a_tiny_penalty_does_not_stop_single_precision(regressor):
    """The data term, large beside everything else, made the preconditioner singular."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = regressor(1e-10).fit([[0.0], [1.0]], [0.0, 1.0])
    np.testing.assert_allclose(model.predict([[0.0], [1.0]]), [0.0, 1.0], atol=1e-3)


@REGRESSORS
def test_a_warm_path_of_penalties_takes_no_more_iterations_than_fits_from_rest(regressor):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    y = np.abs(X[:, 0]) - np.abs(X[:, 1]) + 0.1 * rng.standard_normal(120)
    path = (0.1, 0.03, 0.01, 0.003)
    warm = regressor(warm_start=True)
    iterations = [warm.set_params(alpha=alpha).fit(X, y).n_iter_ for alpha in path]
    assert sum(iterations[1:]) <= sum(regressor(alpha).fit(X, y).n_iter_ for alpha in path[1:])


@REGRESSORS
def test_a_warm_start_from_a_tiny_penalty_recovers(regressor):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.abs(X).sum(1) + 0.1 * rng.standard_normal(60)
    model = regressor(1e-8, warm_start=True, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert model.set_params(alpha=1e-2, max_iter=2000).fit(X, y).result_.converged


def test_only_pieces_that_are_the_largest_somewhere_are_returned():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 2))
    y = np.abs(X).sum(1) + 0.1 * rng.standard_normal(150)
    model = ConvexRegressor(standardize=False, tol=1e-3).fit(X, y)
    values = X @ model.function_.slopes.T + model.function_.intercepts
    assert set(values.argmax(1)) == set(range(model.function_.n_pieces))
    assert model.function_.n_pieces < 150
    objective = np.mean((values.max(1) - y) ** 2) + 0.01 * np.abs(model.function_.slopes).max(0).sum()
    assert objective <= model.result_.objective * (1 + 1e-9)


@pytest.mark.slow
def test_functions_from_the_cache_round_as_those_just_compiled(tmp_path):
    fit = (
        "import numpy; from bregnet import ConvexRegressor; rng = numpy.random.default_rng(0);"
        "X = rng.standard_normal((50, 3)); y = (X**2).sum(1) + rng.standard_normal(50);"
        "print(ConvexRegressor(alpha=0.01, n_pieces=5, random_state=0).fit(X, y).predict(X).tobytes().hex())"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", fit]
    runs = [subprocess.run(command, env=environment, capture_output=True, check=True).stdout for _ in range(2)]
    assert len(runs[0]) > 50
    assert runs[0] == runs[1]
