"""Searching: every kind of index against brute force in double precision."""

import copy
import json
import pickle
import shutil
import threading
from functools import partial
from pathlib import Path

import faiss
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from scipy.special import rel_entr
from sklearn.datasets import load_iris
from sklearn.neighbors import NearestNeighbors

import bregnet
from bregnet import PBDL, BregmanDivergence, BregmanIndex, MaxAffine, SquaredEuclidean, divergence
from tests.support.search_at_random import assert_nearest, divergences, max_affine, points, values_between
from tests.support.threads import in_threads

SIDES = ("right", "left")
EARLIER = Path(__file__).parent.parent / "data" / "indexes" / "0.1.0"


def index_of(given, X, ids=None, **parameters):
    index = BregmanIndex(given, **parameters)
    index.add(X, ids)
    return index


class TestExactSearch:
    @pytest.mark.parametrize("lattice", [False, True], ids=["random", "lattice"])
    @pytest.mark.parametrize("side", SIDES)
    @pytest.mark.parametrize("name", divergences(3))
    def test_equals_brute_force(self, name, side, lattice):
        D = divergences(3)[name]
        X, Q = points(0, 400, 3, lattice), np.concatenate([points(1, 20, 3, lattice), points(0, 400, 3, lattice)[:10]])
        ids = np.random.default_rng(2).permutation(10_000)[:400]
        for k in (1, 7, 400):
            index = index_of(D, X, ids, side=side)
            assert_nearest(D, side, X, ids, Q, index.search(Q, k), k)

    @settings(max_examples=60, deadline=None)
    @example(2718, 2, 68, "cold", "right", False)  # products differ by their rounding, and the divergences do not
    @given(
        st.integers(0, 10_000),
        st.integers(1, 6),
        st.integers(1, 300),
        st.sampled_from(sorted(divergences(1))),
        st.sampled_from(SIDES),
        st.booleans(),
    )
    def test_equals_brute_force_at_random(self, seed, n_features, n, name, side, lattice):
        D = divergences(n_features)[name]
        X, Q = points(seed, n, n_features, lattice), points(seed + 1, 5, n_features, lattice)
        k = 1 + seed % n
        assert_nearest(D, side, X, np.arange(n), Q, index_of(D, X, side=side).search(Q, k), k)

    @pytest.mark.parametrize("temperature", [0.0, 0.1, 1.0])
    @pytest.mark.parametrize("side", SIDES)
    def test_a_learned_divergence(self, side, temperature):
        X, y = load_iris(return_X_y=True)  # with duplicates and many ties
        D = PBDL(alpha=0.01, temperature=temperature, tol=0.1, n_pieces=20, random_state=0).fit(X, y).divergence_
        index = index_of(D, X, side=side)
        assert index.method == ("inner products" if temperature else "lists of pieces")
        assert_nearest(D, side, X, np.arange(len(X)), X, index.search(X, 5), 5)

    def test_euclid_as_faiss_and_scikit_learn(self):
        rng = np.random.default_rng(0)
        X, Q = rng.standard_normal((3000, 8)), rng.standard_normal((50, 8))
        values, ids = index_of("sqeuclidean", X).search(Q, 10)
        flat = faiss.IndexFlatL2(8)
        flat.add(X.astype(np.float32))
        assert (ids == flat.search(Q.astype(np.float32), 10)[1]).mean() > 0.999  # single precision
        peer = NearestNeighbors(n_neighbors=10, metric="sqeuclidean", algorithm="brute").fit(X)
        expected_values, expected = peer.kneighbors(Q)
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_allclose(values, expected_values, rtol=1e-9)

    @pytest.mark.parametrize("side", SIDES)
    def test_kl_on_the_simplex(self, side):
        rng = np.random.default_rng(0)
        X, Q = rng.dirichlet(np.ones(5), 500), rng.dirichlet(np.ones(5), 20)
        given = rel_entr(Q[:, None], X) if side == "right" else rel_entr(X, Q[:, None])
        values, ids = index_of("kl", X, side=side).search(Q, 6)
        np.testing.assert_array_equal(ids, given.sum(2).argsort(1)[:, :6])
        np.testing.assert_allclose(values, np.sort(given.sum(2), 1)[:, :6], rtol=1e-10)

    def test_items_far_from_the_origin(self):
        X = points(0, 500, 4)
        far = X + 1e6
        f = max_affine(0, 4, temperature=0.2)
        moved = MaxAffine(f.slopes, f.intercepts - f.slopes.sum(1) * 1e6, temperature=0.2)
        near_ids = index_of(f, X).search(X[:50], 5)[1]
        np.testing.assert_array_equal(index_of(moved, far).search(far[:50], 5)[1], near_ids)

    @pytest.mark.parametrize("side", SIDES)
    @pytest.mark.parametrize("name", divergences(3))
    def test_a_few_items_far_away(self, name, side):
        D, X, Q = divergences(3)[name], points(0, 400, 3), points(1, 20, 3)
        X[:3] *= [[1e6], [1e8], [1e10]]
        index = index_of(D, X, side=side)
        assert_nearest(D, side, X, np.arange(400), Q, index.search(Q, 5), 5)

    @pytest.mark.parametrize("name", ["mahalanobis", "sum", "strict", "hardly strict", "euclid"])
    def test_far_from_the_origin(self, name):
        D, X, Q = divergences(3)[name], points(0, 400, 3) + 1e5, points(1, 20, 3) + 1e5
        assert_nearest(D, "right", X, np.arange(400), Q, index_of(D, X).search(Q, 5), 5)

    def test_values_that_overflow_are_an_error(self):
        X = points(0, 50, 3)
        for scale in (1e-100, 1e100, 1e150):
            ids = index_of("sqeuclidean", X * scale).search(X[:9] * scale, 3)[1]
            np.testing.assert_array_equal(ids, index_of("sqeuclidean", X).search(X[:9], 3)[1])
        with pytest.raises(ValueError, match="X must not be so large"):
            index_of("sqeuclidean", X * 1e160).search(X, 3)
        with pytest.raises(ValueError, match="Q must not be so large"):
            index_of("sqeuclidean", X).search(X * 1e160, 3)

    def test_items_added_later_may_be_much_larger(self):
        X = points(0, 300, 3)
        index = index_of("sqeuclidean", X[:200])
        index.search(X[:1], 1)
        index.add(X[200:] * 1e25)
        everything = np.r_[X[:200], X[200:] * 1e25]
        for k in (3, 300):
            found = index.search(everything[150:250], k)
            assert_nearest(
                divergence("sqeuclidean"), "right", everything, np.arange(300), everything[150:250], found, k
            )

    def test_a_query_where_all_pieces_are_zero(self):
        X = points(0, 100, 3)
        f = max_affine(0, 3)
        f = MaxAffine(f.slopes, np.zeros(12), strictness=1e-6)
        D = BregmanDivergence(f)
        assert_nearest(D, "right", X, np.arange(100), np.zeros((1, 3)), index_of(D, X).search(np.zeros((1, 3)), 5), 5)

    def test_a_weight_of_zero(self):
        X = points(0, 100, 3)
        for side in SIDES:
            values, ids = index_of(0.0 * max_affine(0, 3), X, side=side).search(X[:9], 5)
            assert (values == 0).all()
            np.testing.assert_array_equal(ids, index_of("sqeuclidean", X).search(X[:9], 5)[1])

    def test_parameters_that_are_being_learned(self):
        slopes = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
        X = points(0, 100, 3)
        for temperature in (0.0, 0.2):
            index = index_of(MaxAffine(slopes, torch.zeros(6), temperature=temperature), X)
            values, _ = index.search(torch.as_tensor(X[:5]), 3)
            assert not values.requires_grad

    def test_features_of_different_sizes(self):
        X = points(0, 2000, 4) * [1e-6, 1.0, 1e3, 1e8]
        peer = NearestNeighbors(n_neighbors=5).fit(X / X.std(0))
        index = index_of(SquaredEuclidean(1 / X.var(0)), X)
        np.testing.assert_array_equal(index.search(X[:100], 5)[1], peer.kneighbors(X[:100] / X.std(0))[1])

    @pytest.mark.parametrize("name", ["sharp", "smooth"])
    def test_the_query_itself_comes_first_with_zero(self, name):
        X = points(0, 300, 3)
        values, ids = index_of(divergences(3)[name], X).search(X, 1)
        np.testing.assert_array_equal(ids[:, 0], np.arange(300))
        assert (values == 0).all()

    def test_single_precision_is_kept_and_answers_are_double(self):
        X = points(0, 300, 3).astype(np.float32)
        index = index_of(max_affine(0, 3, temperature=0.1), X)
        values, _ = index.search(X[:3], 2)
        assert values.dtype == np.float64
        as_double = index_of(max_affine(0, 3, temperature=0.1), X.astype(np.float64))
        np.testing.assert_array_equal(values, as_double.search(X[:3], 2)[0])
        assert index.nbytes == as_double.nbytes - 300 * 3 * 4

    def test_tensors_give_tensors(self):
        X = torch.as_tensor(points(0, 100, 3))
        index = index_of("kl", X, ids=torch.arange(100) + 5)
        values, ids = index.search(X[:4], 3)
        assert isinstance(values, torch.Tensor)
        assert ids.dtype == torch.int64
        np.testing.assert_array_equal(ids.numpy(), index.search(X[:4].numpy(), 3)[1])

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    @pytest.mark.parametrize("side", SIDES)
    @pytest.mark.parametrize("name", ["sharp", "smooth", "kl"])
    def test_on_a_gpu(self, name, side):
        D, X, Q = divergences(3)[name], points(0, 400, 3), points(1, 20, 3)
        index = index_of(D, X, side=side, device="cuda")
        assert_nearest(D, side, X, np.arange(400), Q, index.search(Q, 5), 5)
        index.remove(np.arange(100))
        assert_nearest(D, side, X[100:], np.arange(100, 400), Q, index.search(Q, 5), 5)

    def test_no_queries(self):
        values, ids = index_of("kl", points(0, 10, 3)).search(np.empty((0, 3)), 2)
        assert values.shape == ids.shape == (0, 2)

    def test_threads_agree(self):
        X = points(0, 2000, 4)
        for D in (max_affine(0, 4), max_affine(0, 4, temperature=0.3)):
            index = BregmanIndex(D)
            index.add(X)
            first, *others = in_threads(partial(index.search, X[:200], 5), 8)
            assert all((other[1] == first[1]).all() for other in others)


