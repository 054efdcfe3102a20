import os
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bregnet.solver import partition
from bregnet.solver import points as _preparing
from bregnet.solver import storage as _storage
from bregnet.solver.partition import merge_duplicates
from bregnet.solver.points import Points, Standardisation, memory_need
from bregnet.solver.storage import Scratch
from tests.scale_jobs import data, model, summary

LEARNERS = pytest.mark.parametrize("learner", ["PBDL", "ConvexRegressor", "DCRegressor"])
quiet = pytest.mark.filterwarnings("ignore:.*not converged:sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def large(monkeypatch):
    """Every set is a large one, read in many blocks."""
    monkeypatch.setattr(partition, "FEW_POINTS", 50)
    monkeypatch.setattr(partition, "BLOCK_ELEMENTS", 256)


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
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert summary(model(learner, scratch=scratch, **settings).fit(X, y)) == expected
    assert summary(model(learner, scratch=scratch, **settings).fit_blocks([(X, y)])) == expected
    assert list(scratch.iterdir()) == []


def test_neither_points_nor_state_of_a_fit_in_files_are_in_memory(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 3))
    units = Standardisation.of(X)
    device = torch.device("cpu")
    points = Points(X, units, merge_duplicates(X), device, storage=Scratch(tmp_path))
    lifted = points.lifted()
    np.testing.assert_array_equal(lifted[:, :-1], units.points(X)[points.merged.first])
    mapped_names = Path("/proc/self/maps").read_text()
    assert str(tmp_path) in mapped_names
    assert Scratch(tmp_path, state_in_memory=True).state((2, 3), torch.float32, device).untyped_storage().nbytes() == 24


@pytest.mark.usefixtures("large")
def test_preparing_rows_in_a_file_holds_few_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(partition, "BLOCK_ELEMENTS", 1 << 14)
    monkeypatch.setattr(partition, "NEAREST_ELEMENTS", 1 << 14)
    rng = np.random.default_rng(0)
    X = mapped(rng.standard_normal((40_000, 60)), tmp_path / "X.npy", np.float32)
    tracemalloc.start()
    try:
        units = Standardisation.of(X)
        points = Points(X, units, merge_duplicates(X, units.points), torch.device("cpu"), storage=Scratch(tmp_path))
        points.cut(points.lifted(), 20, None, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * X.nbytes


def test_bad_blocks_are_told():
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
    with pytest.raises(TypeError, match="scratch must be a path, got 123"):
        model("ConvexRegressor", n_pieces=2, scratch=123).fit_blocks([(X, y)])
    with pytest.raises(TypeError, match=r"blocks must yield pairs \(X, y\), got ndarray as block 0"):
        fit([X])
    with pytest.raises(ValueError, match=r"shape \(n, 2\), got \(4, 3\) in block 1"):
        fit([(X, y), (np.zeros((4, 3)), y)])
    with pytest.raises(ValueError, match=r"a target for each row, got \(3,\) for \(4, 2\) in block 0"):
        fit([(X, y[:3])])
    with pytest.raises(ValueError, match="NaN"):
        fit([(np.full((4, 2), np.nan), y)])
    with pytest.raises(FileNotFoundError, match="scratch must be a folder that exists, got '/no/such'"):
        model("ConvexRegressor", n_pieces=2, scratch="/no/such").fit_blocks([(X, y)])


@LEARNERS
def test_scratch_must_be_a_folder(learner, tmp_path):
    X, y = data(learner, 30)
    with pytest.raises(FileNotFoundError, match="scratch must be a folder that exists"):
        model(learner, n_pieces=5, scratch=tmp_path / "none").fit(X, y)
    with pytest.raises(TypeError, match="scratch must be a path, got 3"):
        model(learner, n_pieces=5, scratch=3).fit(X, y)


def test_a_full_disk_is_told_before_the_fit(tmp_path, monkeypatch):
    def full(descriptor, n_bytes):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_storage, "_reserve", full)
    X, y = data("ConvexRegressor", 30)
    with pytest.raises(OSError, match="scratch must have room for 1,160 bytes, got No space left on device"):
        model("ConvexRegressor", n_pieces=5, scratch=tmp_path).fit(X, y)
    assert os.listdir(tmp_path) == []


@LEARNERS
def test_a_fit_that_needs_too_much_memory_is_refused_with_advice(learner, monkeypatch, capsys):
    X, y = data(learner, 3000)
    free = model(learner, n_pieces=100).memory_needed(3000, 4).total + 1000
    monkeypatch.setattr("bregnet._estimator.free_bytes", lambda device: free)
    with pytest.raises(MemoryError, match=r"the fit needs .* of them its state\) for 2999 points and 2500 pieces, and"):
        model(learner, n_pieces=2500).fit(X, y)
    with pytest.raises(MemoryError, match=r"give a folder as scratch, or n_pieces=100, which needs"):
        model(learner, n_pieces=2500).fit(X, y)
    monkeypatch.setattr("bregnet._estimator.free_bytes", lambda device: 0)
    with pytest.raises(MemoryError, match="give a folder as scratch, or share the points among more machines"):
        model(learner, n_pieces=2500).fit(X, y)


@quiet
def test_verbose_fits_say_what_they_need(capsys):
    X, y = data("ConvexRegressor", 100)
    model("ConvexRegressor", n_pieces=10, verbose=1, max_iter=30).fit(X, y)
    assert "ConvexRegressor: 99 points, 10 pieces; " in capsys.readouterr().out


@quiet
def test_the_state_that_is_announced_is_the_one_that_is_made():
    X, y = data("DCRegressor", 100)
    fitted = model("DCRegressor", n_pieces=10, warm_start=True).fit(X, y)
    made = sum(w.numel() * w.element_size() for w in fitted._warm.state.slacks)
    n_pieces = fitted._warm.geometry.n_pieces
    assert fitted.set_params(n_pieces=n_pieces).memory_needed(99, 4).state == made
    assert memory_need(99, 4, n_pieces, 2, fine=True, own_piece=False, extra=0).state == 2 * made


def test_free_memory_heeds_the_limit_of_a_container(tmp_path, monkeypatch):
    device = torch.device("cpu")
    limit, used, statistics = (tmp_path / name for name in ("max", "current", "stat"))
    limit.write_text("1000000")
    used.write_text("400000")
    statistics.write_text("anon 390000\ninactive_file 10000\n")
    monkeypatch.setattr(_preparing, "CGROUP_FILES", ((limit, used, statistics),))
    assert _preparing.free_bytes(device) == 610_000
    limit.write_text("max")
    assert _preparing.free_bytes(device) > 10_000_000


@pytest.mark.parametrize(("n_bytes", "text"), [(12, "12 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (3e13, "30 TB")])
def test_bytes_are_readable(n_bytes, text):
    assert _preparing.readable(n_bytes) == text


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
