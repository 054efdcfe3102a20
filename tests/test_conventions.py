"""What users of scikit-learn expect: names of metrics, sparse arrays, seeds, one spelling."""

import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest
import sklearn
from scipy.sparse import csr_array, csr_matrix
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_score

import bregnet
from bregnet import (
    PBDL,
    BregmanIndex,
    BregmanKMeans,
    BregmanKNeighborsClassifier,
    BregmanMixture,
    BregmanNearestNeighbors,
    BregmanRanker,
    ConvexRegressor,
    divergence,
)

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((40, 3)), np.repeat([0, 1], 20)


@pytest.mark.parametrize("make", [divergence, BregmanIndex, lambda name: BregmanNearestNeighbors(name).fit(X)])
def test_metrics_that_are_no_divergences_are_refused_with_what_to_use(make):
    with pytest.raises(ValueError, match="got 'euclidean'; 'sqeuclidean', its square, finds the same neighbors"):
        make("euclidean")
    with pytest.raises(ValueError, match="got 'cosine'; 'sqeuclidean' finds the same neighbors in rows of length 1"):
        make("cosine")
    with pytest.raises(ValueError, match=r"got 'manhattan'$"):
        make("manhattan")


@pytest.mark.parametrize("sparse", [csr_matrix(X), csr_array(X)], ids=["matrix", "array"])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("X", lambda sparse: PBDL().fit(sparse, Y)),
        ("X", lambda sparse: ConvexRegressor().fit(sparse, Y)),
        ("X", lambda sparse: BregmanNearestNeighbors().fit(sparse)),
        ("X", lambda sparse: BregmanNearestNeighbors().fit(X).kneighbors(sparse)),
        ("X", lambda sparse: BregmanRanker().fit(sparse, Y)),
        ("X", lambda sparse: BregmanKMeans(2).fit(sparse)),
        ("X", lambda sparse: BregmanMixture(2).fit(sparse)),
        ("X", lambda sparse: BregmanIndex("sqeuclidean").add(sparse)),
        ("X", lambda sparse: divergence("sqeuclidean").pairwise(sparse)),
        ("X", lambda sparse: bregnet.report("sqeuclidean", sparse, Y)),
    ],
)
def test_sparse_arrays_are_refused_by_name(name, call, sparse):
    with pytest.raises(TypeError, match=rf"{name} must be dense, got a sparse csr_\w+; toarray\(\) makes it so, .*SVD"):
        call(sparse)


def test_the_earlier_name_of_kind_still_works_and_says_so():
    with pytest.warns(FutureWarning, match="index is now called kind"):
        before = BregmanKNeighborsClassifier(index="ivf", n_cells=3, random_state=0).fit(X, Y)
    assert before.index_.kind == "ivf"
    after = BregmanKNeighborsClassifier(kind="ivf", n_cells=3, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(after.predict(X), before.predict(X))
    with pytest.raises(ValueError, match="kind must be"):
        BregmanRanker(kind="tree").fit(X, Y)


def test_seeds_are_the_same_everywhere():
    """Whoever takes a random_state takes a number, a RandomState and None, which is the default."""
    public = {name: getattr(bregnet, name) for name in bregnet.__all__}
    seeded = {name: each for name, each in public.items() if hasattr(each, "get_params") or each is BregmanIndex}
    found = {name: inspect.signature(each).parameters.get("random_state") for name, each in seeded.items()}
    defaults = {name: parameter.default for name, parameter in found.items() if parameter is not None}
    assert set(defaults.values()) == {None}
    assert len(defaults) > 10
    index = BregmanIndex("sqeuclidean", kind="ivf", random_state=np.random.RandomState(0))
    same = BregmanIndex("sqeuclidean", kind="ivf", random_state=np.random.RandomState(0))
    assert index.random_state == same.random_state
    one, other = (
        bregnet.nn.LearnableMaxAffine(2, 3, random_state=np.random.RandomState(0)).slopes.detach() for _ in range(2)
    )
    assert (one == other).all()


def test_public_names_and_parameters_are_in_american_spelling():
    british = re.compile(r"colour|neighbour|centre|favour|labelled|isation|normalis|optimis|standardis|initialis")
    kept = {"bregnet.plotting.neighbours"}  # as in 0.1.0
    found = set()
    for module in ("bregnet", "bregnet.plotting", "bregnet.nn"):
        public = importlib.import_module(module)
        for name in public.__all__:
            value = getattr(public, name)
            is_error = isinstance(value, type) and issubclass(value, Exception)
            parameters = inspect.signature(value).parameters if callable(value) and not is_error else ()
            methods = [each for each in dir(value) if isinstance(value, type) and not each.startswith("_")]
            found |= {f"{module}.{name}" for each in (name, *parameters, *methods) if british.search(each)}
    assert found == kept
    for package in ("_core", "divergences", "clustering", "learners", "io", "plotting", "reporting", "nn"):
        for each in pkgutil.iter_modules(importlib.import_module(f"bregnet.{package}").__path__):
            source = inspect.getsource(importlib.import_module(f"bregnet.{package}.{each.name}"))
            defined = re.findall(r"\b(?:def|class) (\w+)|^ *(\w+)(?:: [^=\n]+)? = ", source, re.MULTILINE)
            assert not [pair for pair in defined if british.search("".join(pair).lower())]


def test_weights_are_routed_to_fits_and_scores():
    targets, weights = np.abs(X[:, 0]), RNG.uniform(0.1, 2.0, len(X))
    with sklearn.config_context(enable_metadata_routing=True):
        model = ConvexRegressor(0.1, tol=0.5).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found = cross_val_score(model, X, targets, cv=KFold(2), params={"sample_weight": weights})
    for (train, test), score in zip(KFold(2).split(X), found, strict=True):
        fit = ConvexRegressor(0.1, tol=0.5).fit(X[train], targets[train], sample_weight=weights[train])
        expected = r2_score(targets[test], fit.predict(X[test]), sample_weight=weights[test])
        assert score == pytest.approx(expected, rel=1e-6)