class TestRadius:
    @pytest.mark.parametrize("side", SIDES)
    @pytest.mark.parametrize("name", ["sharp", "hardly strict", "cold", "smooth", "sum", "kl"])
    def test_equals_brute_force(self, name, side):
        D = divergences(3)[name]
        X, Q = points(0, 300, 3), points(1, 20, 3)
        radius = np.median(D.pairwise(Q, X)) / 4
        values, ids = index_of(D, X, side=side).search_radius(Q, radius)
        for query, found, numbers in zip(Q, values, ids, strict=True):
            expected = values_between(D, query, X, side)
            np.testing.assert_array_equal(np.sort(numbers), np.flatnonzero(expected <= radius))
            np.testing.assert_allclose(found, expected[numbers], atol=1e-10)
            assert (np.diff(found) >= 0).all()

    def test_the_radius_is_included_and_may_differ_by_query(self):
        index = index_of("sqeuclidean", [[0.0], [1.0], [2.0], [3.0]])
        _, ids = index.search_radius([[0.0], [0.0], [10.0]], [1.0, 4.0, 1.0])
        assert [each.tolist() for each in ids] == [[0, 1], [0, 1, 2], []]

    def test_an_infinite_radius_is_everything(self):
        for kind in ("flat", "ivf"):
            index = index_of("kl", points(0, 50, 3), kind=kind, nprobe=50, random_state=0)
            assert len(index.search_radius(points(1, 1, 3), np.inf)[1][0]) == 50

    def test_the_radius_of_a_neighbour_finds_it(self):
        X = points(0, 500, 3)
        index = index_of(max_affine(0, 3, temperature=0.2), X)
        values, ids = index.search(X[:50], 4)
        _, within = index.search_radius(X[:50], values[:, -1])
        for numbers, nearest in zip(within, ids, strict=True):
            assert set(nearest) <= set(numbers)


