from dataclasses import replace

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr
from sklearn.cluster import KMeans

from bregnet import (
    BregmanDivergence,
    ItakuraSaito,
    KullbackLeibler,
    Logistic,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
    divergence,
)
from bregnet._core.chunks import at_most
from bregnet.clustering.assignment import Assignment, fill_empty
from bregnet.clustering.centered_points import CenteredPoints
from bregnet.clustering.centers import lloyd, nearest_centers, plus_plus

N_FEATURES = 3


def max_affine(rng, **smoothing):
    return MaxAffine(rng.standard_normal((7, N_FEATURES)), 0.3 * rng.standard_normal(7), **smoothing)


def random_matrix(rng):
    root = rng.standard_normal((N_FEATURES, N_FEATURES))
    return root @ root.T


GENERATORS = {
    "sqeuclidean": lambda rng: SquaredEuclidean(),
    "weighted sqeuclidean": lambda rng: SquaredEuclidean(rng.random(N_FEATURES)),
    "quadratic": lambda rng: Quadratic(random_matrix(rng)),
    "kl": lambda rng: KullbackLeibler(),
    "itakura-saito": lambda rng: ItakuraSaito(),
    "logistic": lambda rng: Logistic(),
    "sharp": max_affine,
    "soft": lambda rng: max_affine(rng, temperature=0.3),
    "sharp and strict": lambda rng: max_affine(rng, strictness=0.5),
    "soft and strict": lambda rng: max_affine(rng, temperature=0.1, strictness=[0.5, 0.0, 2.0]),
    "sum": lambda rng: 2.0 * max_affine(rng) + KullbackLeibler() + 0.5 * SquaredEuclidean(),
}
every_generator = given(name=st.sampled_from(sorted(GENERATORS)), seed=st.integers(0, 9999))


def moved(name, X, seed):
    """The points in another place, of another size and precision, within the domain of the generator."""
    rng = np.random.default_rng(seed + 1)
    scale = 1.0 if name == "logistic" else 10.0 ** rng.integers(-3, 4)
    offset = 0.0 if name == "logistic" else rng.choice([0.0, 10.0, 1000.0])
    # ties between the pieces of a plain maximum are real ones, which rounding to single precision may break otherwise
    single = seed % 2 and "sharp" not in name and name != "sum"
    return (scale * (X + offset)).astype(np.float32 if single else np.float64)


def rounding(D, X, weights):
    """What rounding may add to the sum of divergences, in the precision of X; D computes in double precision."""
    origin = (weights @ X / weights.sum())[None]
    steep = (X - origin).abs() @ torch.as_tensor(D.generator.gradient(origin)).abs()[0]
    return float(weights @ (D.paired(X, origin.expand_as(X)) + steep))


