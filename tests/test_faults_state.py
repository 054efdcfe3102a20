"""What a call leaves behind: no changed settings, no memory of a fit that failed, and the same result every time."""

from __future__ import annotations

import gc
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import bregnet
from bregnet.learners import start
from bregnet.solver.all_pairs import AllPairs
from bregnet.solver.working_pairs import WorkingPairs
from tests.support import fuzzing
from tests.support.fuzzing import LABELS, PLAIN, TARGETS, X
from tests.test_faults_threads import bits, python

RNG = np.random.default_rng(1)
ROWS = RNG.random((40, 2)) + 0.1  # as many as it takes for seeds to make a difference
GOALS = {"labels": (ROWS[:, 0] + ROWS[:, 1] > 1.2).astype(int), "targets": ROWS[:, 0] ** 2 - ROWS[:, 1]}

IMPORTED = """
import os, sys, threading
import matplotlib, numpy, psutil, scipy, sklearn, torch
import sklearn.base, torch.distributed
from pathlib import Path
sys.path.insert(0, "tests")

def around():
    import random, warnings
    return {
        "random": random.getstate(), "numpy": repr(numpy.random.get_state()), "torch": torch.get_rng_state().tolist(),
        "precision": torch.get_default_dtype(), "threads": torch.get_num_threads(), "errors": numpy.geterr(),
        "print": numpy.get_printoptions(), "environment": dict(os.environ), "warnings": list(warnings.filters),
        "plots": dict(matplotlib.rcParams), "backend": matplotlib.get_backend(auto_select=False),
        "files": psutil.Process().open_files(), "connections": psutil.Process().net_connections(),
        "folder": os.getcwd(), "threads of Python": threading.active_count(), "children": psutil.Process().children(),
        "hooks": (sys.excepthook, sys.displayhook, threading.excepthook),
    }

before = around()
import bregnet
after = around()
changed = [name for name in before if before[name] != after[name]]
assert not changed, changed
"""


def test_importing_changes_nothing_opens_nothing_and_prints_nothing() -> None:
    assert python(IMPORTED) == ""


SEEDED = {
    **{name: {} for name in fuzzing.MAKERS},
    **{f"{name} with cells": {"n_pieces": 4} for name in sorted(fuzzing.SOLVED)},
    "BregmanKMeans at random": {"init": "random", "n_init": 2},
    "BregmanKMeans in batches": {"batch_size": 5},
    "BregmanNearestNeighbors in cells": {"kind": "ivf", "n_cells": 4, "nprobe": 1},
    "BregmanMixture at random": {"init_params": "random_from_data", "n_init": 2},
}


def fitted(name: str, **parameters: Any) -> Any:
    kind = name.split(" ")[0]
    model = fuzzing.made(kind, **{**SEEDED[name], **parameters})
    return model.fit(ROWS, *(GOALS[goal] for goal in fuzzing.MAKERS[kind][1][1:]))


@pytest.fixture
def numpy_seed() -> Iterator[None]:
    state = np.random.get_state()  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", SEEDED)
@pytest.mark.usefixtures("numpy_seed")
def test_the_same_random_state_gives_the_same_fit_to_the_last_bit(name: str) -> None:
    first = fitted(name, random_state=0)
    np.random.seed(7)  # noqa: NPY002
    again = fitted(name, random_state=0)
    assert bits(first) == bits(again)
    assert any(bits(first))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["BregmanKMeans at random", "BregmanMixture at random", "ConvexRegressor with cells"])
@pytest.mark.usefixtures("numpy_seed")
def test_without_a_random_state_numpys_own_is_drawn_from_as_in_scikit_learn(name: str) -> None:
    found = []
    for number in (7, 7, 8):
        np.random.seed(number)  # noqa: NPY002
        found.append(bits(fitted(name, random_state=None)))
    assert found[0] == found[1]
    assert found[0] != found[2]


class FailedError(Exception):
    """What a callback raises."""


def failing(_: bregnet.Check) -> None:
    raise FailedError


def interrupted(_: bregnet.Check) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref]:
    """All large arrays of fits."""
    kept: list[weakref.ref] = []
    for kind in (AllPairs, WorkingPairs):
        make = kind.__init__

        def remembered(self: Any, *arguments: Any, make: Any = make, **named: Any) -> None:
            make(self, *arguments, **named)
            kept.extend([weakref.ref(self), weakref.ref(self.state.slacks), weakref.ref(self.problem.geometry.lifted)])

        monkeypatch.setattr(kind, "__init__", remembered)
    return kept