class TestChanges:
    @pytest.mark.parametrize("parameters", [{}, {"kind": "ivf", "n_cells": 5, "nprobe": 5, "random_state": 0}])
    @pytest.mark.parametrize("side", SIDES)
    @pytest.mark.parametrize("name", ["sharp", "smooth"])
    def test_adding_and_removing(self, name, side, parameters):
        D, X, Q = divergences(3)[name], points(0, 300, 3), points(1, 20, 3)
        index = BregmanIndex(D, side=side, **parameters)
        index.add(X[:100])
        index.search(Q, 3)  # what is added later joins what is there
        index.add(X[100:250])
        index.add(X[250:], ids=np.arange(50) + 1000)
        ids = np.concatenate([np.arange(250), np.arange(50) + 1000])
        np.testing.assert_array_equal(index.ids, ids)
        assert_nearest(D, side, X, ids, Q, index.search(Q, 6), 6)
        gone = np.r_[ids[20:80], ids[-10:]]
        index.remove(gone)
        kept = ~np.isin(ids, gone)
        assert len(index) == kept.sum()
        assert_nearest(D, side, X[kept], ids[kept], Q, index.search(Q, 6), 6)
        index.add(X[20:21], ids=[20])  # an id that was freed
        assert_nearest(D, side, np.r_[X[kept], X[20:21]], np.r_[ids[kept], 20], Q, index.search(Q, 6), 6)

    def test_ids_go_on_and_are_not_used_again(self):
        index = index_of("sqeuclidean", [[0.0], [1.0]])
        index.remove([1])
        index.add([[5.0]])
        assert index.ids.tolist() == [0, 2]

    def test_removing_everything(self):
        index = index_of("sqeuclidean", [[0.0], [1.0]])
        index.search([[0.0]], 1)
        index.remove([0, 1])
        assert len(index) == 0
        assert index.ids.tolist() == []
        assert 0 not in index
        with pytest.raises(ValueError, match="the index is empty: add items first"):
            index.search([[0.0]], 1)
        index.add([[2.0]])
        assert index.search([[0.0]], 1)[1].tolist() == [[2]]

    def test_what_was_given_may_change_afterwards(self):
        X = points(0, 50, 3)
        given = X.copy()
        index = index_of("kl", given)
        given[:] = 1.0
        np.testing.assert_array_equal(index.search(X, 1)[1][:, 0], np.arange(50))

    def test_pickling(self):
        X = points(0, 50, 3)
        for kind in ("flat", "ivf"):
            index = index_of("kl", X, kind=kind, random_state=0)
            expected = index.search(X, 3)[1]
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(index)).search(X, 3)[1], expected)

    @pytest.mark.parametrize("kind", ["flat", "ivf"])
    @pytest.mark.parametrize("name", ["sharp", "smooth"])
    def test_many_small_additions_are_one_large(self, name, kind):
        D, X, Q = divergences(3)[name], points(0, 300, 3), points(1, 20, 3)
        ids = np.random.default_rng(0).permutation(1000)[:300]
        whole = index_of(D, X, ids, kind=kind, nprobe=300, random_state=0)
        index = BregmanIndex(D, kind=kind, nprobe=300, random_state=0)
        for row in range(300):
            index.add(X[row : row + 1], ids[row : row + 1])
            if row % 50 == 10:
                index.search(Q, 3)
        np.testing.assert_array_equal(index.ids, ids)
        assert index.bytes_per_item == pytest.approx(whole.bytes_per_item, rel=0.3)  # cells may be fewer
        (values, found), (expected_values, expected) = index.search(Q, 7), whole.search(Q, 7)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(values, expected_values, rtol=1e-9)
        with pytest.raises(ValueError, match=f"ids must not be in the index yet, got {ids[5]}, {ids[200]}"):
            index.add(X[:3], [2000, ids[5], ids[200]])

    def test_points_of_both_precisions(self):
        X = points(0, 90, 3)
        index = index_of("kl", X[:30].astype(np.float32))
        index.search(X[:1], 1)
        index.add(X[30:60])
        index.add(X[60:].astype(np.float32))
        everything = np.r_[X[:30].astype(np.float32), X[30:60], X[60:].astype(np.float32)]
        np.testing.assert_array_equal(index.search(everything, 1)[0], np.zeros((90, 1)))

    @pytest.mark.parametrize("kind", ["flat", "ivf"])
    @pytest.mark.parametrize("name", ["sharp", "smooth"])
    def test_what_searches_is_left_alone_by_changes(self, name, kind):
        D, X, Q = divergences(3)[name], points(0, 300, 3), torch.as_tensor(points(1, 20, 3))
        index = index_of(D, X[:100], kind=kind, random_state=0)
        index.add(X[100:120])
        held = index._ready()
        before = held.search(Q, 6, index._settings())
        index.add(X[120:])
        index.search(Q, 3)
        index.remove(np.arange(50))
        index.search(Q, 3)
        assert len(held.gallery) == 120
        assert torch.equal(held.search(Q, 6, index._settings()).rows, before.rows)

    def test_a_pickle_holds_no_room_for_more(self):
        X = points(0, 4000, 3)
        index, whole = index_of("kl", X[:2000]), index_of("kl", X)
        for row in range(2000, 4000, 100):
            index.add(X[row : row + 100])
        assert len(pickle.dumps(index)) < len(pickle.dumps(whole)) + 1000
        np.testing.assert_array_equal(
            pickle.loads(pickle.dumps(index)).search(X[:50], 3)[1], whole.search(X[:50], 3)[1]
        )


