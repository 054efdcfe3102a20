"""Generators after affine maps, against the same generators of mapped points."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bregnet
from bregnet import (
    BregmanDivergence,
    ItakuraSaito,
    KullbackLeibler,
    Logistic,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
)
from bregnet.divergences.classical import Affine
from tests.divergences.test_bregman_divergence import Exponential


def pieces(rng, **options):
    return MaxAffine(rng.normal(size=(6, 3)), rng.normal(size=6), **options)


def semidefinite(rng):
    factor = rng.normal(size=(3, 2))
    return Quadratic(factor @ factor.T)


ANYWHERE = {
    "max": pieces,
    "soft max": lambda rng: pieces(rng, temperature=0.3),
    "strict": lambda rng: pieces(rng, temperature=0.3, strictness=[0.1, 0.2, 0.3]),
    "squares": lambda rng: SquaredEuclidean(),
    "weighted squares": lambda rng: SquaredEuclidean([1.0, 2.0, 0.5]),
    "quadratic": semidefinite,
    "affine": lambda rng: Affine(rng.normal(size=3), 2.0),
    "sum": lambda rng: 2.0 * pieces(rng, temperature=1.0) + 0.5 * semidefinite(rng) + SquaredEuclidean(),
    "own": lambda rng: Exponential(),
}


def check_same(f, W, c, X, Y):
    g = f.compose(W, c)
    there, others = X @ W.T + c, Y @ W.T + c
    np.testing.assert_allclose(g(X), f(there), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(g.gradient(X), f.gradient(there) @ W, rtol=1e-10, atol=1e-11)
    D, mapped = BregmanDivergence(g), BregmanDivergence(f)
    np.testing.assert_allclose(D.pairwise(X, Y), mapped.pairwise(there, others), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(D.paired(X[:4], Y), mapped.paired(there[:4], others), rtol=1e-9, atol=1e-10)
    for side in ("right", "left"):
        lifted = D.lift_offsets(Y, side) - D.lift_queries(Y, side) @ D.lift_items(X, side).T
        expected = D.pairwise(Y, X) if side == "right" else D.pairwise(X, Y).T
        np.testing.assert_allclose(lifted, expected, rtol=1e-9, atol=1e-8)
    return g


@given(st.sampled_from(sorted(ANYWHERE)), st.integers(0, 2**32 - 1), st.integers(1, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_composed_generator_is_the_generator_of_mapped_points(name, seed, n_features, with_offset):
    rng = np.random.default_rng(seed)
    W, c = rng.normal(size=(3, n_features)), rng.normal(size=3) * with_offset
    check_same(ANYWHERE[name](rng), W, c, rng.normal(size=(6, n_features)), rng.normal(size=(4, n_features)))


@pytest.mark.parametrize("f", [KullbackLeibler(), ItakuraSaito(), Logistic()])
def test_domains_are_those_of_mapped_points(f, tmp_path):
    rng = np.random.default_rng(0)
    W, c = rng.uniform(0.1, 0.3, size=(3, 2)), np.full(3, 0.05)
    X = rng.uniform(0.1, 0.9, size=(6, 2))
    g = check_same(f, W, c, X, X[:4])
    with pytest.raises(ValueError, match="X after the affine map must be"):
        g(X - 3.0)
    bregnet.save(g, tmp_path / "composed")
    np.testing.assert_array_equal(bregnet.load(tmp_path / "composed")(X), g(X))


def test_composition_keeps_the_class_where_it_can_and_follows_gradients():
    rng = np.random.default_rng(0)
    W = rng.normal(size=(3, 2))
    f = pieces(rng, temperature=0.5)
    assert isinstance(f.compose(W, 1.0), MaxAffine)
    assert isinstance(SquaredEuclidean().compose(W), Quadratic)
    twice = f.compose(W, 1.0).compose([[2.0], [1.0]], [0.0, 1.0])
    x = np.array([[0.3], [-0.2]])
    np.testing.assert_allclose(twice(x), f((x @ [[2.0, 1.0]] + [0.0, 1.0]) @ W.T + 1.0))
    moved = Exponential().compose(torch.tensor(W), 0.0).to(torch.float32)
    assert moved(torch.ones(1, 2)).dtype == torch.float32


@pytest.mark.parametrize("f", [pieces(np.random.default_rng(0)), Quadratic(np.eye(3)), KullbackLeibler()])
def test_what_does_not_fit_is_refused(f):
    if f.n_features:
        with pytest.raises(ValueError, match=r"matrix must have shape \(3, n_features\), got \(2, 2\)"):
            f.compose(np.eye(2))
    with pytest.raises(ValueError, match=r"offset must be a number or have shape \(3,\), got \(2,\)"):
        f.compose(np.eye(3), [1.0, 2.0])
