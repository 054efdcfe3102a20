"""The vectors handed to a store order items as the divergence does."""

import faiss
import numpy as np
import pytest
import torch

from bregnet import BregmanDivergence, BregmanIndex, MaxAffine, SquaredEuclidean, divergence
from bregnet.retrieval.inner_product import Symmetry

SIDES = ("right", "left")


def touching(points, temperature):
    """A convex function such as are learned: planes that touch a parabola at some points, smoothed."""
    return MaxAffine(points, -0.5 * np.square(points).sum(1), temperature=temperature)


LEARNED = touching(np.random.default_rng(0).uniform(0.2, 3.0, (40, 5)), temperature=0.3)
DIVERGENCES = {
    "learned": BregmanDivergence(LEARNED),
    "kl": divergence("kl"),
    "itakura-saito": divergence("itakura-saito"),
    "sum": BregmanDivergence(LEARNED + 0.1 * SquaredEuclidean()),
    "mahalanobis": divergence("mahalanobis", matrix=np.diag([1e4, 1.0, 1.0, 1e-2, 1e-4])),
}


def points(n, seed):
    return np.random.default_rng(seed).uniform(0.2, 3.0, (n, 5))


def filled(divergence, side, X, ids=None):
    index = BregmanIndex(divergence, side=side)
    index.add(X, ids=ids)
    return index


def brute_force(divergence, side, Q, X):
    return divergence.pairwise(Q, X) if side == "right" else divergence.pairwise(X, Q).T


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", DIVERGENCES)
def test_inner_products_order_items_as_the_divergence_does(name, side, symmetric):
    X = points(300, seed=1)
    Q = np.concatenate([points(40, seed=2), X[:40]])
    form = filled(DIVERGENCES[name], side, X).to_inner_product(symmetric=symmetric)
    scores = form.encode(Q) @ form.items.T
    wanted = brute_force(DIVERGENCES[name], side, Q, X)
    scale = np.abs(wanted).max(1, keepdims=True)

    found = np.take_along_axis(wanted, np.argsort(-scores, axis=1), axis=1)
    assert (np.diff(found, axis=1) > -1e-6 * scale).all()  # sorted, but for what single precision cannot tell apart
    assert np.mean(scores.argmax(1) == wanted.argmin(1)) > 0.98
    divergences = form.divergences(Q, scores)
    assert divergences.min() >= 0
    assert divergences.dtype == np.float64
    np.testing.assert_allclose(divergences / scale, wanted / scale, atol=1e-6)


@pytest.mark.parametrize("symmetric", [False, True])
def test_vectors_are_single_precision_and_keep_ids(symmetric):
    index = filled(DIVERGENCES["learned"], "right", points(20, seed=1), ids=np.arange(100, 120))
    index.remove([105])
    form = index.to_inner_product(symmetric=symmetric)
    assert form.items.shape == (19, form.width) == (19, 7 if symmetric else 6)
    assert form.items.dtype == form.encode(points(3, seed=2)).dtype == np.float32
    assert form.ids.dtype == np.int64
    np.testing.assert_array_equal(form.ids, index.ids)
    assert len(form) == 19
    assert form.encode(np.empty((0, 5))).shape == (0, form.width)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", DIVERGENCES)
def test_symmetric_vectors_have_the_inner_products_of_plain_ones(name, side):
    index = filled(DIVERGENCES[name], side, points(300, seed=1))
    plain, symmetric = index.to_inner_product(), index.to_inner_product(symmetric=True)
    Q = points(30, seed=2)
    scores, other = (form.encode(Q).astype(float) @ form.items.T for form in (plain, symmetric))
    factors = (scores * other).sum(1) / np.square(other).sum(1)  # one a query: its vector has length 1 in both
    assert (factors > 0).all()
    np.testing.assert_allclose(factors[:, None] * other, scores, atol=2e-6)