@pytest.mark.parametrize("n_queries", [1, 5, 300])
@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_queries_of_a_network_in_inference_mode(kind, n_queries):
    index = index_of("sqeuclidean", points(0, 2000, 3), kind=kind)
    Q = torch.as_tensor(points(1, n_queries, 3))
    expected = index.search(Q.numpy(), 4)[1]
    with torch.inference_mode():
        found = index.search(2 * Q / 2, 4)[1]
    np.testing.assert_array_equal(found, expected)


class TestMemory:
    @pytest.mark.parametrize("precision", [np.float64, np.float32])
    @pytest.mark.parametrize("side", SIDES)
    @pytest.mark.parametrize(("name", "kind"), [("sharp", "flat"), ("smooth", "flat"), ("smooth", "ivf")])
    def test_bytes_per_item_are_those_of_all_that_is_kept(self, name, kind, side, precision):
        index = index_of(divergences(3)[name], points(0, 500, 3).astype(precision), side=side, kind=kind, nprobe=5)
        engine = index._ready()
        held = [engine.gallery.points, engine.gallery.ids]
        for owner in (engine, getattr(engine, "vectors", None)):
            held += [part for part in vars(owner or index).values() if isinstance(part, torch.Tensor)]
        total = sum(part.nbytes for part in held)
        if kind == "ivf":
            total += sum(part.nbytes for part in vars(engine._lists).values())
        assert index.nbytes == total
        assert index.bytes_per_item == total / 500

    def test_nothing_takes_nothing(self):
        assert BregmanIndex("kl").bytes_per_item == 0

    def test_additions_do_not_count_twice(self):
        X = points(0, 500, 3)
        index = index_of("kl", X[:400])
        index.search(X[:1], 1)
        index.add(X[400:])
        assert index.bytes_per_item == index_of("kl", X).bytes_per_item


class TestCells:
    @pytest.mark.parametrize("name", ["smooth", "cold", "sharp", "sum", "sharp sum", "kl"])
    def test_items_are_in_the_cells_of_their_nearest_centres(self, name):
        D, X = divergences(3)[name], points(0, 700, 3)
        engine = index_of(D, X, kind="ivf", n_cells=12, random_state=0)._ready()
        values = D.pairwise(X, engine.centres.numpy())
        chosen = values[np.arange(700), engine.cells().numpy()]
        np.testing.assert_allclose(chosen, values.min(1), rtol=1e-9, atol=1e-12)

    def test_faiss_may_have_been_made_to_take_tensors(self):
        """As pytorch-metric-learning does when it is imported; the methods it puts in place take no parameters."""
        import faiss.contrib.torch_utils  # noqa: F401

        X, Q = points(0, 500, 3), points(1, 20, 3)
        cells = index_of("sqeuclidean", X, kind="ivf", n_cells=5, nprobe=5, random_state=0)
        np.testing.assert_array_equal(cells.search(Q, 7)[1], index_of("sqeuclidean", X).search(Q, 7)[1])
        assert [len(ids) for ids in cells.search_radius(Q, np.inf)[1]] == [500] * 20

    def test_items_stay_in_their_cells(self, tmp_path):
        X = points(0, 500, 3)
        index = index_of("kl", X, kind="ivf", n_cells=12, random_state=0)
        before = index._ready().cells().numpy()
        index.save(tmp_path / "saved")
        opened = BregmanIndex.load(tmp_path / "saved", mmap=True)
        opened.add(X[:5])
        np.testing.assert_array_equal(opened._ready().cells().numpy(), np.r_[before, before[:5]])
        kept = np.random.default_rng(0).random(500) < 0.5
        index.remove(np.flatnonzero(~kept))
        np.testing.assert_array_equal(index._ready().cells().numpy(), before[kept])

    @pytest.mark.parametrize("side", SIDES)
    @pytest.mark.parametrize("name", ["sharp", "sharp sum", "cold", "smooth", "kl", "euclid"])
    def test_all_cells_are_exact(self, name, side):
        D, X, Q = divergences(3)[name], points(0, 500, 3), points(1, 20, 3)
        index = index_of(D, X, side=side, kind="ivf", n_cells=10, nprobe=10, random_state=0)
        assert_nearest(D, side, X, np.arange(500), Q, index.search(Q, 5), 5)
        for query in Q:  # one alone has a route of its own
            assert_nearest(D, side, X, np.arange(500), query[None], index.search(query[None], 5), 5)
        assert index.recall(Q, 5) == 1.0

    @pytest.mark.parametrize("side", SIDES)
    def test_are_never_replaced_by_something_else(self, side):
        X = points(0, 300, 3)
        for name, D in divergences(3).items():
            index = index_of(D, X, side=side, kind="ivf", n_cells=6, random_state=0)
            assert index.method == "cells", name
            assert index._ready().n_cells == 6

    @pytest.mark.parametrize("side", SIDES)
    def test_more_probes_find_more(self, side):
        rng = np.random.default_rng(0)
        X, Q = rng.standard_normal((5000, 8)), rng.standard_normal((100, 8))
        f = MaxAffine(rng.standard_normal((30, 8)), rng.standard_normal(30), temperature=0.3)
        index = index_of(f, X, side=side, kind="ivf", n_cells=64, random_state=0)
        found = []
        for index.nprobe in (1, 4, 16, 64):
            found.append(index.recall(Q, 10))
        assert found == sorted(found)
        assert found[0] < 0.95
        assert found[2] > 0.9
        assert found[3] == 1.0

    def test_recall_is_the_share_of_ids_found(self):
        X, Q = points(0, 1000, 4), points(1, 30, 4)
        index = index_of("kl", X, kind="ivf", nprobe=1, random_state=0)
        exact = index_of("kl", X).search(Q, 5)[1]
        shares = [len(set(a) & set(b)) / 5 for a, b in zip(index.search(Q, 5)[1], exact, strict=True)]
        assert index.recall(Q, 5) == pytest.approx(np.mean(shares))

    def test_items_with_zeros(self):
        rng = np.random.default_rng(0)
        X = rng.dirichlet(np.full(10, 0.1), size=500).round(2)
        Q = rng.dirichlet(np.ones(10), size=5)
        index = index_of("kl", X, side="left", kind="ivf", nprobe=500, random_state=0)
        np.testing.assert_array_equal(index.search(Q, 5)[1], index_of("kl", X, side="left").search(Q, 5)[1])

    def test_searching_while_adding(self):
        X, failures = points(0, 3000, 3), []
        index = index_of("kl", X[:1000], kind="ivf", random_state=0)
        index.search(X[:1], 1)
        done = threading.Event()

        def ask():
            while not done.is_set():
                try:
                    index.search(X[:20], 5)
                except Exception as error:
                    failures.append(error)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for start in range(1000, 3000, 100):
            index.add(X[start : start + 100])
            index.search(X[:1], 1)
        done.set()
        for thread in threads:
            thread.join()
        assert not failures

    def test_items_added_later_may_be_much_larger(self):
        X = points(0, 300, 3)
        index = index_of("sqeuclidean", X[:200], kind="ivf", n_cells=8, nprobe=8, random_state=0)
        index.search(X[:1], 1)
        index.add(X[200:] * 1e25)  # all vectors are scaled anew
        everything = np.r_[X[:200], X[200:] * 1e25]
        found = index.search(everything[150:250], 3)
        assert_nearest(index.divergence, "right", everything, np.arange(300), everything[150:250], found, 3)

    def test_searching_leaves_the_threads_of_faiss_as_they_were(self):
        before = faiss.omp_get_max_threads()
        index_of("kl", points(0, 500, 3), kind="ivf", random_state=0).search(points(1, 1, 3), 3)
        assert faiss.omp_get_max_threads() == before

    def test_small_cells_still_give_k_items(self):
        X = points(0, 40, 3)
        index = index_of("kl", X, kind="ivf", n_cells=20, nprobe=1, random_state=0)
        _, ids = index.search(X, 30)
        assert all(len(set(row)) == 30 for row in ids)

    def test_all_items_in_order(self):
        X = points(0, 300, 3)
        index = index_of("kl", X, kind="ivf", random_state=0)
        np.testing.assert_array_equal(index.search(X[:20], 300)[1], index_of("kl", X).search(X[:20], 300)[1])

    def test_cells_are_made_anew_when_items_become_many(self):
        X = points(0, 1000, 3)
        index = index_of("kl", X[:50], kind="ivf", random_state=0)
        index.search(X[:1], 1)
        before = index._ready().n_cells
        index.add(X[50:])
        assert index._ready().n_cells > 3 * before

    def test_radius_in_cells(self):
        X = points(0, 500, 3)
        index = index_of("kl", X, kind="ivf", n_cells=8, nprobe=8, random_state=0)
        exact = index_of("kl", X).search_radius(X[:20], 0.2)[1]
        for found, expected in zip(index.search_radius(X[:20], 0.2)[1], exact, strict=True):
            np.testing.assert_array_equal(found, expected)

    def test_the_seed_decides(self):
        X = points(0, 500, 3)
        first, second = (index_of("kl", X, kind="ivf", nprobe=1, random_state=3) for _ in range(2))
        np.testing.assert_array_equal(first.search(X, 5)[1], second.search(X, 5)[1])


