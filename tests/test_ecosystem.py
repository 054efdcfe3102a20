"""Frames of pandas and polars, torch tensors and arrays of other libraries: in, out, and without copies."""

from copy import copy
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bregnet
from bregnet import (
    PBDL,
    PBDLCV,
    BregmanIndex,
    BregmanKMeans,
    BregmanKNeighborsClassifier,
    BregmanMixture,
    BregmanRanker,
    ConvexRegressor,
    ConvexRegressorCV,
    DCRegressor,
    divergence,
    metrics,
)
from bregnet._core import arrays
from bregnet.retrieval import BregmanKNeighborsRegressor, BregmanNearestNeighbors

NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
X, CLASSES = (part[::5] for part in load_iris(return_X_y=True))
TARGETS = X @ [1.0, -0.5, 0.2, 0.3]
TEXTS = np.array(["setosa", "versicolor", "virginica"])[CLASSES]
PAIRS = np.column_stack([np.arange(29), np.arange(1, 30)])
ALIKE = CLASSES[PAIRS[:, 0]] == CLASSES[PAIRS[:, 1]]
TRIPLETS = np.array([[0, 1, 12], [12, 13, 25], [25, 26, 3]])


class Foreign:
    """An array of some library: no more than the protocol of DLPack."""

    def __init__(self, array):
        self.array, self.shape, self.ndim = array, array.shape, array.ndim

    def __len__(self):
        return len(self.array)

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


TABLES = {
    "pandas": lambda array: pd.DataFrame(array, columns=NAMES),
    "pandas, nullable": lambda array: pd.DataFrame(array, columns=NAMES).convert_dtypes(),
    "pandas, pyarrow": lambda array: pd.DataFrame(array, columns=NAMES).convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda array: pl.DataFrame(array, schema=NAMES),
    "torch": torch.as_tensor,
    "torch, with gradients": lambda array: torch.tensor(array, requires_grad=True),
    "another library": Foreign,
}
FRAMES = ["pandas", "polars"]
CLASSIFIERS = {
    "PBDL": lambda: PBDL(n_pieces=4, tol=0.9, temperature=0.2, random_state=0),
    "PBDLCV": lambda: PBDLCV(
        [0.1], feature_map=None, cv=2, refinements=0, temperatures=[0.1], n_pieces=4, tol=0.9, random_state=0
    ),
    "classifier": lambda: BregmanKNeighborsClassifier(),
    "ranker": lambda: BregmanRanker("kl"),
}
REGRESSORS = {
    "ConvexRegressor": lambda: ConvexRegressor(n_pieces=4, tol=0.9, random_state=0),
    "DCRegressor": lambda: DCRegressor(n_pieces=4, tol=0.9, random_state=0),
    "ConvexRegressorCV": lambda: ConvexRegressorCV([0.1], cv=2, refinements=0, n_pieces=4, tol=0.9, random_state=0),
    "regressor": lambda: BregmanKNeighborsRegressor(),
}
WITHOUT_TARGET = {
    "neighbours": lambda: BregmanNearestNeighbors("itakura-saito"),
    "k-means": lambda: BregmanKMeans(3, divergence="kl", random_state=0),
    "mixture": lambda: BregmanMixture(2, max_iter=200, random_state=0),
}
ESTIMATORS = {**CLASSIFIERS, **REGRESSORS, **WITHOUT_TARGET}
ALONE = ["predict", "predict_proba", "transform", "score_samples", "kneighbors", "radius_neighbors", "rank", "bic"]
ALONE += ["kneighbors_graph"]
TWICE = ["pair_distance", "pair_score", "is_similar"]


def target(name):
    return TARGETS if name in REGRESSORS else CLASSES


def plain(answer):
    """An answer as one numpy array, whatever it came as."""
    if isinstance(answer, tuple | list) or getattr(answer, "dtype", None) == np.dtype(object):
        return np.concatenate([np.ravel(plain(each)) for each in answer])
    if hasattr(answer, "toarray"):
        return answer.toarray()
    return answer.detach().numpy() if isinstance(answer, torch.Tensor) else np.asarray(answer)


