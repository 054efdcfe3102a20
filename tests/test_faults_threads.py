"""Threads and forked processes: answers are those of one thread alone, and nobody waits forever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bregnet import BregmanDivergence, BregmanIndex, MaxAffine, SquaredEuclidean
from tests.support import fuzzing

N_THREADS = 8
RNG = np.random.default_rng(0)
ITEMS, QUERIES = RNG.random((300, 3)) + 0.1, RNG.random((70, 3)) + 0.1
SLOPES, INTERCEPTS = RNG.standard_normal((12, 3)), RNG.standard_normal(12)
SHARP, SOFT = MaxAffine(SLOPES, INTERCEPTS), MaxAffine(SLOPES, INTERCEPTS, temperature=0.1)
INDEXES: dict[str, dict[str, Any]] = {
    "exact": {"divergence": "kl"},
    "left": {"divergence": SOFT, "side": "left"},
    "cells": {"divergence": "kl", "kind": "ivf", "random_state": 0, "nprobe": 3},
    "pieces": {"divergence": SHARP},
}


def index_of(items: np.ndarray, kind: str) -> BregmanIndex:
    index = BregmanIndex(**INDEXES[kind])
    index.add(items)
    return index


def used(make: Callable[[], Any], use: Callable[[Any], Any]) -> Callable[[], Callable[[], Any]]:
    """Makes something that was never used, and returns its use."""
    return lambda: partial(use, make())


def of_estimator(name: str, use: Callable[[Any], Any]) -> Callable[[], Callable[[], Any]]:
    return used(lambda: fuzzing.fitted(name), use)


WORK = {
    **{
        f"search-{kind}": used(partial(index_of, ITEMS, kind), lambda index: index.search(QUERIES, 5))
        for kind in INDEXES
    },
    **{
        f"radius-{kind}": used(partial(index_of, ITEMS, kind), lambda index: index.search_radius(QUERIES[:8], 0.2))
        for kind in INDEXES
    },
    "pairwise": used(lambda: BregmanDivergence(SOFT + SquaredEuclidean()), lambda D: D.pairwise(ITEMS, QUERIES)),
    "ConvexRegressor": of_estimator("ConvexRegressor", lambda model: model.predict(fuzzing.X)),
    "DCRegressor": of_estimator("DCRegressor", lambda model: model.predict(fuzzing.X)),
    "PBDL": of_estimator("PBDL", lambda model: model.pair_distance(fuzzing.X, fuzzing.X[::-1])),
    "classifier": of_estimator("BregmanKNeighborsClassifier", lambda model: model.predict_proba(fuzzing.Q)),
    "kneighbors": of_estimator("BregmanNearestNeighbors", lambda model: model.kneighbors(fuzzing.Q)),
    "ranker": of_estimator("BregmanRanker", lambda model: model.rank(fuzzing.Q)),
    "k-means": of_estimator("BregmanKMeans", lambda model: model.transform(fuzzing.Q)),
    "mixture": of_estimator("BregmanMixture", lambda model: model.predict_proba(fuzzing.Q)),
}


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """All calls in threads of their own, which start together."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        barrier.wait(60)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [task.result(120) for task in [pool.submit(run, call) for call in calls]]


def bits(result: Any) -> list[bytes]:
    return [numbers.tobytes() for numbers in fuzzing.numbers_in(result)]


@pytest.mark.parametrize("name", WORK)
def test_threads_that_start_together_get_the_answer_of_one_alone(name: str) -> None:
    alone = bits(WORK[name]()())
    assert any(alone)
    used = WORK[name]()  # what is made at the first use is made by several threads at once
    for answer in at_once([used] * N_THREADS):
        assert bits(answer) == alone


@pytest.mark.parametrize("kind", INDEXES)
def test_searches_while_items_are_added_and_removed_see_all_items_of_some_moment(kind: str) -> None:
    """Each answer is that of the items before or after a change, never of half of it."""
    steps = [ITEMS[:100], ITEMS[100:200], ITEMS[200:]]
    index, moment = index_of(steps[0], kind), index_of(steps[0], kind)
    expected = [bits(moment.search(QUERIES, 3))]
    assert bits(index.search(QUERIES, 3)) == expected[0]  # cells are those of the items of the first search
    for step in steps[1:]:
        moment.add(step)
        expected.append(bits(moment.search(QUERIES, 3)))
    moment.remove(np.arange(50))
    expected.append(bits(moment.search(QUERIES, 3)))

    def change() -> list[Any]:
        for step in steps[1:]:
            index.add(step)
            index.search(QUERIES[:1], 1)
        index.remove(np.arange(50))
        return []

    def look() -> list[Any]:
        return [index.search(QUERIES, 3) for _ in range(6)]

    answers = [answer for found in at_once([change, *[look] * (N_THREADS - 1)]) for answer in found]
    assert len(answers) == 6 * (N_THREADS - 1)
    assert all(bits(answer) in expected for answer in answers)
    assert bits(index.search(QUERIES, 3)) == expected[-1]


FORKED = """
import multiprocessing, sys
import faiss, joblib, torch
from tests.test_faults_threads import WORK, bits
from bregnet import ConvexRegressor
from tests.support.fuzzing import X, TARGETS

torch.set_num_threads(2)
faiss.omp_set_num_threads(2)
def fit():
    return ConvexRegressor(0.1, n_pieces=4, tol=0.9, max_iter=20, random_state=0).fit(X, TARGETS).predict(X)

names = ["search-exact", "search-cells", "search-pieces", "radius-cells", "pairwise", "k-means"]
used = [WORK[name]() for name in names] + [fit]
expected = [bits(work()) for work in used]  # with threads, which a fork does not copy
torch.sort(torch.rand(1 << 20))

def work(number):
    assert torch.get_num_threads() == 1
    return bits(used[number]())

with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map_async(work, range(len(used))).get(60) == expected
with joblib.parallel_config("multiprocessing", n_jobs=2):
    assert joblib.Parallel(timeout=60)(joblib.delayed(work)(number) for number in range(len(used))) == expected
assert torch.get_num_threads() == 2 and faiss.omp_get_max_threads() == 2
print("done")
"""


def python(code: str, **environment: str) -> str:
    """What a process of its own prints; it must end soon, and well, and say nothing else."""
    root = str(Path(__file__).parent.parent)
    finished = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    return finished.stdout


def test_children_of_a_process_that_has_used_threads_do_not_wait_for_them() -> None:
    assert python(FORKED, OMP_NUM_THREADS="2") == "done\n"


@pytest.mark.slow
def test_processes_of_their_own_give_the_same_answers() -> None:
    code = """
from joblib import Parallel, delayed
from tests.test_faults_threads import WORK, bits

def work(name):
    return bits(WORK[name]()())

if __name__ == "__main__":
    expected = [work(name) for name in WORK]
    assert Parallel(n_jobs=2, timeout=120)(delayed(work)(name) for name in WORK) == expected
    print("done")
"""
    assert python(code) == "done\n"