class TestFiles:
    @pytest.mark.parametrize("kind", ["flat", "ivf"])
    def test_any_bit_that_is_altered_is_noticed(self, kind, tmp_path):
        index_of("sqeuclidean", points(0, 60, 3), kind=kind, n_cells=4, random_state=0).save(tmp_path / "saved")
        rng = np.random.default_rng(0)
        for path in sorted((tmp_path / "saved").iterdir()):
            whole = bytearray(path.read_bytes())
            for place in rng.integers(len(whole), size=30):
                altered = bytearray(whole)
                altered[place] ^= 1 << rng.integers(8)
                path.write_bytes(altered)
                with pytest.raises(bregnet.UnreadableFileError):
                    BregmanIndex.load(tmp_path / "saved")
            path.write_bytes(whole)
        assert len(BregmanIndex.load(tmp_path / "saved")) == 60

    @pytest.mark.parametrize(
        ("name", "kind", "mmap"),
        [(name, "flat", False) for name in divergences(3)]
        + [("smooth", "flat", True), ("smooth", "ivf", False), ("smooth", "ivf", True), ("sharp", "flat", True)],
    )
    def test_round_trip(self, name, kind, mmap, tmp_path):
        D, X = divergences(3)[name], points(0, 200, 3)
        index = index_of(D, X, ids=np.arange(200) * 3, side="left", kind=kind, nprobe=20, random_state=0)
        index.save(tmp_path / "saved")
        opened = BregmanIndex.load(tmp_path / "saved", mmap=mmap)
        assert (opened.side, opened.kind, opened.nprobe, len(opened)) == ("left", kind, 20, 200)
        for one, other in zip(index.search(X[:30], 4), opened.search(X[:30], 4), strict=True):
            np.testing.assert_array_equal(one, other)
        assert repr(opened.divergence) == repr(D)
        opened.add(X[:2] * 1.01)
        opened.remove([0])
        assert opened.ids[[0, -1]].tolist() == [3, 599]
        assert opened.search(X[:1] * 1.01, 1)[0] == 0  # what was added is there

    @pytest.mark.parametrize("again", ["saved", "elsewhere"])
    def test_what_was_opened_from_a_file_can_be_saved(self, again, tmp_path):
        X = points(0, 200, 3)
        index = index_of("kl", X, kind="ivf", random_state=0)
        index.save(tmp_path / "saved")
        BregmanIndex.load(tmp_path / "saved", mmap=True).save(tmp_path / again)
        for mmap in (False, True):
            opened = BregmanIndex.load(tmp_path / again, mmap=mmap)
            np.testing.assert_array_equal(opened.search(X[:9], 4)[1], index.search(X[:9], 4)[1])

    def test_lists_that_lie_in_another_file_are_refused(self, tmp_path):
        """Earlier versions wrote lists in the format of faiss."""
        shutil.copytree(EARLIER / "cells", tmp_path / "saved")
        file = str(tmp_path / "saved" / "cells.faiss")
        faiss.write_index(faiss.read_index(file, faiss.IO_FLAG_MMAP), file)  # faiss writes a name, not the lists
        for mmap in (False, True):
            with pytest.raises(ValueError, match="was damaged"):
                BregmanIndex.load(tmp_path / "saved", mmap=mmap)

    def test_altered_tensors(self, tmp_path):
        X = points(0, 50, 3)
        index_of(max_affine(0, 3, temperature=0.2), X).save(tmp_path / "saved")
        file = tmp_path / "saved" / "index.safetensors"
        with safe_open(file, framework="pt") as opened:
            metadata, whole = opened.metadata(), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        changes = {
            "index.ids": torch.zeros(50, dtype=torch.int64),
            "index.points": whole["index.points"] * torch.nan,
            "index.engine.coarse": whole["index.engine.coarse"].flip(0),
            "index.engine.fine": whole["index.engine.fine"][:, :2].contiguous(),
            "index.engine.lift.weights": torch.zeros(4, dtype=torch.float64),
            "index.engine.lift.mean": torch.zeros(3, dtype=torch.float64),
        }
        for name, tensor in changes.items():
            save_file({**whole, name: tensor}, file, metadata=metadata)
            with pytest.raises(ValueError, match="was damaged"):
                BregmanIndex.load(tmp_path / "saved")

    def test_saving_replaces_what_was_saved(self, tmp_path):
        index = index_of("kl", points(0, 20, 3))
        index.save(tmp_path / "saved")
        index.add(points(1, 5, 3))
        index.save(tmp_path / "saved")
        assert len(BregmanIndex.load(tmp_path / "saved")) == 25
        assert [each.name for each in tmp_path.iterdir()] == ["saved"]

    def test_an_empty_index(self, tmp_path):
        BregmanIndex("kl").save(tmp_path / "saved")
        opened = BregmanIndex.load(tmp_path / "saved")
        opened.add(points(0, 5, 3))
        assert len(opened) == 5

    def test_other_folders_are_left_alone(self, tmp_path):
        index_of("kl", points(0, 5, 3)).save(tmp_path / "mine")
        (tmp_path / "mine" / "letter.txt").write_text("dear")
        with pytest.raises(FileExistsError, match="path must be new or a folder written by save"):
            index_of("kl", points(0, 5, 3)).save(tmp_path / "mine")
        assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
        with pytest.raises(FileNotFoundError, match="path must lie in a folder that exists"):
            index_of("kl", points(0, 5, 3)).save(tmp_path / "no" / "such")
        with pytest.raises(FileNotFoundError, match="path must be a folder written by save"):
            BregmanIndex.load(tmp_path)

    def test_a_failed_write_leaves_what_was_there(self, tmp_path, monkeypatch):
        index = index_of("kl", points(0, 20, 3))
        index.save(tmp_path / "saved")
        index.add(points(1, 5, 3))

        def fail(*_, **__):
            raise OSError("no space left")

        monkeypatch.setattr("bregnet._core.files.save_file", fail)
        with pytest.raises(OSError, match="no space left"):
            index.save(tmp_path / "saved")
        assert [each.name for each in tmp_path.iterdir()] == ["saved"]
        assert len(BregmanIndex.load(tmp_path / "saved")) == 20

    @pytest.mark.parametrize("mmap", [False, True])
    @pytest.mark.parametrize("name", ["flat", "cells", "pieces", "pieces-ivf"])
    def test_folders_of_earlier_versions(self, name, mmap, tmp_path):
        expected = json.loads((EARLIER / "expected.json").read_text())
        answer = expected["answers"][name]
        opened = BregmanIndex.load(EARLIER / name, mmap=mmap)
        opened.save(tmp_path / "again")
        for index in (opened, BregmanIndex.load(tmp_path / "again", mmap=mmap)):
            values, ids = index.search(expected["queries"], 4)
            np.testing.assert_array_equal(ids, answer["ids"])
            np.testing.assert_allclose(values, answer["divergences"], rtol=1e-12, atol=1e-12)
            assert index.method == answer["method"]
            assert index.kind == ("ivf" if name == "cells" else "flat")  # lists of pieces were always exact
        assert opened._collection.next_id == 30
        assert len(BregmanIndex.load(EARLIER / "empty", mmap=mmap)) == 0

    def test_damaged_files(self, tmp_path):
        shutil.copytree(EARLIER / "cells", tmp_path / "saved")
        for name in ("index.safetensors", "cells.faiss"):
            file = tmp_path / "saved" / name
            whole = file.read_bytes()
            for size in (0, 4, 100, len(whole) // 2, len(whole) - 1):
                file.write_bytes(whole[:size])
                with pytest.raises(ValueError, match="is not a BregmanIndex of bregnet, or was damaged"):
                    BregmanIndex.load(tmp_path / "saved")
            file.unlink()
            with pytest.raises((ValueError, FileNotFoundError), match=r"damaged|without index"):
                BregmanIndex.load(tmp_path / "saved")
            file.write_bytes(whole)

    def test_altered_headers(self, tmp_path):
        index_of(max_affine(0, 3), points(0, 50, 3)).save(tmp_path / "saved")
        file = tmp_path / "saved" / "index.safetensors"
        whole = file.read_bytes()
        length = int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8 : 8 + length])

        def rewritten(**changes):
            about = {**json.loads(header["__metadata__"]["bregnet"]), **changes}
            text = json.dumps({**header, "__metadata__": {"bregnet": json.dumps(about)}}).encode()
            file.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])

        rewritten()
        assert len(BregmanIndex.load(tmp_path / "saved")) == 50
        rewritten(version=99)
        with pytest.raises(ValueError, match="has version 99 of its format"):
            BregmanIndex.load(tmp_path / "saved")
        rewritten(holds="Tree")
        with pytest.raises(ValueError, match="must hold a BregmanIndex, got a 'Tree'"):
            BregmanIndex.load(tmp_path / "saved")
        for changes in ({"side": "up"}, {"kind": 3}, {"generator": {"type": "os.system"}}, {"generator": []}):
            rewritten(**changes)
            with pytest.raises(ValueError, match="was damaged"):
                BregmanIndex.load(tmp_path / "saved")


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"side": "both"}, "side must be one of 'right', 'left', got 'both'"),
            ({"kind": "tree"}, "kind must be one of 'flat', 'ivf', got 'tree'"),
            ({"kind": "hnsw"}, "got 'hnsw': graphs of neighbors miss most of the nearest items"),
            ({"n_cells": 0}, "n_cells must be at least 1, got 0"),
            ({"nprobe": 0}, "nprobe must be at least 1, got 0"),
            ({"device": "moon"}, "device must be one of"),
        ],
    )
    def test_constructor(self, change, message):
        with pytest.raises(ValueError, match=message):
            BregmanIndex("kl", **change)

    def test_divergence(self):
        with pytest.raises(ValueError, match="divergence must be one of"):
            BregmanIndex("cosine")

    @pytest.mark.parametrize(
        ("X", "ids", "message"),
        [
            ([1.0, 2.0], None, "X must have shape \\(n_points, 2\\), got \\(2,\\)"),
            ([[np.nan, 1.0]], None, "X must be finite, got nan in row 0"),
            ([[0.0, 1.0]], None, "X must be positive at the tangent points"),
            ([[1.0, 1.0]], [1, 2], "ids must have shape \\(1,\\), got \\(2,\\)"),
            ([[1.0, 1.0]], [0.5], "ids must be a sequence of integers"),
            ([[1.0, 1.0], [2.0, 2.0]], [7, 7], "ids must differ from each other"),
            (
                [[1.0, 1.0]],
                np.array([2**63 + 5], dtype=np.uint64),
                r"ids must be below 2\*\*63, got 9223372036854775813",
            ),
            ([[1.0, 1.0]], [0], "ids must not be in the index yet, got 0"),
            ([[1.0, 1.0, 1.0]], None, "X must have shape \\(n_points, 2\\), got \\(1, 3\\)"),
        ],
    )
    def test_add(self, X, ids, message):
        index = index_of("kl", [[1.0, 2.0]])
        with pytest.raises(ValueError, match=message):
            index.add(X, ids)
        assert len(index) == 1

    def test_search(self):
        index = index_of("kl", [[1.0, 2.0]])
        with pytest.raises(ValueError, match="k must be at most the number of items \\(1\\), got 2"):
            index.search([[1.0, 1.0]], 2)
        with pytest.raises(TypeError, match="k must be an integer"):
            index.search([[1.0, 1.0]], 1.5)
        with pytest.raises(ValueError, match="Q must be finite"):
            index.search([[1.0, np.inf]], 1)
        with pytest.raises(ValueError, match="radius must be at least 0"):
            index.search_radius([[1.0, 1.0]], -1.0)
        with pytest.raises(ValueError, match="radius must be a number or have shape \\(1,\\)"):
            index.search_radius([[1.0, 1.0]], [1.0, 2.0])
        with pytest.raises(ValueError, match="the index is empty"):
            BregmanIndex("kl").search_radius([[1.0]], 1.0)
        with pytest.raises(ValueError, match="ids must be those of items in the index, got 5, 9"):
            index.remove([9, 0, 5])
        assert len(index) == 1

    def test_a_divergence_for_other_features(self):
        with pytest.raises(ValueError, match="X must have shape \\(n_points, 3\\)"):
            BregmanIndex(max_affine(0, 3)).add([[1.0, 2.0]])


