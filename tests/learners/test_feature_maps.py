"""Feature maps in front of a learner, against scikit-learn and against learning from mapped rows."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_iris, make_classification
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PolynomialFeatures, RobustScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bregnet
from bregnet import (
    PBDL,
    PBDLCV,
    BregmanDivergence,
    BregmanIndex,
    BregmanKMeans,
    BregmanKNeighborsClassifier,
    BregmanMixture,
    BregmanNearestNeighbors,
    BregmanRanker,
    FeatureMap,
    MappedDivergence,
    MaxAffine,
)
from bregnet.divergences.maps import point_map
from bregnet.divergences.resolve import divergence_of

X, Y = make_classification(90, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=0)
X = X * [1.0, 10.0, 0.1, 1.0, 1.0] + [0.0, 5.0, 0.0, -3.0, 100.0]
Q = X[:20] + 0.01
FAST = {"n_pieces": 12, "tol": 0.3, "temperature": 0.3, "random_state": 0}


class Squares(TransformerMixin, BaseEstimator):
    """A transformer of which nothing is known."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return np.hstack([X, X**2])


AFFINE = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    RobustScaler(),
    MaxAbsScaler(),
    StandardScaler(),
    PCA(3),
    PCA(3, whiten=True),
    TruncatedSVD(2),
    LinearDiscriminantAnalysis(),
    LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
    NeighborhoodComponentsAnalysis(2, max_iter=5, random_state=0),
    SelectKBest(k=2),
    make_pipeline(StandardScaler(), PCA(4), LinearDiscriminantAnalysis()),
    make_pipeline("passthrough", StandardScaler()),
    FeatureMap("lda"),
]
OTHERS = [
    make_pipeline(StandardScaler(), Nystroem(gamma=0.3, n_components=20, random_state=0)),
    make_pipeline(StandardScaler(), Nystroem(n_components=20, random_state=0), PCA(5)),
    MinMaxScaler(clip=True),
    PolynomialFeatures(2),
    Squares(),
    FeatureMap("rbf", n_components=30),
    FeatureMap("rbf+lda", width=2.0),
]


@pytest.mark.parametrize("transformer", AFFINE + OTHERS, ids=str)
def test_a_map_is_the_transform_of_the_transformer(transformer):
    fitted = clone(transformer).fit(X, Y)
    found = point_map(fitted)
    expected = fitted.transform(Q)
    np.testing.assert_allclose(found(Q), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found(torch.tensor(Q)).numpy(), expected, rtol=1e-9, atol=1e-9)
    assert found.is_affine == (transformer in AFFINE)


def test_kernel_features_give_the_kernel_of_the_landmarks():
    few = X[:40]
    mapped = FeatureMap("rbf", width=1.5, n_components=1000).fit(few).transform(few)
    gamma = 1 / (1.5**2 * few.shape[1])
    np.testing.assert_allclose(
        mapped @ mapped.T, rbf_kernel(StandardScaler().fit_transform(few), gamma=gamma), atol=1e-6
    )


def test_discriminant_coordinates_span_those_of_scikit_learn():
    many, classes = make_classification(4000, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=1)
    ours = FeatureMap("lda").fit(many, classes).transform(many)
    theirs = LinearDiscriminantAnalysis(solver="svd").fit(many, classes).transform(many)
    assert ours.shape == theirs.shape
    residual = np.linalg.lstsq(np.column_stack([ours, np.ones(len(many))]), theirs, rcond=None)[1]
    assert (residual < 1e-3 * ((theirs - theirs.mean(0)) ** 2).sum(0)).all()  # but for the shrinkage
    within = ours - np.stack([ours[classes == label].mean(0) for label in range(3)])[classes]
    np.testing.assert_allclose(within.T @ within / len(many), np.eye(2), atol=0.02)


