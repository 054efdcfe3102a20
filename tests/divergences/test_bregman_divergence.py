import pickle
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.special import kl_div, rel_entr

from bregnet import (
    BregmanDivergence,
    Generator,
    ItakuraSaito,
    KullbackLeibler,
    Logistic,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
    divergence,
)
from bregnet._core.chunks import at_most

N_FEATURES = 3


def max_affine(rng, temperature=0.0, strictness=0.0, n_pieces=7):
    slopes, intercepts = rng.standard_normal((n_pieces, N_FEATURES)), rng.standard_normal(n_pieces)
    return MaxAffine(slopes, intercepts, temperature=temperature, strictness=strictness)


def random_matrix(rng):
    root = rng.standard_normal((N_FEATURES, N_FEATURES))
    return root @ root.T


class Exponential(Generator):
    """Only what a generator must have."""

    def _values(self, x):
        return x.exp().sum(1)

    def _gradients(self, x):
        return x.exp()


GENERATORS = {
    "exponential": lambda rng: Exponential(),
    "sharp": max_affine,
    "soft": lambda rng: max_affine(rng, temperature=0.3),
    "sharp and strict": lambda rng: max_affine(rng, strictness=0.7),
    "soft and strict": lambda rng: max_affine(rng, temperature=0.3, strictness=[0.5, 0.0, 2.0]),
    "quadratic": lambda rng: Quadratic(random_matrix(rng)),
    "sqeuclidean": lambda rng: SquaredEuclidean(),
    "weighted sqeuclidean": lambda rng: SquaredEuclidean(rng.random(N_FEATURES)),
    "kl": lambda rng: KullbackLeibler(),
    "itakura-saito": lambda rng: ItakuraSaito(),
    "logistic": lambda rng: Logistic(),
    "sum": lambda rng: 2.0 * max_affine(rng, temperature=0.3) + KullbackLeibler() + 0.5 * SquaredEuclidean(),
}
SMOOTH = [name for name in GENERATORS if not name.startswith("sharp")]
every_generator = given(name=st.sampled_from(sorted(GENERATORS)), seed=st.integers(0, 9999))
every_smooth_generator = given(name=st.sampled_from(SMOOTH), seed=st.integers(0, 9999))
few = settings(max_examples=60, deadline=None)


