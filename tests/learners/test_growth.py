import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch

from bregnet import PBDL, ConvexRegressor, DCRegressor
from bregnet.learners import base
from bregnet.solver.growth import known_places
from bregnet.solver.solve import solve
from tests.support.scale_jobs import data
from tests.support.selecting import some_slow

quiet = pytest.mark.filterwarnings("ignore:.*not converged:sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("n_pieces", some_slow([None, 20], always=[20]))
@pytest.mark.parametrize(
    ("learner", "kind"), [(ConvexRegressor, "ConvexRegressor"), (DCRegressor, "DCRegressor"), (PBDL, "PBDL")]
)
def test_more_rows_lead_to_the_optimum_of_all(learner, kind, n_pieces):
    X, y = data(kind, 90)
    settings = {"alpha": 0.05, "n_pieces": n_pieces, "tol": 0.02, "random_state": 0}
    grown = learner(**settings)
    for part in np.array_split(np.arange(len(X)), 3):
        grown.partial_fit(X[part], y[part])
    cold = learner(**settings).fit(X, y)
    if n_pieces is None:  # the same program but for units: each optimum is within the other's bounds, nearly
        assert grown.result_.objective >= 0.9 * cold.result_.dual_bound
        assert grown.result_.dual_bound <= 1.1 * cold.result_.objective
    else:
        assert grown.result_.objective <= 1.25 * cold.result_.objective
    assert grown.result_.converged


@quiet
@pytest.mark.parametrize("n_pieces", [None, 8])
def test_the_state_of_known_rows_is_kept(n_pieces, monkeypatch):
    X, y = data("ConvexRegressor", 60)
    model = ConvexRegressor(1e-2, n_pieces=n_pieces, max_iter=30, random_state=0).partial_fit(X[:50], y[:50])
    before, state = model._warm.geometry, deepcopy(model._warm.state)
    starts = []

    def spied(problem, options, *, start, writer):
        starts.append((problem.geometry, deepcopy(start)))
        return solve(problem, options, start=start, writer=writer)

    monkeypatch.setattr(base, "solve", spied)
    model.partial_fit(X[50:], y[50:])
    ((geometry, start),) = starts
    place = known_places(before.lifted, geometry.lifted)
    known = torch.nonzero(place >= 0).squeeze(1)
    assert len(known) == before.n_points
    rows = known if n_pieces is None else torch.arange(geometry.n_pieces)
    from_rows = place[known] if n_pieces is None else rows
    torch.testing.assert_close(start.slopes[:, rows], state.slopes[:, from_rows], rtol=0, atol=0)
    assert geometry.cells[known].tolist() == (
        known.tolist() if n_pieces is None else before.cells[place[known]].tolist()
    )
    # every pair that both points had before is there, with what belongs to it
    n, n_old = geometry.n_points, before.n_points
    pieces, points = start.keys // n, start.keys % n
    old_pieces = place[pieces] if n_pieces is None else pieces
    was = (old_pieces >= 0) & (place[points] >= 0)
    old_keys = old_pieces * n_old + place[points]
    was &= torch.isin(old_keys, state.keys)
    assert was.sum() == len(state.keys)
    at = torch.searchsorted(state.keys, old_keys[was])
    torch.testing.assert_close(start.slacks[:, was], state.slacks[:, at], rtol=0, atol=0)
    assert (start.slacks[:, ~was] <= 0).all()  # no multiplier yet
    assert len(torch.unique(points[~was])) >= 10


@quiet
def test_known_rows_count_again_and_classes_may_come_late():
    X, y = data("PBDL", 80)
    model = PBDL(n_pieces=12, max_iter=50, random_state=0)
    early = y < 2
    model.partial_fit(X[early], y[early])
    assert list(model.classes_) == [0, 1]
    model.partial_fit(X, y)
    assert list(model.classes_) == [0, 1, 2]
    counts = model._warm.geometry.weights
    assert counts.sum() == early.sum() + len(X)


@quiet
def test_rows_survive_pickling_and_fit_begins_anew():
    X, y = data("ConvexRegressor", 60)
    model = ConvexRegressor(n_pieces=8, max_iter=30, random_state=0).partial_fit(X[:30], y[:30])
    again = pickle.loads(pickle.dumps(model)).partial_fit(X[30:], y[30:])
    assert again._warm.geometry.weights.sum() == 60
    again.fit(X[:20], y[:20])
    again.partial_fit(X[20:30], y[20:30])
    assert again._warm.geometry.weights.sum() == 10


@quiet
def test_a_failed_call_leaves_what_was_there():
    X, y = data("ConvexRegressor", 60)
    model = ConvexRegressor(n_pieces=8, max_iter=30, random_state=0).partial_fit(X[:30], y[:30])
    before = model.predict(X)
    with pytest.raises(ValueError, match="4 features"):
        model.partial_fit(X[:, :3], y)
    model.set_params(alpha=-1)
    with pytest.raises(ValueError, match="alpha"):
        model.partial_fit(X[30:], y[30:])
    np.testing.assert_array_equal(model.predict(X), before)
    model.set_params(alpha=0.01).partial_fit(X[30:50], y[30:50])
    assert model._warm.geometry.weights.sum() == 50


@quiet
def test_pieces_give_way_to_cells_when_points_are_many(monkeypatch):
    X, y = data("ConvexRegressor", 60)
    monkeypatch.setattr(ConvexRegressor, "_own_piece_points", 40)
    monkeypatch.setattr(ConvexRegressor, "_auto_cells", 15)
    model = ConvexRegressor(max_iter=30, random_state=0).partial_fit(X[:30], y[:30])
    assert model._warm.geometry.own_piece
    model.partial_fit(X[30:], y[30:])
    assert model._warm.geometry.n_pieces <= 15
    assert np.isfinite(model.predict(X)).all()


def test_new_points_go_to_cells_of_their_class():
    X = np.array([[0.0], [0.1], [1.0], [1.1], [5.0], [5.1], [6.0], [6.1]])
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    model = PBDL(n_pieces=4, tol=0.9, random_state=0).partial_fit(X, y)
    before = model._warm.geometry
    new, labels = np.array([[0.3], [5.5], [2.0], [5.7]]), np.array([0, 1, 1, 2])
    model.partial_fit(new, labels)
    after = model._warm.geometry
    place = known_places(before.lifted, after.lifted)
    of_class = {0: set(), 1: set()}
    for cell, point in zip(before.cells.tolist(), before.points[:, 0].tolist(), strict=True):
        of_class[int(point > 0)].add(cell)
    units = model._seen.units
    for cell, point, known in zip(after.cells.tolist(), after.points, place.tolist(), strict=True):
        if known < 0:
            value = float(point[0] * units.scale[0] + units.center[0])
            if value != pytest.approx(5.7):  # its class has no cell yet: the nearest will do
                assert cell in of_class[0 if value < 1 else 1]


@quiet
def test_features_that_vary_late_and_data_that_drift_are_fitted_anew():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2))
    y = (X**2).sum(1)
    one = ConvexRegressor(1e-3).partial_fit(X[:1], y[:1]).partial_fit(X[1:], y[1:])
    assert one.score(X, y) > 0.99
    late = X.copy()
    late[:50, 1] = 0
    target = (late**2).sum(1)
    model = ConvexRegressor(1e-3).partial_fit(late[:50], target[:50])
    assert model.feature_bounds_[1] == 0
    assert model.partial_fit(late[50:], target[50:]).score(late, target) > 0.99
    drifted = X * np.where(np.arange(120) < 40, 1e-3, 1.0)[:, None]
    target = (drifted**2).sum(1)
    model = ConvexRegressor(1e-3).partial_fit(drifted[:40], target[:40]).partial_fit(drifted[40:], target[40:])
    assert model.score(drifted, target) > 0.98


@quiet
def test_another_number_of_pieces_begins_anew():
    X, y = data("ConvexRegressor", 80)
    model = ConvexRegressor(n_pieces=5, max_iter=30, random_state=0).partial_fit(X[:40], y[:40])
    model.set_params(n_pieces=20).partial_fit(X[40:], y[40:])
    assert model._warm.geometry.n_pieces > 15


def test_labels_of_another_kind_are_refused():
    X, y = data("PBDL", 40)
    model = PBDL(n_pieces=8, tol=0.9, random_state=0).partial_fit(X, y)
    with pytest.raises(TypeError, match="y must hold values of one kind, got dtype <U1 after int64"):
        model.partial_fit(X, y.astype(str).astype("<U1"))