def test_a_bar_where_it_is_asked_for(capsys):
    index = index_of(divergence("kl"), points(0, 2000, 3))
    index.search(points(1, 10, 3), 2)
    assert capsys.readouterr().err == ""


def test_what_users_of_faiss_look_for():
    X = points(0, 30, 3)
    index = BregmanIndex("kl")
    index.add(X[:20], ids=np.arange(20) * 7 % 100)
    index.add(X[20:].astype(np.float32), ids=np.arange(200, 210))
    assert index.ntotal == len(index) == 30
    np.testing.assert_array_equal(index.reconstruct(index.ids[[3, 0, 19]]), X[[3, 0, 19]])
    np.testing.assert_array_equal(index.reconstruct(205), X[25].astype(np.float32))
    for ids, found in ((999, "999"), ([0, -1], "-1")):
        with pytest.raises(ValueError, match=f"ids must be those of items in the index, got {found}$"):
            index.reconstruct(ids)
    index.reset()
    assert index.ntotal == 0
    index.add(points(1, 5, 4))  # of other features
    assert index.search(points(1, 5, 4), k=1)[1].tolist() == [[0], [1], [2], [3], [4]]


def test_a_single_string_id_is_in_an_array():
    index = BregmanIndex("sqeuclidean")
    index.add([[0.0], [5.0]], ids=["low", "high"])
    assert index.search([[4.0]], k=1)[1].tolist() == [["high"]]
    (found,) = index.search_radius([[4.0]], 2.0)[1]
    assert found.tolist() == ["high"]


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_ids_may_be_strings(kind, tmp_path):
    X, Q = points(0, 60, 3), points(1, 9, 3)
    names = [f"item {number}" for number in 7 * np.arange(60) % 61]
    index, numbered = (BregmanIndex("kl", kind=kind, nprobe=9, random_state=0) for _ in range(2))
    index.add(X[:40], ids=names[:40])
    index.add(X[40:], ids=np.array(names[40:], dtype=object))
    index.remove(names[3:5])
    numbered.add(X)
    numbered.remove([3, 4])
    wanted = [[names[item] for item in row] for row in numbered.search(Q, 5)[1]]
    index.save(tmp_path / "folder")
    bregnet.save(index, tmp_path / "file")
    for each in (index, BregmanIndex.load(tmp_path / "folder"), bregnet.load(tmp_path / "file"), copy.deepcopy(index)):
        assert each.search(Q, 5)[1].tolist() == wanted
        assert each.search(torch.as_tensor(Q), 5)[1].tolist() == wanted
        assert each.ids.tolist() == names[:3] + names[5:]
        assert names[9] in each
        assert names[3] not in each
        np.testing.assert_array_equal(each.reconstruct(names[9]), X[9])
        np.testing.assert_array_equal(each.reconstruct(names[5:8]), X[5:8])
        near = each.search_radius(Q[:1], each.search(Q[:1], 5)[0][0, -1])[1]
        assert near[0].tolist() == wanted[0]
        form = each.to_inner_product()
        assert form.ids.tolist() == names[:3] + names[5:]
        bregnet.save(form, tmp_path / "form")
        assert bregnet.load(tmp_path / "form").ids.tolist() == form.ids.tolist()
    for change, message in (
        (lambda: index.add(X[:1], ids=[names[9]]), f"ids must not be in the index yet, got '{names[9]}'"),
        (lambda: index.add(X[:2], ids=["new", "new"]), "ids must differ from each other"),
        (lambda: index.add(X[:2], ids=["new"]), r"ids must have shape \(2,\), got \(1,\)"),
        (lambda: index.add(X[:1], ids=[""]), "ids must be strings of at least one character"),
        (lambda: index.add(X[:1]), "ids must be strings, as those of the items"),
        (
            lambda: numbered.add(X[:1], ids=["new"]),
            "ids must be integers, as those of the items in the index, got 'new'",
        ),
        (lambda: index.remove(["gone", names[0]]), "ids must be those of items in the index, got 'gone'"),
    ):
        with pytest.raises(ValueError, match=message):
            change()
    assert len(index) == 58
    index.remove(index.ids)
    index.add(X[:1], ids=[5])  # without any items it may have ids of either kind
    assert index.ids.tolist() == [5]


