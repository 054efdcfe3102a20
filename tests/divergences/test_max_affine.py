import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bregnet import DifferenceOfConvex, Generator, GeneratorSum, MaxAffine, Quadratic, SquaredEuclidean
from bregnet._core.chunks import at_most


def random_function(seed, temperature=0.0, strictness=0.0, n_pieces=7, d=3):
    rng = np.random.default_rng(seed)
    return MaxAffine(
        rng.standard_normal((n_pieces, d)),
        rng.standard_normal(n_pieces),
        temperature=temperature,
        strictness=strictness,
    )


@given(seed=st.integers(0, 999), temperature=st.sampled_from([0.0, 0.1, 2.0]), strictness=st.sampled_from([0.0, 0.7]))
@settings(max_examples=40, deadline=None)
def test_values_and_gradients_follow_the_definition(seed, temperature, strictness):
    f = random_function(seed, temperature, strictness)
    X = np.random.default_rng(seed + 1).standard_normal((20, 3))
    pieces = X @ f.slopes.T + f.intercepts
    expected = pieces.max(1) if temperature == 0 else temperature * np.log(np.exp(pieces / temperature).sum(1))
    np.testing.assert_allclose(f(X), expected + strictness / 2 * (X**2).sum(1))
    points = torch.tensor(X, requires_grad=True)
    f.to("cpu")(points).sum().backward()
    np.testing.assert_allclose(f.gradient(X), points.grad.numpy(), atol=1e-12)


@given(seed=st.integers(0, 999), temperature=st.sampled_from([0.0, 0.3]))
@settings(max_examples=20, deadline=None)
def test_the_gradient_supports_the_function(seed, temperature):
    f = random_function(seed, temperature)
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, 30, 3)) * 2
    assert (f(x) >= f(y) + (f.gradient(y) * (x - y)).sum(1) - 1e-9).all()


def test_strictness_may_differ_between_features():
    flat, curved = random_function(0), random_function(0, strictness=np.array([0.5, 0.0, 2.0]))
    X = np.random.default_rng(1).standard_normal((9, 3))
    np.testing.assert_allclose(curved(X) - flat(X), X**2 @ [0.25, 0.0, 1.0])
    np.testing.assert_allclose(curved.gradient(X) - flat.gradient(X), X * [0.5, 0.0, 2.0], atol=1e-14)
    np.testing.assert_array_equal(curved.strictness, [0.5, 0.0, 2.0])
    assert repr(curved) == "MaxAffine(7 pieces, 3 features, strictness=per feature)"
    assert random_function(0, strictness=0.7).strictness == 0.7


def test_smoothing_lies_above_the_maximum_by_at_most_log_k():
    sharp, soft = random_function(0), random_function(0, temperature=0.2)
    X = np.random.default_rng(1).standard_normal((50, 3))
    assert (soft(X) >= sharp(X)).all()
    assert (soft(X) <= sharp(X) + 0.2 * np.log(7) + 1e-12).all()


def test_no_overflow_at_large_scales():
    f = MaxAffine([[1e6], [-1e6]], [0.0, 0.0], temperature=1e-3)
    np.testing.assert_allclose(f(np.array([[1e6], [-1e6]])), [1e12, 1e12])
    assert np.isfinite(f.gradient(np.array([[1e6]]))).all()