def fit_of(name: str, **parameters: Any) -> None:
    model = fuzzing.made(name.split(".")[0], **parameters)
    if name == "PBDL.fit_pairs":
        model.fit_pairs(X, PLAIN["pairs"], PLAIN["similar"])
    elif name == "PBDL.fit_triplets":
        model.fit_triplets(X, PLAIN["triplets"])
    elif name.endswith("fit_blocks"):
        model.fit_blocks([(X[:6], TARGETS[:6]), (X[6:], TARGETS[6:])])
    else:
        model.fit(X, LABELS if name == "PBDL" else TARGETS)


@pytest.mark.parametrize(
    ("name", "callback"),
    [
        ("PBDL", failing),
        ("PBDL", interrupted),
        ("PBDL.fit_pairs", failing),
        ("PBDL.fit_triplets", interrupted),
        ("ConvexRegressor", failing),
        ("ConvexRegressor", interrupted),
        ("DCRegressor.fit_blocks", failing),
        ("DCRegressor.fit_blocks", interrupted),
    ],
)
def test_a_fit_that_fails_keeps_neither_memory_nor_files(name: str, callback: Any, states: list[weakref.ref]) -> None:
    n_files = psutil.Process().num_fds()
    with pytest.raises((FailedError, KeyboardInterrupt)):
        fit_of(name, callback=callback)
    gc.collect()
    assert states
    assert [state for state in states if state() is not None] == []
    assert psutil.Process().num_fds() == n_files


def test_a_fit_without_room_is_refused_before_it_takes_any(
    states: list[weakref.ref], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "free_bytes", lambda device: 1000)
    with pytest.raises(MemoryError, match=r"needs .* 1,?0?0?0? ?k?B.* free; share it among more machines"):
        fit_of("ConvexRegressor")
    gc.collect()
    assert [state for state in states if state() is not None] == []


def test_blocks_that_fail_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield X, TARGETS
        raise FailedError

    n_files = psutil.Process().num_fds()
    with pytest.raises(FailedError):
        fuzzing.made("ConvexRegressor").fit_blocks(blocks())
    assert psutil.Process().num_fds() == n_files
    assert list(tmp_path.iterdir()) == []


WIDER = np.column_stack([X, X[:, 0]])


@pytest.mark.parametrize("name", fuzzing.MAKERS)
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(name: str) -> None:
    model, goals = fuzzing.fitted(name), [PLAIN[kind] for kind in fuzzing.MAKERS[name][1][1:]]
    before, attributes = bits(model), set(vars(model))
    model.set_params(device="nowhere")
    with pytest.raises(ValueError, match="device must be one of"):
        model.fit(WIDER, *goals)
    model.set_params(device="cpu")
    assert bits(model) == before
    assert set(vars(model)) == attributes
    assert model.n_features_in_ == 2
    if hasattr(model, "predict"):
        assert len(model.predict(fuzzing.Q)) == len(fuzzing.Q)


@pytest.mark.parametrize("name", fuzzing.MAKERS)
def test_a_first_fit_that_fails_leaves_the_estimator_unfitted(name: str) -> None:
    model, goals = fuzzing.made(name, device="nowhere"), [PLAIN[kind] for kind in fuzzing.MAKERS[name][1][1:]]
    with pytest.raises(ValueError, match="device must be one of"):
        model.fit(X, *goals)
    assert vars(model) == vars(fuzzing.made(name, device="nowhere"))
    with pytest.raises(NotFittedError):
        check_is_fitted(model)


@pytest.mark.parametrize("name", ["PBDL", "ConvexRegressor", "DCRegressor"])
def test_an_interrupted_fit_leaves_the_one_before_and_another_can_follow(name: str) -> None:
    goal = LABELS if name == "PBDL" else TARGETS
    model = fuzzing.made(name, warm_start=True).fit(X, goal)
    before = bits(model)
    model.set_params(callback=interrupted, alpha=0.02)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, goal)
    assert bits(model) == before
    model.set_params(callback=None)
    cold = fuzzing.made(name, warm_start=True, alpha=0.02).fit(X, goal)
    assert bits(model.fit(X, goal)) == bits(cold)  # what the warm start would have gone on from was lost


def test_more_rows_that_fail_are_forgotten() -> None:
    model = fuzzing.made("ConvexRegressor").partial_fit(X[:6], TARGETS[:6])
    before = bits(model)
    model.set_params(callback=failing)
    with pytest.raises(FailedError):
        model.partial_fit(X[6:], TARGETS[6:])
    assert bits(model) == before
    with pytest.raises(ValueError, match="X has 3 features, but ConvexRegressor is expecting 2"):
        model.partial_fit(WIDER, TARGETS)
    model.set_params(callback=None).partial_fit(X[6:9], TARGETS[6:9])
    assert len(model._seen.targets) == 9