@pytest.mark.parametrize("side", SIDES)
def test_symmetric_vectors_have_length_one_so_euclid_and_cosine_agree_with_inner_products(side):
    form = filled(DIVERGENCES["learned"], side, points(500, seed=1)).to_inner_product(symmetric=True)
    queries, items = form.encode(points(30, seed=2)), form.items
    np.testing.assert_allclose(np.linalg.norm(items, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(queries, axis=1), 1, atol=1e-6)
    squared = np.square(queries[:, None].astype(float) - items).sum(2)
    np.testing.assert_allclose(squared, 2 - 2 * queries.astype(float) @ items.T, atol=1e-6)


def test_symmetry_gives_items_and_queries_the_same_covariance():
    rng = np.random.default_rng(0)
    mixings = np.eye(4) + 0.4 * rng.standard_normal((2, 4, 4))
    items, queries = (torch.as_tensor(rng.standard_normal((5000, 4)) @ mixing) for mixing in mixings)
    symmetry = Symmetry.from_vectors(items, queries)
    turned, other = np.cov((items @ symmetry.inverse_root).T), np.cov((queries @ symmetry.root).T)
    np.testing.assert_allclose(turned, other, atol=0.01 * np.abs(turned).max())
    torch.testing.assert_close(symmetry.root @ symmetry.inverse_root, torch.eye(4, dtype=torch.float64))


def recall_of_graph(items, queries, metric, wanted):
    graph = faiss.IndexHNSWFlat(items.shape[1], 16, metric)
    graph.hnsw.efSearch = 64
    graph.add(np.ascontiguousarray(items, dtype=np.float32))
    _, found = graph.search(np.ascontiguousarray(queries, dtype=np.float32), wanted.shape[1])
    return np.mean((found[:, :, None] == wanted[:, None]).any(2))


def clusters(n, seed):
    """Thirty clusters of six dimensions in sixteen features: where plain vectors are a trap."""
    rng = np.random.default_rng(7)
    centres, mixing = 2 * rng.standard_normal((30, 6)), rng.standard_normal((6, 16)) / np.sqrt(6)
    rng = np.random.default_rng(seed)
    latent = centres[rng.integers(30, size=n)] + 0.7 * rng.standard_normal((n, 6))
    return latent @ mixing + 0.2 * rng.standard_normal((n, 16))


@pytest.mark.parametrize("side", SIDES)
def test_graphs_of_neighbours_find_items_by_symmetric_vectors_only(side):
    X, Q = clusters(2000, seed=0), clusters(200, seed=1)
    D = BregmanDivergence(touching(clusters(100, seed=2), temperature=1.0))
    index = filled(D, side, X)
    _, wanted = index.search(Q, 10)
    plain, symmetric = index.to_inner_product(), index.to_inner_product(symmetric=True)
    lifts = D.lift_items(X, side), D.lift_queries(Q, side)
    assert recall_of_graph(*lifts, faiss.METRIC_INNER_PRODUCT, wanted) < 0.2
    assert recall_of_graph(plain.items, plain.encode(Q), faiss.METRIC_INNER_PRODUCT, wanted) < 0.85
    assert recall_of_graph(symmetric.items, symmetric.encode(Q), faiss.METRIC_L2, wanted) > 0.95


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("n_items", [1, 2])
def test_few_or_equal_items(n_items, side, symmetric):
    index = filled("sqeuclidean", side, np.ones((n_items, 3)))
    form = index.to_inner_product(symmetric=symmetric)
    found = form.divergences([[1.0, 1.0, 3.0]], form.encode([[1.0, 1.0, 3.0]]) @ form.items.T)
    np.testing.assert_allclose(found, np.full((1, n_items), 4.0), rtol=1e-6)


@pytest.mark.parametrize("zeros", ["some", "all"])
def test_items_where_no_query_can_be(zeros):
    """On the left side items of Kullback-Leibler may have zeros, which have no gradient."""
    X = points(50, seed=1)
    X[: 10 if zeros == "some" else 50, 0] = 0.0
    Q = points(10, seed=2)
    form = filled("kl", "left", X).to_inner_product(symmetric=True)
    found = form.divergences(Q, form.encode(Q) @ form.items.T)
    np.testing.assert_allclose(found, divergence("kl").pairwise(X, Q).T, atol=1e-5)


def test_parameters_that_are_being_learned():
    slopes, intercepts = (
        torch.tensor(LEARNED.slopes, requires_grad=True),
        torch.tensor(LEARNED.intercepts, requires_grad=True),
    )
    X, Q = points(20, seed=1), points(3, seed=2)
    form = filled(MaxAffine(slopes, intercepts, temperature=0.3), "right", X).to_inner_product(symmetric=True)
    np.testing.assert_array_equal(form.encode(torch.as_tensor(Q).requires_grad_()), form.encode(Q))


def test_errors():
    index = BregmanIndex("kl", side="left")
    with pytest.raises(ValueError, match="the index is empty"):
        index.to_inner_product()
    index.add(points(5, seed=1))
    with pytest.raises(TypeError, match="symmetric must be True or False, got 'yes'"):
        index.to_inner_product(symmetric="yes")
    form = index.to_inner_product()
    with pytest.raises(ValueError, match=r"Q must have shape \(n_points, 5\), got \(1, 4\)"):
        form.encode(np.ones((1, 4)))
    with pytest.raises(ValueError, match="Q must be finite, got nan in row 0"):
        form.encode(np.full((1, 5), np.nan))
    with pytest.raises(ValueError, match=r"Q must be .*positive.* got 0 in row 0"):
        form.encode(np.zeros((1, 5)))
    with pytest.raises(ValueError, match=r"scores must have shape \(2, n_found\), got \(1, 3\)"):
        form.divergences(np.ones((2, 5)), np.zeros((1, 3)))
    with pytest.raises(ValueError, match="scores must be finite, got -inf in row 0"):
        form.divergences(np.ones((1, 5)), np.array([[0.5, -np.inf]]))
    index.remove(index.ids)
    with pytest.raises(ValueError, match="the index is empty"):
        index.to_inner_product()


def test_the_form_does_not_change_with_the_index():
    index = filled("sqeuclidean", "right", points(5, seed=1))
    form = index.to_inner_product()
    items = form.items.copy()
    index.add(points(5, seed=2))
    np.testing.assert_array_equal(form.items, items)
    with pytest.raises(AttributeError):
        form.items = items
