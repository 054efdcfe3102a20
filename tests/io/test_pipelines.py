"""Pipelines of known parts in files."""

import numpy as np
import pandas
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

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


def test_other_pipelines_are_refused_by_their_parts(rows, tmp_path):
    X, y = rows
    with pytest.raises(TypeError, match="to be saved, got MinMaxScaler, ConvexRegressor"):
        save(make_pipeline(MinMaxScaler(), ConvexRegressor(0.1, tol=0.5)).fit(X, y), tmp_path / "model")
    other = make_pipeline(StandardScaler(with_mean=False), ConvexRegressor(0.1, tol=0.5)).fit(X, y)
    with pytest.raises(TypeError, match="with_mean and with_std of a StandardScaler must be True"):
        save(other, tmp_path / "model")