@pytest.mark.parametrize(
    "transformer", ["lda", FeatureMap("rbf", n_components=20), "rbf+lda", PCA(3), Squares(), OTHERS[1]], ids=str
)
@pytest.mark.parametrize("more", [{}, {"strictness": 0.1, "companion": "within"}], ids=str)
def test_a_learner_with_a_map_is_a_learner_of_mapped_rows(transformer, more):
    model = PBDL(feature_map=transformer, **FAST, **more).fit(X, Y)
    mapped = model.feature_map_(X)
    alone = PBDL(**FAST, **more).fit(mapped, Y)
    expected = alone.divergence_.pairwise(model.feature_map_(Q), mapped)
    np.testing.assert_allclose(model.divergence_.pairwise(Q, X), expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(model.divergence_.paired(Q, X[:20]), np.diagonal(expected), rtol=1e-7, atol=1e-8)
    assert model.gap_ == alone.gap_
    np.testing.assert_allclose(model.threshold_, alone.threshold_, rtol=1e-7)
    np.testing.assert_allclose(model.score(X, Y), alone.score(mapped, Y), atol=1e-9)
    assert model.feature_bounds_.shape == (5,)
    assert model.divergence_.n_features == 5
    is_affine = model.feature_map_.is_affine
    assert type(model.divergence_) is (BregmanDivergence if is_affine else MappedDivergence)
    if is_affine:
        np.testing.assert_allclose(model.function_(Q), alone.function_(model.feature_map_(Q)), rtol=1e-8)
    assert isinstance(model.divergence_.generator, MaxAffine) == (not more)


@pytest.fixture(scope="module", params=["lda", FeatureMap("rbf", n_components=20), "rbf+lda"], ids=str)
def learner(request):
    return PBDL(feature_map=request.param, **FAST).fit(X, Y)


def test_neighbors_index_ranking_and_vectors_are_those_of_all_divergences(learner, tmp_path):
    D = learner.divergence_.pairwise(Q, X)
    index = BregmanIndex(learner)
    index.add(X)
    values, ids = index.search(Q, 4)
    np.testing.assert_allclose(values, np.sort(D, axis=1)[:, :4], atol=1e-9)
    np.testing.assert_allclose(np.take_along_axis(D, ids, 1), values, atol=1e-9)
    width = learner.divergence_.base.n_features
    assert index.n_features == 5
    assert index._collection.gallery().points.shape == (90, width)  # items are stored mapped
    form = index.to_inner_product()
    np.testing.assert_allclose(form.divergences(Q, form.encode(Q) @ form.items.T), D, atol=1e-4 * D.max())
    neighbors = BregmanNearestNeighbors(learner.divergence_, 3).fit(X)
    among = learner.divergence_.pairwise(X)
    np.fill_diagonal(among, np.inf)
    np.testing.assert_allclose(neighbors.kneighbors()[0], np.sort(among, axis=1)[:, :3], atol=1e-9)
    radius = float(np.median(D))
    found = neighbors.radius_neighbors(radius=radius)[1]
    assert [len(each) for each in found] == (among <= radius).sum(1).tolist()
    ranker = BregmanRanker(learner.divergence_).fit(X, Y)
    np.testing.assert_allclose(ranker.rank(Q)[1], np.sort(D, axis=1), atol=1e-9)
    expected = bregnet.metrics.mean_average_precision(ranker_distances(ranker, D), Y[:20, None] == Y)
    assert ranker.score(Q, Y[:20]) == pytest.approx(expected, abs=1e-6)
    for saved in (index, form, neighbors, ranker, learner, learner.divergence_):
        bregnet.save(saved, tmp_path / "saved")
        again = bregnet.load(tmp_path / "saved")
        if isinstance(saved, BregmanIndex):
            index.save(tmp_path / "folder")
            for other in (again, BregmanIndex.load(tmp_path / "folder", mmap=True)):
                np.testing.assert_array_equal(other.search(Q, 4)[1], ids)
        elif saved is form:
            np.testing.assert_array_equal(again.encode(Q), form.encode(Q))
        else:
            np.testing.assert_array_equal(divergence_of(again).pairwise(Q, X), D)


def ranker_distances(ranker, D):
    """The divergences that the ranker found, in the order of the items."""
    ids, values = ranker.rank(Q)
    out = np.empty_like(D)
    np.put_along_axis(out, ids, values, 1)
    return out


def test_centers_are_in_the_space_of_the_map(learner, tmp_path):
    base, mapped = learner.divergence_.base, learner.divergence_
    there = X if base is mapped else learner.feature_map_(X)
    for kind, name in ((BregmanKMeans, "cluster_centers_"), (BregmanMixture, "means_")):
        model = kind(3, divergence=mapped, random_state=0).fit(X)
        alone = kind(3, divergence=base, random_state=0).fit(there)
        np.testing.assert_allclose(getattr(model, name), getattr(alone, name))
        np.testing.assert_array_equal(model.predict(X), alone.predict(there))
        bregnet.save(model, tmp_path / "clusters")
        np.testing.assert_array_equal(bregnet.load(tmp_path / "clusters").predict(X), model.predict(X))
    batches = BregmanKMeans(3, divergence=mapped, random_state=0).partial_fit(X[:50]).partial_fit(X[50:])
    assert batches.cluster_centers_.shape == (3, base.n_features)


def test_gradients_and_lifts_pass_through_the_map(learner):
    D = learner.divergence_
    x = torch.tensor(Q[:3], requires_grad=True)
    (slope,) = torch.autograd.grad(D.paired(x, torch.tensor(X[3:6])).sum(), x)
    step = 1e-5 * np.eye(5)[1]
    numeric = (D.paired(Q[:3] + step, X[3:6]) - D.paired(Q[:3] - step, X[3:6])) / 2e-5
    np.testing.assert_allclose(slope[:, 1], numeric, rtol=1e-3, atol=1e-6)
    for side in ("right", "left"):
        lifted = D.lift_offsets(Q, side) - D.lift_queries(Q, side) @ D.lift_items(X, side).T
        np.testing.assert_allclose(lifted, D.pairwise(Q, X) if side == "right" else D.pairwise(X, Q).T, atol=1e-8)
    blocks = np.vstack([block for _, block in D.pairwise_blocks(Q, X, batch_size=7)])
    np.testing.assert_allclose(blocks, D.pairwise(Q, X), atol=1e-12)


@pytest.mark.parametrize("first", [PCA(3), make_pipeline(StandardScaler(), PolynomialFeatures(2))], ids=str)
def test_a_pipeline_that_ends_in_a_learner_is_a_learner(first):
    pipeline = make_pipeline(first, PBDL(feature_map="rbf", **FAST))
    fitted = clone(pipeline).fit(X, Y)
    mapped = fitted[:-1].transform(X)
    expected = fitted[-1].divergence_.pairwise(mapped)
    np.testing.assert_allclose(divergence_of(fitted).pairwise(X), expected, atol=1e-8)
    index = BregmanIndex(fitted)
    index.add(X)
    np.testing.assert_allclose(index.search(X, 2)[0][:, 0], 0, atol=1e-8)
    model = BregmanKNeighborsClassifier(pipeline, 3).fit(X, Y)
    np.testing.assert_allclose(model.divergence_.pairwise(X), expected, atol=1e-8)
    search = GridSearchCV(pipeline, {"pbdl__alpha": [0.01, 0.1]}, cv=3)
    assert BregmanKNeighborsClassifier(search).fit(X, Y).learner_.best_params_["pbdl__alpha"] in (0.01, 0.1)
    with pytest.raises(ValueError, match="requires y to be passed"):
        BregmanNearestNeighbors(pipeline).fit(X)


def test_pairs_and_triplets_take_maps_that_need_no_labels():
    rows, pairs, alike = X[:20], np.array([[0, 1], [2, 3], [4, 5]]), [True, False, True]
    lda = LinearDiscriminantAnalysis().fit(X, Y)
    fast = FAST | {"n_pieces": 4}
    for given in (FeatureMap("rbf", n_components=5), PCA(2), FrozenEstimator(lda), point_map(lda)):
        model = PBDL(feature_map=given, **fast).fit_pairs(rows, pairs, alike)
        assert model.divergence_.n_features == 5
    assert model.fit_triplets(rows, [[0, 1, 2], [3, 4, 5]]).divergence_.n_features == 5
    np.testing.assert_allclose(model.fit(X, Y).feature_map_(Q), lda.transform(Q))
    for given in (
        "lda",
        "rbf+lda",
        LinearDiscriminantAnalysis(),
        make_pipeline(PCA(2), NeighborhoodComponentsAnalysis()),
    ):
        with pytest.raises(ValueError, match="feature_map must not need class labels where there are none"):
            PBDL(feature_map=given, **fast).fit_pairs(rows, pairs, alike)


def test_a_search_fits_the_map_in_each_fold(tmp_path):
    data, labels = load_iris(return_X_y=True)
    model = PBDLCV([0.1, 0.01], cv=3, refinements=0, feature_map="rbf+lda", n_pieces=12, tol=0.3, random_state=0)
    model.fit(data, labels)
    assert model.best_score_ > 0.85
    assert isinstance(model.divergence_, MappedDivergence)
    bregnet.save(model, tmp_path / "search")
    again = bregnet.load(tmp_path / "search")
    np.testing.assert_array_equal(again.divergence_.pairwise(data[:5]), model.divergence_.pairwise(data[:5]))
    assert again.feature_map == "rbf+lda"


@pytest.mark.filterwarnings("ignore:PBDL learned nothing")  # as it may from five landmarks of no seed
def test_a_map_without_a_seed_takes_that_of_the_learner():
    def landmarks(seed, given="rbf", **settings):
        given = FeatureMap("rbf", **settings) if settings else given
        model = PBDL(feature_map=given, **FAST | {"n_pieces": 4, "random_state": seed}).fit(X, Y)
        return model.feature_map_.steps[1].landmarks.tolist()

    def inside_landmarks(seed, given):
        model = PBDL(feature_map=given, **FAST | {"n_pieces": 4, "random_state": seed}).fit(X, Y)
        return model.divergence_.pairwise(X[:3]).tolist()

    few = {"n_components": 5}
    assert landmarks(1) == landmarks(1) != landmarks(2)
    assert landmarks(1, **few) == landmarks(1, **few) != landmarks(2, **few)
    assert landmarks(1, random_state=3, **few) == landmarks(2, random_state=3, **few)
    assert landmarks(np.random.RandomState(1), **few) == landmarks(np.random.RandomState(1), **few)
    inside = make_pipeline(StandardScaler(), FeatureMap("rbf", **few))
    assert inside_landmarks(1, inside) == inside_landmarks(1, inside) != inside_landmarks(2, inside)
    unseeded = FeatureMap("rbf", **few)
    assert landmarks(None, **few) != landmarks(None, **few)
    assert not np.array_equal(unseeded.fit_transform(X), unseeded.fit_transform(X))


def test_parameters_and_faults(tmp_path):
    for wrong in ("pca", 3, PCA):
        with pytest.raises(ValueError, match="feature_map must be"):
            PBDL(feature_map=wrong, **FAST).fit(X, Y)
    with pytest.raises(ValueError, match="feature_map must be for the 5 features of X"):
        PBDL(feature_map=FrozenEstimator(PCA(2).fit(X[:, :4])), **FAST).fit(X, Y)
    with pytest.raises(ValueError, match="feature_map must be None for partial_fit"):
        PBDL(feature_map="rbf", **FAST).partial_fit(X, Y)
    with pytest.raises(ValueError, match="y must have at least 2 classes"):
        FeatureMap("lda").fit(X, np.zeros(90, dtype=int))
    model = PBDL(feature_map=Squares(), **FAST).fit(X, Y)
    with pytest.raises(TypeError, match=r"a feature map can be saved where its steps are .*, got Squares\(\)"):
        bregnet.save(model, tmp_path / "model")
    with pytest.raises(ValueError, match="must not require gradients"):
        model.divergence_.paired(torch.tensor(Q, requires_grad=True), torch.tensor(Q))
    configured = PBDL(feature_map=FeatureMap("rbf", width=3.0), **FAST).fit(X, Y)
    bregnet.save(configured, tmp_path / "model")
    assert bregnet.load(tmp_path / "model").feature_map.width == 3.0
    assert not hasattr(configured.set_params(feature_map=None).fit(X, Y), "feature_map_")
    constant = np.column_stack([X, np.ones(90)])
    np.testing.assert_allclose(PBDL(feature_map="rbf+lda", **FAST).fit(constant, Y).feature_bounds_[-1], 0, atol=1e-12)


@parametrize_with_checks([FeatureMap("rbf", n_components=20), FeatureMap("rbf+lda", n_components=20)])
def test_conventions_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_a_frozen_map_keeps_its_seed_and_directions(in_pipeline):
    frozen = FrozenEstimator(FeatureMap("rbf+lda", n_components=20).fit(X, Y))
    given = make_pipeline(frozen, StandardScaler()) if in_pipeline else frozen
    model = PBDL(feature_map=given, n_pieces=12, tol=0.3, random_state=0).fit(X, Y)
    expected = frozen.transform(Q)
    expected = (expected - frozen.transform(X).mean(0)) / frozen.transform(X).std(0) if in_pipeline else expected
    np.testing.assert_allclose(model.feature_map_(Q), expected, atol=1e-8)


@pytest.mark.parametrize("inner", [StandardScaler(), FeatureMap("lda")])
def test_learners_with_a_frozen_map_can_be_saved(inner, tmp_path):
    given = FrozenEstimator(inner.fit(X, Y))
    model = PBDL(feature_map=given, n_pieces=12, tol=0.3, random_state=0).fit(X, Y)
    search = PBDLCV([0.1], cv=2, feature_map=[given], n_pieces=12, tol=0.3, random_state=0).fit(X, Y)
    for number, each in enumerate([model, search, BregmanKNeighborsClassifier(model).fit(X, Y)]):
        bregnet.save(each, tmp_path / str(number))
        loaded = bregnet.load(tmp_path / str(number))
        np.testing.assert_array_equal(loaded.divergence_.pairwise(Q, X), each.divergence_.pairwise(Q, X))