def draw(name, seed, n=60):
    """A divergence and points in the domain of all generators, some of them repeated, with weights."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.05, 0.95, (n, N_FEATURES))
    X[: n // 5] = X[-(n // 5) :]
    weights = rng.integers(0, 4, n).astype(float)
    return BregmanDivergence(GENERATORS[name](rng)), torch.as_tensor(X), torch.as_tensor(weights)


def state(seed=0):
    return np.random.RandomState(seed)


def objective(D, X, weights, found):
    return float(weights @ D.paired(X, found.centers[found.labels]))


# --- nearest centers -----------------------------------------------------------------------------------------------


@every_generator
@settings(max_examples=60, deadline=None)
def test_the_nearest_center_is_that_of_the_full_matrix(name, seed):
    D, X, _ = draw(name, seed)
    C = X[20:29] * 0.7 + 0.1
    labels, values = nearest_centers(D, X, C)
    everything = D.pairwise(X, C)
    np.testing.assert_allclose(values, everything.amin(1), atol=1e-12)
    np.testing.assert_allclose(everything[range(len(X)), labels], everything.amin(1), atol=1e-12)
    np.testing.assert_allclose(CenteredPoints(D.generator, X).divergences(C), everything, atol=1e-12)


def test_centers_on_one_piece_are_told_apart_by_their_distance():
    D = BregmanDivergence(MaxAffine([[1.0], [-1.0]], [0.0, 0.0]))  # |x|: D is 0 on either side
    C = torch.tensor([[1.0], [5.0], [-1.0], [-6.0]], dtype=torch.float64)
    X = torch.tensor([[0.5], [4.0], [2.0], [-3.0], [-4.0]], dtype=torch.float64)
    labels, values = nearest_centers(D, X, C)
    assert labels.tolist() == [0, 1, 0, 2, 3]
    assert not values.any()


@pytest.mark.parametrize(("n_features", "k", "scale"), [(3, 7, 1.0), (16, 40, 1e-30), (33, 201, 1e30)])
def test_compiled_assignments_are_those_of_double_precision(n_features, k, scale):
    """Also between centers that single precision cannot tell apart, with sizes that it cannot hold."""
    rng = np.random.default_rng(k)
    X = torch.as_tensor(scale * (rng.standard_normal((1500, n_features)) + 4))
    C = torch.as_tensor(scale * (rng.standard_normal((k, n_features)) + 4))
    C[1::2] = C[::2][: len(C[1::2])] + 1e-9 * C[1::2]  # pairs that are close to each other
    weights = torch.as_tensor(rng.random(len(X)))
    points = CenteredPoints(SquaredEuclidean(), X, weights)
    found = Assignment(points, C)
    by_torch = Assignment(points, C)
    by_torch._find_by_torch(*points.tangents(C))
    exact = (X[:, None] - C).square().sum(2)
    own = exact[range(len(X)), found.labels]
    np.testing.assert_allclose(own, exact.amin(1), rtol=1e-12)
    np.testing.assert_allclose(found.gaps, own, rtol=1e-9)
    assert found.objective == pytest.approx(float(weights @ own), rel=1e-10)
    assert (found.labels != by_torch.labels).double().mean() < 0.01  # both round, the last bits of ties differ
    np.testing.assert_allclose(by_torch.gaps, found.gaps, rtol=1e-9)
    np.testing.assert_allclose(found.counts, points.counts(found.labels, k))
    np.testing.assert_allclose(found._sums, points.sums(found.labels, k), rtol=1e-12)


def test_threads_share_the_points_and_add_up_in_their_order():
    rng = np.random.default_rng(0)
    X, C = (torch.as_tensor(rng.standard_normal((n, 33))) for n in (4000, 201))
    points = CenteredPoints(SquaredEuclidean(), X, torch.as_tensor(rng.random(len(X))))
    before, found = torch.get_num_threads(), []
    try:
        for n_threads in (1, 3, 3):
            torch.set_num_threads(n_threads)
            found.append(Assignment(points, C))
    finally:
        torch.set_num_threads(before)
    alone, one, other = found
    assert torch.equal(one._sums, other._sums)
    assert one.objective == other.objective
    assert torch.equal(alone.labels, one.labels)
    assert torch.equal(alone.gaps, one.gaps)
    assert alone.n_changed == one.n_changed
    np.testing.assert_allclose(alone._sums, one._sums, rtol=1e-10)
    np.testing.assert_allclose(alone.counts, one.counts, rtol=1e-14)
    assert alone.objective == pytest.approx(one.objective, rel=1e-14)


@pytest.mark.parametrize("k", [5, 40])
def test_many_blocks_give_what_one_gives(k):
    rng = np.random.default_rng(1)
    D = BregmanDivergence(max_affine(rng, temperature=0.3))
    X = torch.as_tensor(rng.uniform(0.05, 0.95, (300, N_FEATURES)))
    expected = nearest_centers(D, X, X[:k])
    with at_most(200):
        labels, values = nearest_centers(D, X, X[:k])
    np.testing.assert_allclose(values, expected[1], atol=1e-14)
    assert torch.equal(labels, expected[0])


@pytest.mark.parametrize("shift", [1e3, 1e6])
def test_digits_are_not_lost_far_from_zero(shift):
    rng = np.random.default_rng(0)
    X = torch.as_tensor(np.exp2(-10) * rng.integers(-900, 900, (200, 3)))  # exact after the shift
    near = lloyd(divergence("sqeuclidean"), X, 4, seed=state(), init=X[:4], tol=0)
    far = lloyd(divergence("sqeuclidean"), X + shift, 4, seed=state(), init=X[:4] + shift, tol=0)
    assert torch.equal(near.labels, far.labels)
    assert far.inertia == pytest.approx(near.inertia, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", sorted(set(GENERATORS) - {"logistic", "sharp", "sharp and strict", "sum"}))
def test_divergences_from_the_mean_have_their_digits(name, dtype):
    rng = np.random.default_rng(0)
    f = GENERATORS[name](rng)
    X = torch.as_tensor(rng.standard_normal((300, N_FEATURES)) + 1050).to(dtype)
    points = CenteredPoints(f.to(dtype), X)
    exact = BregmanDivergence(f).paired(X.double(), points.origin.double().expand_as(X))
    np.testing.assert_allclose(points.values, exact, rtol=2e4 * torch.finfo(dtype).eps, atol=0)


def test_sizes_of_many_orders_under_itakura_saito():
    X = torch.as_tensor(np.exp(np.random.default_rng(0).uniform(np.log(1e-18), 0, (300, 3))))
    D = divergence("itakura-saito")
    found = lloyd(D, X, 6, seed=state(), tol=0)
    exact = torch.stack([D.paired(X, c.expand_as(X)) for c in found.centers], dim=1)
    assert torch.equal(found.labels, exact.argmin(1))
    assert (np.diff(found.history) <= 0).all()
    assert found.history[-1] == pytest.approx(float(exact.amin(1).sum()), rel=1e-6)
    means = torch.stack([X[found.labels == k].mean(0) for k in range(6)])
    np.testing.assert_allclose(found.centers, means, rtol=1e-10)


def test_single_precision():
    D, X, _ = draw("kl", 0)
    double, single = (lloyd(D, x, 4, seed=state(), init=x[30:34]) for x in (X, X.float()))
    assert single.centers.dtype == torch.float32
    np.testing.assert_allclose(single.centers, double.centers, rtol=1e-5)
    assert single.inertia == pytest.approx(double.inertia, rel=1e-4)


# --- Lloyd's iteration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_squared_euclidean_agrees_with_scikit_learn(weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 4)) + 3 * rng.integers(0, 3, (500, 1))
    weights = rng.random(500) if weighted else None
    found = lloyd(
        divergence("sqeuclidean"),
        torch.as_tensor(X),
        6,
        seed=state(),
        init=torch.as_tensor(X[:6]),
        tol=0,
        weights=None if weights is None else torch.as_tensor(weights),
    )
    peer = KMeans(6, init=X[:6], n_init=1, tol=0).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(found.labels, peer.labels_)
    np.testing.assert_allclose(found.centers, peer.cluster_centers_, atol=1e-10)
    assert found.inertia == pytest.approx(peer.inertia_, rel=1e-12)


def test_squared_euclidean_agrees_with_faiss():
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((2000, 8)) + 6 * rng.standard_normal((5, 8))[rng.integers(0, 5, 2000)]).astype(np.float32)
    peer = faiss.Kmeans(8, 5, niter=50, min_points_per_centroid=1, max_points_per_centroid=2000)
    peer.train(X, init_centroids=X[:5])
    found = lloyd(divergence("sqeuclidean"), torch.as_tensor(X), 5, seed=state(), init=torch.as_tensor(X[:5]), tol=0)
    assert found.inertia == pytest.approx(peer.obj[-1], rel=1e-4)
    np.testing.assert_allclose(found.centers, peer.centroids, atol=1e-3)


def test_mahalanobis_is_euclidean_on_whitened_points():
    rng = np.random.default_rng(0)
    X, root = rng.standard_normal((300, 3)), rng.standard_normal((3, 3))
    D = divergence("mahalanobis", matrix=root @ root.T)
    found = lloyd(D, torch.as_tensor(X), 5, seed=state(), init=torch.as_tensor(X[:5]), tol=0)
    peer = KMeans(5, init=X[:5] @ root, n_init=1, tol=0).fit(X @ root)
    np.testing.assert_array_equal(found.labels, peer.labels_)
    np.testing.assert_allclose(found.centers.numpy() @ root, peer.cluster_centers_, atol=1e-10)
    assert found.inertia == pytest.approx(peer.inertia_, rel=1e-10)


def test_kl_on_the_simplex_equals_brute_force():
    X = np.random.default_rng(0).dirichlet(np.ones(5), 200)
    found = lloyd(divergence("kl"), torch.as_tensor(X), 4, seed=state(), tol=0)
    C = plus_plus(
        CenteredPoints(KullbackLeibler(), torch.as_tensor(X)), 4, state()
    ).numpy()  # its seeds, then the iteration written out
    for _ in range(300):
        labels = rel_entr(X[:, None], C).sum(2).argmin(1)
        C = np.stack([X[labels == k].mean(0) for k in range(4)])
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.centers, C, atol=1e-12)
    assert found.inertia == pytest.approx(rel_entr(X, C[labels]).sum(), rel=1e-10)


@every_generator
@settings(max_examples=40, deadline=None)
def test_the_objective_never_increases_and_the_end_is_a_fixed_point(name, seed):
    D, X, weights = draw(name, seed)
    X = torch.as_tensor(moved(name, X.numpy(), seed))
    k, there, eps = 2 + seed % 9, D.to(X.dtype), torch.finfo(X.dtype).eps
    steps = [lloyd(there, X, k, seed=state(seed), weights=weights, tol=0, max_iter=m) for m in (1, 2, 3, 5, 300)]
    X, steps = X.double(), [replace(found, centers=found.centers.double()) for found in steps]
    values = [objective(D, X, weights, found) for found in steps]  # not the iteration's own account
    size = 30 * eps * rounding(D, X, weights)
    assert (np.diff(values) <= size).all()
    found = steps[-1]
    assert (np.diff(found.history) <= 0).all()
    assert found.inertia == pytest.approx(values[-1], rel=1e4 * eps, abs=size)
    assert found.history[-1] == pytest.approx(values[-1], abs=size)
    assert found.n_iter < 300

    every = torch.stack([D.paired(X, c.expand_as(X)) for c in found.centers], dim=1)
    np.testing.assert_allclose(every[range(len(X)), found.labels], every.amin(1), rtol=1e4 * eps, atol=size)
    means = torch.stack([(weights * (found.labels == j)) @ X / (weights * (found.labels == j)).sum() for j in range(k)])
    at_means = float(weights @ D.paired(X, torch.where(means.isnan(), found.centers, means)[found.labels]))
    assert values[-1] <= at_means + size


@every_generator
@settings(max_examples=30, deadline=None)
def test_weights_are_repetitions(name, seed):
    D, X, weights = draw(name, seed)
    repeated = X.repeat_interleave(weights.long(), dim=0)
    counted = weights > 0
    start = X[12:48][counted[12:48]][:3]  # none of them empty: a point that fills a cluster goes there as a whole
    one = lloyd(D, X, 3, seed=state(), weights=weights, init=start, tol=0)
    other = lloyd(D, repeated, 3, seed=state(), init=start, tol=0)
    assert one.inertia == pytest.approx(other.inertia, rel=1e-9, abs=1e-12)
    if name != "sharp":  # whose ties between centers rounding decides
        np.testing.assert_allclose(one.centers, other.centers, atol=1e-9)
        expected = one.labels[counted].repeat_interleave(weights[counted].long())
        assert torch.equal(expected, other.labels)


def test_a_loose_tolerance_stops_earlier():
    X = torch.as_tensor(np.random.default_rng(0).standard_normal((2000, 3)))
    loose, tight = (lloyd(divergence("sqeuclidean"), X, 10, seed=state(), tol=tol) for tol in (1e-2, 0))
    assert loose.n_iter < tight.n_iter
    assert torch.equal(loose.labels, nearest_centers(divergence("sqeuclidean"), X, loose.centers)[0])


# --- empty clusters, duplicates, weights ---------------------------------------------------------------------------


def test_empty_clusters_get_the_farthest_points_and_the_objective_falls():
    X = torch.tensor([[0.0], [1.0], [10.0], [30.0]], dtype=torch.float64)
    start = torch.tensor([[0.0], [-50.0], [-60.0]], dtype=torch.float64)
    points = CenteredPoints(SquaredEuclidean(), X)
    found = Assignment(points, start)
    labels, gaps = found.labels, found.gaps
    assert labels.tolist() == [0, 0, 0, 0]
    assert fill_empty(points, labels, gaps, 3).tolist() == [0, 0, 2, 1]
    found = lloyd(divergence("sqeuclidean"), X, 3, seed=state(), init=start, tol=0)
    assert sorted(found.centers[:, 0].tolist()) == [0.5, 10.0, 30.0]
    assert found.inertia == pytest.approx(0.5)


def test_a_cluster_does_not_lose_its_last_point():
    X = torch.tensor([[0.0], [9.0], [1.0]], dtype=torch.float64)
    start = torch.tensor([[0.5], [20.0], [99.0]], dtype=torch.float64)
    points = CenteredPoints(SquaredEuclidean(), X)
    found = Assignment(points, start)
    labels, gaps = found.labels, found.gaps
    assert labels.tolist() == [0, 0, 0]
    assert sorted(fill_empty(points, labels, gaps, 3).tolist()) == [0, 1, 2]
    assert fill_empty(points, torch.tensor([0, 1, 0]), torch.tensor([0.1, 9.0, 0.2]).double(), 3).tolist() == [0, 1, 2]


def test_more_clusters_than_distinct_points():
    X = torch.tensor([[0.1], [0.7], [0.3]], dtype=torch.float64).repeat(4, 1)
    found = lloyd(divergence("itakura-saito"), X, 5, seed=state(), tol=0)
    assert found.inertia == 0
    assert len(found.labels.unique()) == 3


def test_points_of_no_weight_neither_count_nor_seed():
    X = torch.cat([torch.randn(40, 2, generator=torch.Generator().manual_seed(0)), torch.full((5, 2), 1e3)]).double()
    weights = torch.ones(45).double()
    weights[40:] = 0
    for init in ("k-means++", "random"):
        for seed in range(5):
            found = lloyd(divergence("sqeuclidean"), X, 8, seed=state(seed), weights=weights, init=init)
            assert found.centers.abs().max() < 10
            assert found.labels.shape == (45,)


# --- seeds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sqeuclidean", "kl", "soft"])
def test_seeds_find_clusters_that_are_far_apart(name):
    rng = np.random.default_rng(0)
    D = BregmanDivergence(GENERATORS[name](rng) if name != "soft" else max_affine(rng, temperature=0.05))
    homes = np.array([[0.1, 0.1, 0.1], [0.9, 0.1, 0.1], [0.1, 0.9, 0.1], [0.1, 0.1, 0.9], [0.9, 0.9, 0.9]])
    X = torch.as_tensor(homes.repeat(30, 0) + 1e-3 * rng.random((150, 3)))
    for seed in range(10):
        chosen = plus_plus(CenteredPoints(D.generator, X), 5, state(seed))
        nearest = nearest_centers(divergence("sqeuclidean"), chosen, torch.as_tensor(homes))[0]
        assert sorted(nearest.tolist()) == [0, 1, 2, 3, 4]


def test_seeds_of_a_plain_maximum_spread_out_inside_its_pieces():
    D = BregmanDivergence(MaxAffine([[1.0], [-1.0]], [0.0, 0.0]))
    X = torch.as_tensor(np.r_[[-8.0] * 5, [-2.0] * 5, [3.0] * 5, [9.0] * 5][:, None])
    for seed in range(10):
        chosen = plus_plus(CenteredPoints(D.generator, X), 4, state(seed))
        assert sorted(chosen[:, 0].tolist()) == [-8, -2, 3, 9]


def test_seeds_of_equal_points():
    X = torch.full((6, 2), 0.3).double()
    assert torch.equal(plus_plus(CenteredPoints(KullbackLeibler(), X), 4, state()), X[:4])


def test_the_first_seed_is_drawn_by_weight():
    X, weights = torch.tensor([[0.0], [1.0], [2.0]]).double(), torch.tensor([1.0, 0.0, 3.0]).double()
    chosen = [plus_plus(CenteredPoints(SquaredEuclidean(), X, weights), 1, state(s)).item() for s in range(400)]
    assert set(chosen) == {0.0, 2.0}
    assert np.mean(np.array(chosen) == 2.0) == pytest.approx(0.75, abs=0.07)


# --- errors --------------------------------------------------------------------------------------------------------


def test_errors_say_what_was_found_and_what_is_accepted():
    D, X = divergence("kl"), torch.rand(5, 2).double() + 0.1
    with pytest.raises(ValueError, match="X must be at least 0 for KullbackLeibler, got -1"):
        lloyd(D, X.clone().index_fill_(0, torch.tensor(1), -1.0), 2, seed=state())
    with pytest.raises(ValueError, match="X must be positive for ItakuraSaito, got 0"):
        lloyd(divergence("itakura-saito"), X.clone().index_fill_(0, torch.tensor(1), 0.0), 2, seed=state())
    with pytest.raises(ValueError, match="init must be at least 0 for KullbackLeibler, got -1"):
        lloyd(D, X, 2, seed=state(), init=-torch.ones(2, 2))
    with pytest.raises(ValueError, match="init must have one row for each of 3 clusters, got 2"):
        lloyd(D, X, 3, seed=state(), init=X[:2])
    with pytest.raises(ValueError, match="init must be 'k-means\\+\\+', 'random' or an array of centers, got 'far'"):
        lloyd(D, X, 3, seed=state(), init="far")
    with pytest.raises(ValueError, match="n_clusters must be at most the number of rows of X, n_samples=5, got 6"):
        lloyd(D, X, 6, seed=state())
    with pytest.raises(ValueError, match="n_clusters must be at most the number of rows of X, n_samples=5, got 6"):
        lloyd(D, X, 6, seed=state(), init=torch.ones(6, 2))
    with pytest.raises(ValueError, match="with a positive weight, n_samples=1, got 2"):
        lloyd(D, X, 2, seed=state(), weights=torch.eye(5)[0])
    with pytest.raises(ValueError, match="weights must be finite, at least 0 and not all zero, got from -1 to 1"):
        lloyd(D, X, 2, seed=state(), weights=torch.tensor([-1.0, 1, 1, 1, 1]))
    with pytest.raises(ValueError, match=r"weights must have shape \(5,\), got \(4,\)"):
        lloyd(D, X, 2, seed=state(), weights=torch.ones(4))
