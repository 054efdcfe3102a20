"""Pipelines of known parts in files."""

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from bregnet import BregmanKNeighborsClassifier, ConvexRegressor, load, save


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2)) * [1.0, 1000.0] + 5
    return X, X[:, 0] ** 2


@pytest.mark.parametrize("named", [False, True])
def test_a_scaler_before_an_estimator(rows, tmp_path, named):
    X, y = rows
    X = pandas.DataFrame(X, columns=["a", "b"]) if named else X
    for model, target in ((ConvexRegressor(0.1, tol=0.5), y), (BregmanKNeighborsClassifier(), y > 20)):
        made = make_pipeline(StandardScaler(), model).fit(X, target)
        save(made, tmp_path / "model")
        same = load(tmp_path / "model")
        np.testing.assert_array_equal(same.predict(X), made.predict(X))
        assert hasattr(same, "feature_names_in_") == named


@pytest.mark.parametrize(
    "steps",
    [
        (SimpleImputer(strategy="median"), StandardScaler()),
        (MinMaxScaler((-1, 1)),),
        (MaxAbsScaler(),),
        (RobustScaler(), Normalizer()),
        (QuantileTransformer(n_quantiles=20),),
        (VarianceThreshold(), PCA(1, whiten=True)),
        (TruncatedSVD(1),),
        (Nystroem(n_components=5, random_state=0), LinearDiscriminantAnalysis()),
        (StandardScaler(), LinearDiscriminantAnalysis(solver="eigen")),
        (NeighborhoodComponentsAnalysis(1),),
    ],
    ids=lambda steps: "-".join(type(step).__name__ for step in steps),
)
@pytest.mark.parametrize("named", [False, True])
def test_known_transformers_before_an_estimator(rows, tmp_path, steps, named):
    X, y = rows
    X = X.copy()
    if isinstance(steps[0], SimpleImputer):
        X[::7, 0] = np.nan
    X = pandas.DataFrame(X, columns=["a", "b"]) if named else X
    made = make_pipeline(*map(clone, steps), BregmanKNeighborsClassifier()).fit(X, y > 20)
    save(made, tmp_path / "model")
    same = load(tmp_path / "model")
    np.testing.assert_array_equal(same[:-1].transform(X), made[:-1].transform(X))
    np.testing.assert_array_equal(same.predict(X), made.predict(X))
    assert same.get_params().keys() == made.get_params().keys()


def test_other_pipelines_are_refused_by_their_parts(rows, tmp_path):
    X, y = rows
    with pytest.raises(TypeError, match=r"StandardScaler.* to be saved, got PowerTransformer, ConvexRegressor"):
        save(make_pipeline(PowerTransformer(), ConvexRegressor(0.1, tol=0.5)).fit(X, y), tmp_path / "model")
    other = make_pipeline(StandardScaler(with_mean=False), ConvexRegressor(0.1, tol=0.5)).fit(X, y)
    with pytest.raises(TypeError, match="with_mean of a StandardScaler must be True to be saved"):
        save(other, tmp_path / "model")