def test_ids_of_another_kind_are_not_there():
    named, numbered = index_of("sqeuclidean", [[0.0], [5.0]], ["0", "1"]), index_of("sqeuclidean", [[0.0], [5.0]])
    for change in (named.remove, named.reconstruct):
        with pytest.raises(ValueError, match="ids must be strings, as those of the items in the index, got 1"):
            change([1])
    named.remove([])
    assert len(named) == 2
    assert [each in named for each in ("0", 0, None, [0])] == [True, False, False, False]
    present = [each in numbered for each in (1, np.int64(1), torch.tensor(1), 2, 2**70, "1", None, [1], 0.5)]
    assert present == [True, True, True] + 6 * [False]


@pytest.mark.parametrize("ids", [None, ["low", "high"]])
def test_nothing_is_returned_of_an_index_whose_items_were_all_removed(ids):
    index = index_of("sqeuclidean", [[0.0], [5.0]], ids)
    gone = index.ids
    index.remove(gone)
    for wanted in (gone, gone[0]):
        with pytest.raises((ValueError, TypeError), match="ids must"):
            index.reconstruct(wanted)


@pytest.mark.parametrize("count", [1, 40])
def test_items_that_are_all_the_same_can_be_saved(count, tmp_path):
    for seed in range(60):  # their vectors are 0 but for rounding, which depends on where arrays are in memory
        D, X = divergence(max_affine(seed, 16, 60, temperature=0.1)), 100 * points(seed, 1, 16).repeat(count, 0)
        index = index_of(D, X)
        index.save(tmp_path / "folder")
        for mmap in (False, True):
            loaded = BregmanIndex.load(tmp_path / "folder", mmap=mmap)
            np.testing.assert_array_equal(loaded.search(X[:1], count)[1], [np.arange(count)])