def draw(name, seed, n=12):
    """A divergence and two sets of points in the domain of all generators, some of them shared."""
    rng = np.random.default_rng(seed)
    X, Y = rng.uniform(0.05, 0.95, (2, n, N_FEATURES))
    Y[: n // 4] = X[: n // 4]
    return BregmanDivergence(GENERATORS[name](rng)), X, Y


def by_definition(D, X, Y):
    f = D.generator
    return f(X)[:, None] - f(Y) - ((X[:, None] - Y) * f.gradient(Y)).sum(2)


@every_generator
@few
def test_the_definition(name, seed):
    D, X, Y = draw(name, seed)
    matrix = D.pairwise(X, Y)
    np.testing.assert_allclose(matrix, by_definition(D, X, Y), atol=1e-12)
    np.testing.assert_allclose(D.paired(X, Y), matrix.diagonal(), atol=1e-12)
    assert (matrix >= 0).all()
    assert (D.paired(X, Y) >= 0).all()


@every_generator
@few
def test_a_point_is_at_no_distance_from_itself(name, seed):
    D, X, _ = draw(name, seed)
    assert (D.paired(X, X.copy()) == 0).all()
    assert (D.pairwise(X).diagonal() == 0).all()
    np.testing.assert_allclose(D.pairwise(X), D.pairwise(X, X.copy()), atol=1e-12)


@every_generator
@few
def test_convex_in_the_first_argument(name, seed):
    D, X, Y = draw(name, seed)
    other = np.random.default_rng(seed + 1).permutation(X)
    between = D.pairwise((X + other) / 2, Y)
    assert (between <= (D.pairwise(X, Y) + D.pairwise(other, Y)) / 2 + 1e-12).all()


@every_generator
@few
def test_the_lift_is_the_divergence(name, seed):
    D, X, Q = draw(name, seed)
    for side, expected in (("right", D.pairwise(Q, X)), ("left", D.pairwise(X, Q).T)):
        items, queries = D.lift_items(X, side), D.lift_queries(Q, side)
        assert items.shape == queries.shape == (len(X), N_FEATURES + 1)
        np.testing.assert_allclose(D.lift_offsets(Q, side) - queries @ items.T, expected, atol=1e-11)


@every_generator
@few
def test_batches_do_not_change_values(name, seed):
    D, X, Y = draw(name, seed)
    matrix, square, pairs = D.pairwise(X, Y), D.pairwise(X), D.paired(X, Y)
    with at_most(29):
        np.testing.assert_allclose(D.pairwise(X, Y), matrix, atol=1e-12)
        np.testing.assert_allclose(D.pairwise(X), square, atol=1e-12)
        np.testing.assert_allclose(D.paired(X, Y), pairs, rtol=1e-9, atol=1e-15)
        assert (D.pairwise(X).diagonal() == 0).all()
    np.testing.assert_allclose(D.pairwise(X, Y, batch_size=5), matrix, atol=1e-12)
    blocks = list(D.pairwise_blocks(X, batch_size=5))
    assert [rows.stop - rows.start for rows, _ in blocks] == [5, 5, 2]
    np.testing.assert_allclose(np.concatenate([block for _, block in blocks]), square, atol=1e-12)


@every_smooth_generator
@few
def test_gradients_are_those_of_autograd(name, seed):
    D, X, Y = draw(name, seed)
    x, y = torch.tensor(X, requires_grad=True), torch.tensor(Y, requires_grad=True)
    D.generator(x).sum().backward()
    np.testing.assert_allclose(x.grad, D.generator.gradient(X), atol=1e-11)
    x.grad = None
    D.paired(x, y).sum().backward()
    np.testing.assert_allclose(x.grad, D.generator.gradient(X) - D.generator.gradient(Y), atol=1e-10)
    through_pairs = x.grad.clone(), y.grad.clone()
    x.grad = y.grad = None
    D.pairwise(x, y, batch_size=5).diagonal().sum().backward()
    for found, expected in zip((x.grad, y.grad), through_pairs, strict=True):
        np.testing.assert_allclose(found[3:], expected[3:], atol=1e-9)  # beyond the shared points, clipped at 0


@given(seed=st.integers(0, 9999))
@settings(max_examples=20, deadline=None)
def test_textbook_formulas(seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.uniform(0.01, 0.99, (2, 8, 4))
    matrix = np.cov(rng.standard_normal((4, 30)))
    x, y = X[:, None], Y[None]
    expected = {
        "sqeuclidean": cdist(X, Y, "sqeuclidean"),
        "kl": kl_div(x, y).sum(2),
        "itakura-saito": (x / y - np.log(x / y) - 1).sum(2),
        "logistic": (rel_entr(x, y) + rel_entr(1 - x, 1 - y)).sum(2),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(divergence(name).pairwise(X, Y), values, atol=1e-11)
        np.testing.assert_allclose(divergence(name).paired(X, Y), values.diagonal(), rtol=1e-12)
    mahalanobis = divergence("mahalanobis", matrix=np.linalg.inv(matrix))
    np.testing.assert_allclose(mahalanobis.pairwise(X, Y), cdist(X, Y, "mahalanobis", VI=np.linalg.inv(matrix)) ** 2)
    weights = rng.random(4)
    weighted = divergence("sqeuclidean", weights=weights).pairwise(X, Y)
    np.testing.assert_allclose(weighted, cdist(X, Y, "sqeuclidean", w=weights))


def test_zero_is_allowed_where_the_tangent_is_not_taken():
    P, Q = np.array([[0.0, 1.0]]), np.array([[0.25, 0.75]])
    np.testing.assert_allclose(divergence("kl").paired(P, Q), rel_entr(P, Q).sum())
    np.testing.assert_allclose(divergence("logistic").pairwise(P, Q), 2 * np.log(1 / 0.75))
    points = torch.tensor(P, requires_grad=True)
    divergence("kl").paired(points, torch.tensor(Q)).sum().backward()
    assert torch.isfinite(points.grad).all()


def exact_soft(f, x, y):
    """The divergence of a smoothed max-affine function, to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        exact = lambda values: [Decimal(float(value)) for value in values]  # noqa: E731
        dot = lambda a, b: sum(p * q for p, q in zip(a, b, strict=True))  # noqa: E731
        x, y, tau = exact(x), exact(y), Decimal(f.temperature)
        slopes, intercepts = [exact(row) for row in f.slopes], exact(f.intercepts)
        at_y = [((dot(a, y) + b) / tau).exp() for a, b in zip(slopes, intercepts, strict=True)]
        shares = [value / sum(at_y) for value in at_y]
        z = [dot(a, [p - q for p, q in zip(x, y, strict=True)]) / tau for a in slopes]
        return float(tau * (dot(shares, [value.exp() for value in z]).ln() - dot(shares, z)))


@pytest.mark.parametrize("distance", [1e-13, 1e-8, 1e-4, 1e-2, 1.0, 30.0])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_smoothed_divergences_to_full_precision_at_any_distance(distance, temperature):
    rng = np.random.default_rng(0)
    f = max_affine(rng, temperature)
    Y = rng.standard_normal((10, N_FEATURES))
    X = Y + distance * rng.standard_normal(Y.shape)
    expected = [exact_soft(f, x, y) for x, y in zip(X, Y, strict=True)]
    assert min(expected) > 0
    np.testing.assert_allclose(BregmanDivergence(f).paired(X, Y), expected, rtol=1e-10)


@pytest.mark.parametrize("step", [1e-12, 1e-7, 1e-3, 0.3, 0.8])
def test_classical_divergences_to_full_precision_at_any_distance(step):
    Y = np.random.default_rng(0).uniform(0.2, 0.55, (20, 1))
    X = Y * (1 + step)
    with localcontext() as context:
        context.prec = 60
        pairs = [(Decimal(float(x)), Decimal(float(y))) for x, y in zip(X[:, 0], Y[:, 0], strict=True)]
        expected = {
            "kl": [x * (x / y).ln() - x + y for x, y in pairs],
            "itakura-saito": [x / y - (x / y).ln() - 1 for x, y in pairs],
            "logistic": [x * (x / y).ln() + (1 - x) * ((1 - x) / (1 - y)).ln() for x, y in pairs],
        }
    for name, values in expected.items():
        np.testing.assert_allclose(divergence(name).paired(X, Y), [float(value) for value in values], rtol=1e-13)


def test_squared_distances_far_from_the_origin():
    X = 1e6 + np.random.default_rng(0).standard_normal((20, 3))
    np.testing.assert_allclose(divergence("sqeuclidean").pairwise(X), cdist(X, X, "sqeuclidean"), atol=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_overflow_at_large_scales(temperature, dtype):
    rng = np.random.default_rng(0)
    x, y = (torch.tensor(points, dtype=dtype, requires_grad=True) for points in 1e6 * rng.standard_normal((2, 20, 3)))
    slopes = torch.tensor(1e3 * rng.standard_normal((7, 3)), dtype=dtype, requires_grad=True)
    intercepts = torch.tensor(rng.standard_normal(7), dtype=dtype, requires_grad=True)
    D = BregmanDivergence(MaxAffine(slopes, intercepts, temperature=temperature))
    for values in (D.paired(x, y), D.paired(x, x), D.pairwise(x, y), D.pairwise(x)):
        assert torch.isfinite(values).all()
        assert (values >= 0).all()
        for gradient in torch.autograd.grad(values.sum(), (x, y, slopes, intercepts), allow_unused=True):
            assert gradient is None or torch.isfinite(gradient).all()


def test_cold_smoothing_is_the_plain_maximum():
    sharp, X, Y = draw("sharp", 0)
    f = sharp.generator
    for temperature in (1e-2, 1e-4, 1e-8):
        cold = BregmanDivergence(MaxAffine(f.slopes, f.intercepts, temperature=temperature))
        largest = temperature * np.log(f.n_pieces) + 1e-12
        assert np.abs(cold.generator(X) - f(X)).max() <= largest
    np.testing.assert_allclose(cold.pairwise(X, Y), sharp.pairwise(X, Y), atol=1e-6)
    np.testing.assert_allclose(cold.paired(X, Y), sharp.paired(X, Y), atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.3])
@pytest.mark.parametrize("spread", [1e-3, 1.0])
def test_fine_tuning_follows_finite_differences(temperature, spread):
    rng = np.random.default_rng(3)
    start = max_affine(rng, temperature, strictness=0.5)
    slopes, intercepts = (torch.nn.Parameter(torch.tensor(a)) for a in (start.slopes, start.intercepts))
    Y = torch.tensor(rng.standard_normal((15, N_FEATURES)))
    X = Y + spread * torch.tensor(rng.standard_normal(Y.shape))

    def loss(slopes, intercepts):
        f = MaxAffine(slopes, intercepts, temperature=temperature, strictness=0.5)
        return BregmanDivergence(f).paired(X, Y) / spread**2

    assert torch.autograd.gradcheck(loss, (slopes, intercepts), eps=1e-6, atol=1e-5)


def test_fine_tuning_one_function_for_several_steps():
    rng = np.random.default_rng(0)
    slopes = torch.nn.Parameter(torch.tensor(rng.standard_normal((5, N_FEATURES))))
    D = BregmanDivergence(MaxAffine(slopes, rng.standard_normal(5), temperature=0.5, strictness=0.1))
    X, Y = (torch.tensor(points) for points in rng.standard_normal((2, 30, N_FEATURES)))
    optimizer = torch.optim.SGD([slopes], lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = D.paired(X, Y).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert isinstance(D.pairwise(X.numpy()), np.ndarray)


@pytest.mark.parametrize("n", [100, 1000])  # tangents that the budget allows to keep, and too many
@pytest.mark.parametrize("name", ["sharp", "soft", "kl", "sum"])
def test_streams_stay_within_the_budget(name, n, monkeypatch):
    budget = 4000
    D, X, _ = draw(name, 0, n=n)
    f = D.generator
    compute_block, compute_tangents = f._block, f._tangents

    def block(x, tangents):
        out = compute_block(x, tangents)
        assert out.numel() <= budget
        return out

    def tangents(y):
        assert len(y) * f._width(N_FEATURES) <= budget
        return compute_tangents(y)

    monkeypatch.setattr(f, "_block", block)
    monkeypatch.setattr(f, "_tangents", tangents)
    seen = 0
    with at_most(budget):
        for rows, values in D.pairwise_blocks(X):
            assert rows.start == seen
            assert values.shape == (rows.stop - rows.start, n)
            assert values.size <= budget
            seen = rows.stop
    assert seen == n


def test_kinds_of_arrays():
    D, X, Y = draw("soft and strict", 0)
    x, y = torch.tensor(X), torch.tensor(Y)
    for method in (D.pairwise, D.paired):
        assert isinstance(method(X, Y), np.ndarray)
        assert isinstance(method(x, y), torch.Tensor)
        np.testing.assert_array_equal(method(X, Y), method(x, y))
        assert method(X[:0], Y[:0]).size == 0
        assert D.to(torch.float32).paired(X, Y).dtype == np.float32
    assert isinstance(next(D.pairwise_blocks(x))[1], torch.Tensor)
    assert isinstance(D.lift_items(x), torch.Tensor)
    np.testing.assert_allclose(D.to(torch.float32).pairwise(X, Y), D.pairwise(X, Y), atol=1e-5)
    free = divergence("kl")
    assert free.paired(X.astype(np.float32), Y.astype(np.float32)).dtype == np.float32
    assert free.pairwise(X.astype(np.float32), Y).dtype == np.float64
    assert free.n_features is None
    assert D.n_features == N_FEATURES
    assert repr(free) == "BregmanDivergence(KullbackLeibler())"


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_pickles(name):
    D, X, Y = draw(name, 0)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(D)).pairwise(X, Y), D.pairwise(X, Y))


def test_names_generators_and_divergences_are_all_accepted():
    D = divergence("sqeuclidean")
    assert divergence(D) is D
    assert divergence(D.generator).generator is D.generator
    assert isinstance(divergence("itakura-saito").generator, ItakuraSaito)


OK = np.full((2, 3), 0.5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: BregmanDivergence([1.0]), TypeError, r"generator must be a Generator, .* got \[1.0\]"),
        (lambda: divergence("euclid"), ValueError, "one of 'sqeuclidean', 'mahalanobis', 'kl', .* got 'euclid'"),
        (lambda: divergence(None), ValueError, "divergence must be one of .* got None"),
        (lambda: divergence("mahalanobis"), TypeError, "'mahalanobis': missing a required argument: 'matrix'"),
        (lambda: divergence("kl", matrix=OK), TypeError, "'kl': got an unexpected keyword argument 'matrix'"),
        (lambda: divergence(KullbackLeibler(), a=1), TypeError, "parameters go with a name, got a with Kullback"),
        (lambda: divergence("kl").pairwise(OK[0]), ValueError, r"X must have shape \(n_points, n_features\), got \(3,"),
        (
            lambda: divergence("kl").pairwise(OK, OK[:, :2]),
            ValueError,
            r"Y must have shape \(n_points, 3\), got \(2, 2",
        ),
        (lambda: divergence("kl").paired(OK, OK[:1]), ValueError, "X and Y must have as many rows .* got 2 and 1"),
        (lambda: divergence("kl").pairwise([["a"]]), TypeError, "X must hold real numbers, got dtype <U1"),
        (lambda: divergence("kl").pairwise(OK, OK * np.nan), ValueError, "Y must be finite, got nan in row 0"),
        (lambda: divergence("kl").pairwise(OK, batch_size=0), ValueError, "batch_size must be at least 1, got 0"),
        (lambda: divergence("kl").pairwise_blocks(OK, batch_size=1.5), TypeError, "batch_size must be an integer"),
        (
            lambda: divergence("kl").lift_items(OK, side="up"),
            ValueError,
            "side must be one of 'right', 'left', got 'up'",
        ),
        (lambda: divergence("kl").lift_queries(-OK), ValueError, "Q must be at least 0 for Kullback.* got -0.5"),
        (lambda: divergence("kl").lift_items(0 * OK), ValueError, "X must be positive at the tangent points"),
        (
            lambda: divergence("kl").paired(OK, 0 * OK),
            ValueError,
            "Y must be positive at the tangent .* got 0 in row 0",
        ),
        (lambda: divergence("kl").pairwise(-OK, OK), ValueError, "X must be at least 0 for KullbackLeibler, got -0.5"),
        (lambda: divergence("itakura-saito").paired(0 * OK, OK), ValueError, "X must be positive for ItakuraSaito"),
        (lambda: divergence("logistic").paired(3 * OK, OK), ValueError, "X must be between 0 and 1 for Logistic"),
        (lambda: divergence("logistic").paired(OK, 2 * OK), ValueError, "Y must be strictly between 0 and 1 at the"),
        (lambda: (KullbackLeibler() + SquaredEuclidean())(-OK), ValueError, "X must be at least 0 for KullbackLeibler"),
        (lambda: Quadratic(OK), ValueError, r"matrix must have shape \(n_features, n_features\), got \(2, 3\)"),
        (lambda: Quadratic([[1.0, 2.0], [0.0, 1.0]]), ValueError, "matrix must be symmetric, got .* differ by 2"),
        (lambda: Quadratic([[1.0, 0], [0, -1]]), ValueError, "positive semi-definite, got the eigenvalue -1"),
        (lambda: SquaredEuclidean([-1.0]), ValueError, "weights must be at least 0, got -1"),
        (lambda: SquaredEuclidean(2.0), ValueError, r"weights must have shape \(n_features,\), got \(\)"),
    ],
)
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_functional_derivatives_of_torch_are_those_of_autograd():
    rng = np.random.default_rng(0)
    slopes, intercepts, x, y = (torch.as_tensor(rng.standard_normal(shape)) for shape in ((6, 4), (6,), (3, 4), (3, 4)))

    def total(slopes, x):
        return BregmanDivergence(MaxAffine(slopes, intercepts, temperature=0.3)).paired(x, y).sum()

    given = slopes.clone().requires_grad_(), x.clone().requires_grad_()
    expected = torch.autograd.grad(total(*given), given)
    torch.testing.assert_close(torch.func.grad(total, argnums=(0, 1))(slopes, x), expected)


def test_tensors_with_the_negative_bit():
    D, x = BregmanDivergence(SquaredEuclidean()), torch.arange(6.0).view(2, 3)
    negative = torch.complex(x, x).conj().imag  # -x, as a flag of the tensor
    torch.testing.assert_close(D.paired(negative, x), 4 * x.square().sum(1))
