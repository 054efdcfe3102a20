import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch

from bregnet._core.chunks import at_most
from bregnet.solver import partition, points
from bregnet.solver.partition import merge_duplicates
from bregnet.solver.points import Points, Standardization, all_pairs_need, working_pairs_need
from tests.support.scale_jobs import data, model, summary

LEARNERS = pytest.mark.parametrize("learner", ["PBDL", "ConvexRegressor", "DCRegressor"])
quiet = pytest.mark.filterwarnings("ignore:.*not converged:sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def large(monkeypatch):
    """Every set is a large one, read in many blocks."""
    monkeypatch.setattr(partition, "FEW_POINTS", 50)
    with at_most(256):
        yield


def single(learner, n=300):
    """Data that single precision holds exactly."""
    X, y = data(learner, n)
    return X.astype(np.float32).astype(np.float64), y


def mapped(X, path, dtype):
    np.save(path, X.astype(dtype))
    return np.load(path, mmap_mode="r")


@quiet
@LEARNERS
@pytest.mark.usefixtures("large")
def test_rows_in_a_file_are_fitted_as_rows_in_memory(learner, tmp_path):
    X, y = single(learner)
    settings = {"n_pieces": 30, "max_iter": 60, "temperature": 0.1}
    expected = summary(model(learner, **settings).fit(X, y))
    for dtype in (np.float32, np.float64):
        assert summary(model(learner, **settings).fit(mapped(X, tmp_path / "X.npy", dtype), y)) == expected
    blocks = ((X[at : at + 77], y[at : at + 77]) for at in range(0, len(X), 77))
    assert summary(model(learner, **settings).fit_blocks(blocks)) == expected


@at_most(1 << 14)
def test_preparing_rows_in_a_file_holds_few_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(partition, "FEW_POINTS", 50)
    rng = np.random.default_rng(0)
    X = mapped(rng.standard_normal((40_000, 60)), tmp_path / "X.npy", np.float32)
    tracemalloc.start()
    try:
        units = Standardization.from_rows(X)
        there = Points(X, units, merge_duplicates(X, units.points), torch.device("cpu"))
        there.cut(there.lifted(), 20, None, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * X.nbytes  # torch's memory, where the solver's copy of the points lies, is not traced


def test_bad_blocks_are_refused():
    X, y = np.zeros((4, 2)), np.zeros(4)
    fit = model("ConvexRegressor", n_pieces=2).fit_blocks
    for nothing in ([], [(X[:0], y[:0])]):
        with pytest.raises(ValueError, match="at least one row, got none"):
            fit(nothing)
    with pytest.raises(TypeError, match="blocks must be an iterable of pairs"):
        fit(None)
    with pytest.raises(TypeError, match="y of block 1 must hold values of one kind, got dtype <U1 after int64"):
        fit([(X, [0, 1, 0, 1]), (X, list("abab"))])
    with pytest.raises(ValueError, match="blocks must have rows of numbers, got in block 0"):
        fit([([["a", "b"]] * 4, y)])
    for given in ((X + 1j, y), (pd.DataFrame({"a": X[:, 0], "b": X[:, 1] + 1j}), y), (X, y + 1j)):
        with pytest.raises(ValueError, match="Complex data not supported: blocks must hold real numbers, got dtype"):
            fit([given])
    with pytest.raises(TypeError, match=r"blocks must yield pairs \(X, y\), got ndarray as block 0"):
        fit([X])
    with pytest.raises(ValueError, match=r"shape \(n, 2\), got \(4, 3\) in block 1"):
        fit([(X, y), (np.zeros((4, 3)), y)])
    with pytest.raises(ValueError, match=r"a target for each row, got \(3,\) for \(4, 2\) in block 0"):
        fit([(X, y[:3])])
    with pytest.raises(ValueError, match="NaN"):
        fit([(np.full((4, 2), np.nan), y)])


@LEARNERS
def test_a_fit_that_needs_too_much_memory_is_refused_with_advice(learner, monkeypatch, capsys):
    X, y = data(learner, 3000)
    free = model(learner, n_pieces=100).memory_needed(3000, 4).total + 1000
    monkeypatch.setattr("bregnet.learners.start.free_bytes", lambda device: free)
    with pytest.raises(MemoryError, match=r"the fit needs .* of them its state\) for 2999 points and 2500 pieces, and"):
        model(learner, n_pieces=2500).fit(X, y)
    with pytest.raises(MemoryError, match=r"are free; n_pieces=100 needs"):
        model(learner, n_pieces=2500).fit(X, y)
    monkeypatch.setattr("bregnet.learners.start.free_bytes", lambda device: 0)
    with pytest.raises(MemoryError, match="are free; share it among more machines"):
        model(learner, n_pieces=2500).fit(X, y)


@quiet
def test_verbose_fits_say_what_they_need(capsys):
    X, y = data("ConvexRegressor", 100)
    model("ConvexRegressor", n_pieces=10, verbose=1, max_iter=30).fit(X, y)
    assert "ConvexRegressor: 99 points, 10 pieces; " in capsys.readouterr().out


@quiet
@LEARNERS
def test_the_state_that_is_announced_is_about_the_one_that_is_made(learner):
    X, y = data(learner, 600)
    fitted = model(learner, n_pieces=120, warm_start=True, tol=0.01).fit(X, y)
    state = fitted._warm.state
    made = sum(part.numel() * part.element_size() for part in vars(state).values() if isinstance(part, torch.Tensor))
    assert 0.8 * made <= fitted.memory_needed(599, 4).state + fitted.memory_needed(599, 4).points
    assert all_pairs_need(99, 4, 10, fine=True, own_piece=False).state == 8 * 99 * 10
    assert working_pairs_need(99, 4, 99, 1, fine=True).state > working_pairs_need(99, 4, 99, 1, fine=False).state


def test_free_memory_heeds_the_limit_of_a_container(tmp_path, monkeypatch):
    device = torch.device("cpu")
    limit, used, statistics = (tmp_path / name for name in ("max", "current", "stat"))
    limit.write_text("1000000")
    used.write_text("400000")
    statistics.write_text("anon 390000\ninactive_file 10000\n")
    monkeypatch.setattr(points, "CGROUP_FILES", ((limit, used, statistics),))
    assert points.free_bytes(device) == 610_000
    limit.write_text("max")
    assert points.free_bytes(device) > 10_000_000


@pytest.mark.parametrize(("n_bytes", "text"), [(12, "12 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (3e13, "30 TB")])
def test_bytes_are_readable(n_bytes, text):
    assert points.readable(n_bytes) == text


def test_names_of_columns_are_kept_and_compared():
    X, y = data("PBDL", 40)
    frames = [pd.DataFrame(part, columns=list("abcd")) for part in (X[:20], X[20:])]
    blocks = [(frames[0], y[:20]), (frames[0][:0], y[:0]), (frames[1], y[20:])]
    fitted = model("PBDL", n_pieces=10, tol=0.9).fit_blocks(blocks)
    assert list(fitted.feature_names_in_) == list("abcd")
    assert fitted.classes_.dtype.kind == "i"
    turned = frames[1][list("dcba")]
    with pytest.raises(ValueError, match=r"blocks must have the columns \('a', 'b', 'c', 'd'\) in this order"):
        model("PBDL", n_pieces=10).fit_blocks([(frames[0], y[:20]), (turned, y[20:])])


def test_memory_is_not_announced_for_wrong_pieces():
    for value in ("foo", 0):
        with pytest.raises((TypeError, ValueError), match="n_pieces"):
            model("PBDL", n_pieces=value).memory_needed(100, 3)