def answers(model, rows, y):
    """What every method of a fitted estimator that takes rows says of some."""
    found = {name: getattr(model, name)(rows) for name in ALONE if hasattr(model, name)}
    found |= {name: getattr(model, name)(rows, rows) for name in TWICE if hasattr(model, name)}
    if hasattr(model, "score"):
        found["score"] = model.score(rows, y)
    if hasattr(model, "calibrate"):
        found["calibrate"] = copy(model).calibrate(rows, rows, np.arange(len(y)) % 2 == 0).threshold_
    return found


@cache
def fitted(name):
    """An estimator fitted to arrays."""
    return ESTIMATORS[name]().fit(X, target(name))


@cache
def known_answers(name):
    return answers(fitted(name), X, target(name))


def assert_same(found, expected):
    """But for rounding: columns of a frame lie one after the other in memory, and are added up in another order."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(plain(found[name]), plain(value), rtol=1e-8, atol=1e-10, err_msg=name)


# what searches for alpha hands its rows to the others
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in ESTIMATORS for kind in TABLES if kind in ("polars", "torch") or not name.endswith("CV")],
)
def test_any_table_gives_what_an_array_gives(name, kind):
    y, table = target(name), TABLES[kind](X)
    found = answers(ESTIMATORS[name]().fit(table, y), table, y)
    assert_same(found, known_answers(name))
    as_tensor = {key: isinstance(value, torch.Tensor) for key, value in found.items()}
    for key in {"predict", "transform", "predict_proba", "score_samples", "pair_distance"} & found.keys():
        assert as_tensor[key] == kind.startswith("torch")


@pytest.mark.parametrize("kind", ["pandas, nullable", "polars", "torch, with gradients", "another library"])
@pytest.mark.parametrize("name", ["PBDL", "ConvexRegressor", "k-means"])
def test_rows_in_parts(name, kind):
    """`partial_fit`, `fit_blocks` and `fit_predict`."""
    y, make, table = target(name), ESTIMATORS[name], TABLES[kind]
    halves = [(X[::2], y[::2]), (X[1::2], y[1::2])]

    def in_parts(read):
        parts = [(read(rows), values) for rows, values in halves]
        grown = make().partial_fit(*parts[0]).partial_fit(*parts[1])
        if name == "k-means":
            return [grown.cluster_centers_, plain(make().fit_predict(read(X)))]
        return [grown.function_(X), make().fit_blocks(parts).function_(X)]

    for found, expected in zip(in_parts(table), in_parts(np.asarray), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize(
    "read",
    [
        lambda array: pd.DataFrame(array) if array.ndim == 2 else pd.Series(array),
        lambda array: (pd.DataFrame(array) if array.ndim == 2 else pd.Series(array)).convert_dtypes(),
        lambda array: pl.DataFrame(array) if array.ndim == 2 else pl.Series(array),
        torch.as_tensor,
    ],
    ids=["pandas", "pandas, nullable", "polars", "torch"],
)
def test_pairs_and_triplets_from_frames(read):
    make = CLASSIFIERS["PBDL"]
    expected = make().fit_pairs(X, PAIRS, ALIKE), make().fit_triplets(X, TRIPLETS)
    found = make().fit_pairs(read(X), read(PAIRS), read(ALIKE)), make().fit_triplets(read(X), read(TRIPLETS))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.function_.slopes, theirs.function_.slopes)  # whatever the order in memory


LABELS = {
    "pandas integers": (pd.Series(CLASSES), np.int64),
    "pandas nullable integers": (pd.Series(CLASSES, dtype="Int64"), np.int64),
    "pandas pyarrow integers": (pd.Series(CLASSES, dtype="int32[pyarrow]"), np.int32),
    "pandas nullable booleans": (pd.Series(CLASSES > 0, dtype="boolean"), np.bool_),
    "pandas strings": (pd.Series(TEXTS), object),
    "pandas pyarrow strings": (pd.Series(TEXTS, dtype="string[pyarrow]"), object),
    "pandas categories": (pd.Series(TEXTS).astype("category"), object),
    "pandas categories of integers": (pd.Series(CLASSES).astype("category"), np.int64),
    "polars integers": (pl.Series(CLASSES), np.int64),
    "polars strings": (pl.Series(TEXTS.tolist()), np.str_),
    "polars categories": (pl.Series(TEXTS.tolist(), dtype=pl.Categorical), object),
    "polars enumeration": (pl.Series(TEXTS.tolist(), dtype=pl.Enum(sorted(set(TEXTS)))), object),
    "pyarrow integers": (pa.array(CLASSES), np.int64),
    "pyarrow strings": (pa.array(TEXTS.tolist()), object),
    "torch": (torch.as_tensor(CLASSES), np.int64),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", ["PBDL", "classifier", "ranker"])
def test_labels_of_any_kind(name, kind, tmp_path):
    labels, dtype = LABELS[kind]
    values = np.asarray(labels)
    frame = TABLES["polars" if "polars" in kind else "pandas"](X)
    model, expected = CLASSIFIERS[name]().fit(frame, labels), CLASSIFIERS[name]().fit(X, values)
    assert np.issubdtype(model.classes_.dtype, dtype)
    assert model.classes_.tolist() == np.unique(values).tolist()
    assert model.score(frame, labels) == expected.score(X, values)
    if name == "classifier":
        assert model.predict(frame).tolist() == expected.predict(X).tolist()
    else:
        bregnet.save(model, tmp_path / "model")
        assert bregnet.load(tmp_path / "model").classes_.tolist() == model.classes_.tolist()


@pytest.mark.parametrize("missing", [pd.Series([None, *CLASSES[1:]], dtype="Int64"), pl.Series([None, *CLASSES[1:]])])
@pytest.mark.parametrize("name", ["PBDL", "classifier", "ranker", "ConvexRegressor", "regressor"])
def test_missing_targets_are_refused(name, missing):
    with pytest.raises(ValueError, match="y contains NaN"):
        ESTIMATORS[name]().fit(X, missing)


@pytest.mark.parametrize("read", [pd.Series, lambda values: pl.Series(values.tolist()), lambda values: values])
def test_strings_of_different_libraries_go_on(read):
    """A column of strings after an array of strings, as `partial_fit` and blocks may see them."""
    model = CLASSIFIERS["PBDL"]().partial_fit(X[::2], TEXTS[::2]).partial_fit(X[1::2], read(TEXTS[1::2]))
    assert model.classes_.tolist() == sorted(set(TEXTS))
    blocks = [(X[::2], TEXTS[::2]), (X[1::2], read(TEXTS[1::2]))]
    assert CLASSIFIERS["PBDL"]().fit_blocks(blocks).classes_.tolist() == sorted(set(TEXTS))
    with pytest.raises(TypeError, match="y must hold values of one kind"):
        CLASSIFIERS["PBDL"]().partial_fit(X, read(TEXTS)).partial_fit(X, CLASSES)


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_names_of_features_are_kept_and_checked(name, kind):
    y, frame = target(name), TABLES[kind](X)
    model = ESTIMATORS[name]().fit(frame, y)
    assert model.feature_names_in_.tolist() == NAMES
    shuffled = frame[NAMES[::-1]]
    renamed = TABLES[kind](X)
    renamed.columns = [*NAMES[:3], "petal colour"]
    calls = [getattr(model, each) for each in ALONE if hasattr(model, each)]
    calls += [lambda rows, each=each: getattr(model, each)(rows, rows) for each in TWICE if hasattr(model, each)]
    if hasattr(model, "score"):
        calls.append(lambda rows: model.score(rows, y))
    assert calls
    for call in calls:
        with pytest.raises(ValueError, match="Feature names must be in the same order as they were in fit"):
            call(shuffled)
        with pytest.raises(ValueError, match=r"Feature names unseen at fit time:\n- petal colour"):
            call(renamed)
    other = TABLES[FRAMES[1 - FRAMES.index(kind)]]  # names are what counts, not the library
    assert_same(answers(model, other(X), y), known_answers(name))


@pytest.mark.parametrize("kind", FRAMES)
def test_names_are_kept_by_what_sees_rows_in_parts(kind):
    frame = TABLES[kind](X)
    shuffled = frame[NAMES[::-1]]
    models = CLASSIFIERS["PBDL"], REGRESSORS["ConvexRegressor"], WITHOUT_TARGET["k-means"]
    for make, y in zip(models, (CLASSES, TARGETS, None), strict=True):
        model = make().partial_fit(frame, y)
        assert model.feature_names_in_.tolist() == NAMES
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            model.partial_fit(shuffled, y)
    with pytest.raises(ValueError, match="blocks must have the columns"):
        models[0]().fit_blocks([(frame, CLASSES), (shuffled, CLASSES)])
    assert models[0]().fit_blocks([(frame, CLASSES)]).feature_names_in_.tolist() == NAMES
    assert models[0]().fit_pairs(frame, PAIRS, ALIKE).feature_names_in_.tolist() == NAMES
    assert models[0]().fit_triplets(frame, TRIPLETS).feature_names_in_.tolist() == NAMES


@pytest.mark.parametrize(("kind", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
@pytest.mark.parametrize("given", ["pandas", "polars", "numpy", "torch"])
def test_set_output(given, kind, frame):
    """Divergences from the centres of k-means, as a table with names."""
    rows = np.asarray(X) if given == "numpy" else TABLES[given](X)
    model = BregmanKMeans(3, random_state=0).fit(rows)
    expected = plain(model.transform(rows))
    assert not isinstance(model.transform(rows), frame)
    found = model.set_output(transform=kind).transform(rows)
    assert isinstance(found, frame)
    assert list(found.columns) == model.get_feature_names_out().tolist()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(expected, divergence("sqeuclidean").pairwise(X, model.cluster_centers_), atol=1e-12)


def test_a_pipeline_keeps_frames_and_names():
    frame = TABLES["pandas"](X).set_index(np.arange(100, 130))
    steps = make_pipeline(StandardScaler(), BregmanKMeans(2, random_state=0)).set_output(transform="pandas")
    found = steps.fit_transform(frame)
    assert found.index.tolist() == frame.index.tolist()
    assert found.columns.tolist() == ["bregmankmeans0", "bregmankmeans1"]
    assert steps[-1].feature_names_in_.tolist() == NAMES


class TestDivergencesAndMetrics:
    @pytest.mark.parametrize("kind", TABLES)
    def test_divergences_of_tables(self, kind):
        D, table, tensor = divergence("kl"), TABLES[kind](X), kind.startswith("torch")
        for call in (D.pairwise, D.lift_items, D.lift_queries, D.generator, lambda rows: D.paired(rows, rows)):
            found = call(table)
            assert isinstance(found, torch.Tensor) == tensor
            np.testing.assert_allclose(plain(found), call(X), rtol=1e-9, atol=1e-12)
        for (rows, block), (_, expected) in zip(D.pairwise_blocks(table), D.pairwise_blocks(X), strict=True):
            assert rows == slice(0, len(X))
            np.testing.assert_allclose(plain(block), expected, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("kind", TABLES)
    def test_an_index_of_tables(self, kind):
        index, expected = BregmanIndex("kl"), BregmanIndex("kl")
        index.add(TABLES[kind](X))
        expected.add(X)
        for found, wanted in zip(index.search(TABLES[kind](X), 3), expected.search(X, 3), strict=True):
            assert isinstance(found, torch.Tensor) == kind.startswith("torch")
            np.testing.assert_allclose(plain(found), wanted, rtol=1e-9)

    def test_missing_entries_and_text_are_refused(self):
        frame = TABLES["pandas, nullable"](X)
        frame.iloc[2, 1] = pd.NA
        for broken in (frame, pl.from_pandas(frame)):
            with pytest.raises(ValueError, match="X must be finite, got nan in row 2"):
                divergence("kl").pairwise(broken)
            with pytest.raises(ValueError, match="Input X contains NaN"):
                PBDL().fit(broken, CLASSES)
        for text in (TABLES["pandas"](X).assign(kind=TEXTS), TABLES["polars"](X).with_columns(kind=pl.Series(TEXTS))):
            with pytest.raises(TypeError, match="X must hold real numbers, got dtype"):
                divergence("kl").pairwise(text)

    @pytest.mark.parametrize("read", [pd.DataFrame, lambda a: pd.DataFrame(a).convert_dtypes(), pl.DataFrame])
    def test_metrics_of_frames(self, read):
        D, relevant = divergence("sqeuclidean").pairwise(X), CLASSES[:, None] == CLASSES
        for metric in (metrics.mean_average_precision, metrics.map_at_r, metrics.r_precision, metrics.retrieval_auc):
            assert metric(read(D), read(relevant)) == metric(D, relevant)

    @pytest.mark.parametrize("kind", LABELS)
    def test_purity_of_labels(self, kind):
        labels = LABELS[kind][0]
        assert metrics.purity(labels, CLASSES) == metrics.purity(np.asarray(labels), CLASSES)


class TestWithoutCopies:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_numpy_and_torch_share_memory(self, dtype):
        array = np.ascontiguousarray(X, dtype=dtype)
        tensor = torch.as_tensor(array)
        assert arrays.to_torch("X", array).data_ptr() == array.ctypes.data
        assert arrays.to_torch("X", tensor) is tensor
        assert np.shares_memory(arrays.to_numpy(tensor), array)
        learned = torch.tensor(array, requires_grad=True)
        assert np.shares_memory(arrays.to_numpy(learned), learned.detach().numpy())
        generator = divergence("sqeuclidean").generator
        assert generator._points("X", tensor).data_ptr() == tensor.data_ptr()
        assert generator._points("X", array).data_ptr() == array.ctypes.data

    def test_other_libraries_share_memory(self):
        array = np.ascontiguousarray(X)
        for foreign in (Foreign(array), Foreign(torch.as_tensor(array))):
            assert arrays.to_torch("X", foreign).data_ptr() == array.ctypes.data
            assert np.shares_memory(arrays.to_numpy(foreign), array)
        column = pa.array(array[:, 0])
        assert np.shares_memory(arrays.to_numpy(column), np.asarray(column))

    def test_a_frame_of_one_kind_shares_memory(self):
        frame = pd.DataFrame(np.ascontiguousarray(X))
        assert np.shares_memory(arrays.table(frame), frame.to_numpy())

    def test_given_arrays_are_left_alone(self):
        array = np.ascontiguousarray(X)
        tensor = torch.as_tensor(array)
        for name in ESTIMATORS:
            answers(fitted(name), tensor, target(name))
        np.testing.assert_array_equal(array, X)


class TestTensors:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("name", [name for name in ESTIMATORS if not name.endswith("CV")])
    def test_half_precision_is_read_as_it_is(self, name, dtype):
        """As the same numbers in single precision: nothing is computed in half precision."""
        y, rows = target(name), torch.as_tensor(X).to(dtype)
        single = rows.float()
        found = answers(ESTIMATORS[name]().fit(rows, y), rows, y)
        assert_same(found, answers(ESTIMATORS[name]().fit(single, y), single, y))

    @pytest.mark.parametrize("name", ESTIMATORS)
    def test_sparse_tensors_are_refused(self, name):
        y, sparse = target(name), torch.as_tensor(X).to_sparse()
        with pytest.raises(TypeError, match=r"X must be dense, got a tensor of layout torch.sparse_coo; to_dense\(\)"):
            ESTIMATORS[name]().fit(sparse, y)
        model = fitted(name)
        method = next(each for each in (*ALONE, *TWICE) if hasattr(model, each))
        with pytest.raises(TypeError, match=r"[XQ] must be dense"):
            getattr(model, method)(*[sparse] * (1 + (method in TWICE)))

    def test_gradients_flow_where_answers_are_smooth(self):
        rows = torch.tensor(X, requires_grad=True)
        model = fitted("PBDL")
        other = torch.as_tensor(X[::-1].copy())
        found = torch.autograd.grad(model.pair_distance(rows, other).sum(), rows)[0]
        f = model.function_
        np.testing.assert_allclose(found, f.gradient(X) - f.gradient(X[::-1]), rtol=1e-6, atol=1e-9)
        kmeans = BregmanKMeans(3, random_state=0).fit(X)
        found = torch.autograd.grad(kmeans.transform(rows).sum(), rows)[0]
        np.testing.assert_allclose(found, 2 * (3 * X - kmeans.cluster_centers_.sum(0)), rtol=1e-9, atol=1e-9)
        regression = fitted("ConvexRegressor")
        found = torch.autograd.grad(regression.predict(rows).sum(), rows)[0]
        np.testing.assert_allclose(found, regression.function_.gradient(X))