def test_batches_do_not_change_values():
    f = random_function(3, temperature=0.1)
    X = np.random.default_rng(0).standard_normal((101, 3))
    whole = f(X), f.gradient(X), f.active(X)
    with at_most(50):
        batched = f(X), f.gradient(X), f.active(X)
    for a, b in zip(whole, batched, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_kinds_of_arrays():
    f = random_function(0)
    X = np.random.default_rng(0).standard_normal((4, 3))
    assert isinstance(f(X), np.ndarray)
    assert isinstance(f(torch.as_tensor(X)), torch.Tensor)
    assert isinstance(f.slopes, np.ndarray)
    assert isinstance(f.to("cpu").slopes, torch.Tensor)
    assert f(X[:0]).shape == (0,)
    X.flags.writeable = False
    f(X)
    single = MaxAffine(f.slopes.astype(np.float32), f.intercepts)
    assert single(X).dtype == np.float32
    assert MaxAffine([[1, 0]], [2]).slopes.dtype == np.float64
    assert f(X[::-1]).tolist() == f(X)[::-1].tolist()
    np.testing.assert_array_equal(f(X.astype(">f8")), f(X))
    half = torch.tensor(X.copy()).half()
    assert SquaredEuclidean()(half).dtype == torch.float32
    assert SquaredEuclidean()([[1, 2]]).dtype == np.float64
    assert SquaredEuclidean().to(torch.float32)(X).dtype == np.float32
    moved = random_function(0, 0.5, strictness=0.7).to(torch.float32)
    assert moved.slopes.dtype == torch.float32
    np.testing.assert_allclose(moved(X), random_function(0, 0.5, strictness=0.7)(X), rtol=1e-5)
    tuned = MaxAffine(torch.nn.Parameter(torch.ones(1, 3)), [0.0])
    assert isinstance(tuned.slopes, torch.nn.Parameter)
    assert isinstance(tuned(X), np.ndarray)
    assert repr(random_function(0, 0.5)) == "MaxAffine(7 pieces, 3 features, temperature=0.5)"


def test_sums_add_and_scale():
    f, g, h = random_function(0), Quadratic(np.eye(3)), SquaredEuclidean()
    X = np.random.default_rng(2).standard_normal((9, 3))
    total = 2 * (f + g * np.float32(0.5)) + np.float64(3.0) * h
    np.testing.assert_allclose(total(X), 2 * f(X) + g(X) + 3 * h(X))
    np.testing.assert_allclose(total.gradient(X), 2 * f.gradient(X) + g.gradient(X) + 3 * h.gradient(X))
    assert isinstance(total, Generator)
    assert isinstance(total, GeneratorSum)
    assert total.weights == (2.0, 1.0, 3.0)
    assert total.generators == (f, g, h)
    assert total.n_features == 3
    assert repr(total) == "2 * MaxAffine(7 pieces, 3 features) + Quadratic(3 features) + 3 * SquaredEuclidean()"


def test_a_sum_has_one_precision():
    single = Quadratic(np.eye(3, dtype=np.float32))
    X = np.ones((2, 3), dtype=np.float32)
    assert single(X).dtype == np.float32
    assert (single + SquaredEuclidean())(X).dtype == np.float32
    assert (single + random_function(0))(X).dtype == np.float64
    assert (single + random_function(0)).to(torch.float32)(X).dtype == np.float32


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda f: f + 1, TypeError, "a generator adds to another generator, got 1"),
        (lambda f: "2" * f, TypeError, "weight of a generator must be a number, got '2'"),
        (lambda f: f * True, TypeError, "weight of a generator must be a number, got True"),
        (lambda f: np.ones(2) * f, TypeError, "weight of a generator must be a number"),
        (lambda f: -1.0 * f, ValueError, "weight of a generator must be at least 0 and finite, got -1.0"),
        (lambda f: f * np.nan, ValueError, "weight of a generator must be at least 0 and finite, got nan"),
        (lambda f: f + Quadratic(np.eye(2)), ValueError, "must have the same number of features, got 3 and 2"),
        (lambda f: GeneratorSum([f], [1.0, 2.0]), ValueError, "one entry for each of 1 parts, got 2"),
    ],
)
def test_bad_sums_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make(random_function(0))


def test_difference_of_convex():
    f, g = random_function(0), random_function(1)
    X = np.random.default_rng(2).standard_normal((9, 3))
    both = DifferenceOfConvex(f, g)
    np.testing.assert_allclose(both(X), f(X) - g(X))
    np.testing.assert_allclose(both.gradient(X), f.gradient(X) - g.gradient(X))
    assert repr(both) == "DifferenceOfConvex(MaxAffine(7 pieces, 3 features), MaxAffine(7 pieces, 3 features))"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaxAffine([1.0], [1.0]), r"slopes must have shape \(n_pieces, n_features\), got \(1,\)"),
        (lambda: MaxAffine(np.empty((0, 2)), []), "slopes must have shape"),
        (lambda: MaxAffine([[1.0]], [1.0, 2.0]), r"intercepts must have shape \(1,\), got \(2,\)"),
        (lambda: MaxAffine([[1.0]], [1.0], temperature=-1), "temperature must be at least 0, got -1"),
        (lambda: MaxAffine([[1.0]], [1.0], strictness=np.nan), "strictness must be finite, got nan"),
        (lambda: MaxAffine([[1.0]], [1.0], temperature=np.inf), "temperature must be finite, got inf"),
        (lambda: MaxAffine([[1.0]], [1.0], strictness=[1.0, -2.0]), "strictness must be at least 0, got -2"),
        (lambda: MaxAffine([[1.0]], [1.0], strictness=[1, 2]), r"strictness must be a number or have shape \(1,\)"),
        (lambda: MaxAffine([[1.0], [np.nan]], [1.0, 2.0]), "slopes must be finite, got nan in row 1"),
        (lambda: MaxAffine([[1.0]], [1.0])([[np.inf]]), "X must be finite, got inf in row 0"),
        (
            lambda: MaxAffine([[1.0]], [1.0]).to(torch.int64),
            "computes in torch.float32 or torch.float64, got torch.int",
        ),
        (lambda: MaxAffine([[1.0]], [1.0])([[1.0, 2.0]]), r"X must have shape \(n_points, 1\), got \(1, 2\)"),
        (
            lambda: DifferenceOfConvex(MaxAffine([[1.0]], [1.0]), MaxAffine([[1.0, 2.0]], [1.0])),
            "convex and concave must have the same features, got 1 and 2",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_parameters_given_as_arrays_are_copied():
    slopes = np.eye(2)
    f = MaxAffine(slopes, np.zeros(2))
    slopes *= 10
    np.testing.assert_array_equal(f([[1.0, 2.0]]), [2.0])


def test_generators_sum_and_divide():
    f, g = MaxAffine([[1.0]], [0.0]), MaxAffine([[2.0]], [1.0])
    np.testing.assert_allclose(sum([f, g])([[3.0]]), [10.0])
    np.testing.assert_allclose((g / 2)([[3.0]]), [3.5])
    with pytest.raises(TypeError):
        1 + f
