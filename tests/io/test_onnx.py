"""ONNX models against what the regressors predict, run by onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from bregnet import (
    PBDL,
    ConvexRegressor,
    ConvexRegressorCV,
    DCRegressor,
    DifferenceOfConvex,
    MaxAffine,
    SquaredEuclidean,
    to_onnx,
)


def run(made, X, dtype):
    """What another runtime makes of it."""
    content = made if isinstance(made, str) else made.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(["y"], {"X": np.asarray(X, dtype)})
    assert found.dtype == dtype
    return found


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    return X, np.abs(X[:, 0]) - 0.5 * X[:, 1] ** 2


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 2e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize(
    "model",
    [
        ConvexRegressor(0.01, tol=0.2),
        ConvexRegressor(0.01, tol=0.2, temperature=0.1),
        DCRegressor(0.01, tol=0.2, clip=True),
        ConvexRegressorCV([0.01], cv=2, refinements=0, temperatures=[0.0], n_estimators=2, max_features=2, tol=0.5),
        make_pipeline(StandardScaler(), DCRegressor(0.01, tol=0.2)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_regressors(model, rows, dtype, rtol):
    X, y = rows
    model.fit(X, y)
    queries = np.concatenate([X, 10 * X])  # also where predictions are clipped
    expected = model.predict(queries)
    found = run(to_onnx(model, dtype=dtype), queries, dtype)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def test_functions():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 2))
    f = MaxAffine(rng.standard_normal((5, 2)), rng.standard_normal(5), temperature=0.01, strictness=[0.5, 2.0])
    g = MaxAffine(rng.standard_normal((4, 2)), rng.standard_normal(4))
    for function in (f, 2.0 * f + g, DifferenceOfConvex(g, f)):
        found = run(to_onnx(function, dtype="float64"), X, np.float64)
        np.testing.assert_allclose(found, function(X), rtol=1e-12, atol=1e-12)
    steep = MaxAffine([[1e4], [-1e4]], [0.0, 0.0], temperature=0.01)
    assert run(to_onnx(steep), [[3.0]], np.float32) == pytest.approx(3e4)  # exp would overflow


def test_files(rows, tmp_path):
    model = ConvexRegressor(0.1, tol=0.5).fit(*rows)
    to_onnx(model, tmp_path / "model.onnx")
    np.testing.assert_allclose(
        run(str(tmp_path / "model.onnx"), rows[0], np.float32), model.predict(rows[0]), rtol=1e-4, atol=1e-5
    )


def test_what_cannot_be_exported_is_named(rows):
    X, y = rows
    with pytest.raises(NotFittedError):
        to_onnx(ConvexRegressor())
    with pytest.raises(TypeError, match="model must be a regressor of bregnet or its function, got LinearRegression"):
        to_onnx(LinearRegression().fit(X, y))
    with pytest.raises(TypeError, match="model must be a regressor of bregnet or its function, got PBDL"):
        to_onnx(PBDL(tol=0.5).fit(X, y > 0))
    with pytest.raises(TypeError, match="model must be made of MaxAffine functions, got SquaredEuclidean"):
        to_onnx(SquaredEuclidean())
    with pytest.raises(TypeError, match="steps before a regressor must be a StandardScaler, got MinMaxScaler"):
        to_onnx(make_pipeline(MinMaxScaler(), ConvexRegressor(0.1, tol=0.5)).fit(X, y))
    with pytest.raises(ValueError, match="dtype must be 'float32' or 'float64', got 'int8'"):
        to_onnx(MaxAffine([[1.0]], [0.0]), dtype="int8")