def test_divergences_in_single_precision_where_they_are_asked_for():
    index, Q = index_of("kl", points(0, 30, 3)), points(1, 4, 3).astype(np.float32)
    double, single = (index.search(Q, 3, dtype=dtype)[0] for dtype in ("float64", "float32"))
    assert (double.dtype, single.dtype) == (np.float64, np.float32)
    np.testing.assert_array_equal(single, double.astype(np.float32))
    assert index.search(torch.as_tensor(Q), 3, dtype=np.float32)[0].dtype == torch.float32
    assert index.search_radius(Q, 1.0, dtype="float32")[0][0].dtype == np.float32
    with pytest.raises(ValueError, match="dtype must be one of 'float64', 'float32', got 'int32'"):
        index.search(Q, 3, dtype="int32")


def test_an_index_of_mapped_points_can_be_reset_and_returns_mapped_points():
    X = points(0, 40, 2)
    D = PBDL(feature_map="rbf", n_pieces=4, tol=0.5, random_state=0).fit(X, X[:, 0] > X[:, 1]).divergence_
    index = index_of(D, X)
    wanted = index.search(X, 3)
    assert index.reconstruct([3, 1]).shape == (2, D.base.n_features)
    np.testing.assert_allclose(index.reconstruct([3, 1]), D.feature_map(X[[3, 1]]))
    index.reset()
    index.add(X)
    np.testing.assert_array_equal(index.search(X, 3)[1], wanted[1])


def test_a_divergence_is_a_metric_of_scikit_learn():
    D, X, Q = divergences(3)["sum"], points(0, 40, 3), points(1, 6, 3)
    peer = NearestNeighbors(n_neighbors=4, metric=D, algorithm="brute").fit(X)
    index = BregmanIndex(D)
    index.add(X)
    for found, expected in zip(index.search(Q, k=4), peer.kneighbors(Q), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert D(Q[0], X[0]) == pytest.approx(D(Q, X)[0, 0], rel=1e-9)
    with pytest.raises(ValueError, match="must be two points"):
        D(Q[0], X)
