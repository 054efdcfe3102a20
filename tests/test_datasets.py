import csv
import gzip
import io
import subprocess
import sys
import urllib.error
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import Bunch

from bregnet.datasets import PAPER_SETS, Fold, load, paper_folds


@pytest.fixture(autouse=True)
def nothing_outside(monkeypatch):
    """No folder from the environment, and no network."""

    def offline(*args, **kwargs):
        warnings.warn(
            "A network error occurred while downloading it. Retrying...", stacklevel=2
        )  # as the real one does
        raise urllib.error.URLError("no network in tests")

    monkeypatch.delenv("BREGNET_DATA", raising=False)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", offline)


def write(folder, name, header, rows, *, packed=True):
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    raw = text.getvalue().encode()
    path = folder / f"{name}.csv{'.gz' * packed}"
    path.write_bytes(gzip.compress(raw) if packed else raw)
    return path


def write_random(folder, name, n, d, *, targets=1, classes=None, seed=0):
    """Random features and targets, as floats or as classes 0, 1, ...; returned as they were written."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    Y = rng.standard_normal((n, targets)) if classes is None else rng.integers(classes, size=(n, targets))
    names = ["target"] if targets == 1 else [f"target_{i + 1}" for i in range(targets)]
    rows = [[*map(repr, x), *y] for x, y in zip(X.tolist(), Y.tolist(), strict=True)]
    write(folder, name, [*(f"x{i}" for i in range(d)), *names], rows)
    return X, Y


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(finite, finite, finite, finite), min_size=1, max_size=8), st.booleans())
@settings(max_examples=100, deadline=None)
def test_numbers_come_back_to_the_last_bit(tmp_path_factory, rows, packed):
    folder = tmp_path_factory.mktemp("sets")
    write(folder, "some", ["a", "target_2", "b, c", "target_1"], [map(repr, row) for row in rows], packed=packed)
    found = load("some", data_home=folder)
    a, second, b, first = np.array(rows).T
    assert np.array_equal(found.data, np.column_stack([a, b]))
    assert np.array_equal(found.target, np.column_stack([first, second]))
    assert found.feature_names == ["a", "b, c"]
    assert found.target_names == ["target_1", "target_2"]
    assert (found.name, found.source, found.test) == ("some", "file", None)
    assert found.data.dtype == np.float64


def test_the_split_and_what_merely_looks_like_a_target(tmp_path):
    header = ["targeted", "target_x", "x", "split", "target"]
    write(tmp_path, "some", header, [[1, 2, 3, "train", 0.5], [4, 5, 6, "test", 1.5]])
    found = load("some", data_home=tmp_path)
    assert found.feature_names == ["targeted", "target_x", "x"]
    assert found.data.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.test.tolist() == [False, True]
    assert found.target.tolist() == [0.5, 1.5]


def test_the_packed_file_and_the_argument_come_first(tmp_path, monkeypatch):
    inner = tmp_path / "inner"
    inner.mkdir()
    for folder, packed, value in [(tmp_path, False, 1), (inner, True, 2), (inner, False, 3)]:
        write(folder, "iris", ["x", "target"], [[value, 0]], packed=packed)
    assert load("iris").source == "scikit-learn"
    monkeypatch.setenv("BREGNET_DATA", str(tmp_path))
    assert load("iris").data.item() == 1
    assert load("iris", data_home=str(inner)).data.item() == 2
    monkeypatch.setenv("BREGNET_DATA", "")
    assert load("iris").source == "scikit-learn"


@pytest.mark.parametrize(
    ("name", "values", "task", "dtype"),
    [
        ("own", ["1", "2", "1"], "classification", "i"),
        ("own", ["1.0", "2e0", "-1"], "classification", "i"),
        ("own", ["1", "2", "1.5"], "regression", "f"),
        ("own", ["red", "blue", "red"], "classification", "U"),
        ("own", [str(i % 20) for i in range(60)], "classification", "i"),
        ("own", [str(i % 21) for i in range(60)], "regression", "f"),
        ("own", ["1e300", "1e300", "0"], "regression", "f"),
        ("wine_quality_white", ["5", "6", "6"], "regression", "f"),
        ("abalone", [str(i) for i in range(28)], "classification", "i"),
    ],
)
def test_the_task_of_a_file(tmp_path, name, values, task, dtype):
    write(tmp_path, name, ["x", "target"], [[0.5, value] for value in values])
    found = load(name, data_home=tmp_path)
    assert found.task == task
    assert found.target.dtype.kind == dtype
    assert found.target.tolist() == (values if dtype == "U" else [float(value) for value in values])


@pytest.mark.parametrize(
    ("name", "header", "rows", "message"),
    [
        ("own", ["a", "b"], [[1, 2]], "must have a column 'target', .* got 'a', 'b'"),
        ("own", ["a", "target", "target_1"], [[1, 2, 3]], "must have a column 'target', or"),
        ("own", ["split", "target"], [["train", 2]], "must have a feature, got only 'split', 'target'"),
        ("own", ["a", "a", "target"], [[1, 2, 3]], "different names, got 'a' twice"),
        ("own", ["a", "target"], [], "at least one row"),
        ("own", ["a", "target"], [[1, 2], ["x", 3]], "column 'a' must hold finite numbers, got 'x' in line 3"),
        ("own", ["a", "target"], [[1, 2], [], ["", 3]], "column 'a' must hold finite numbers, got '' in line 4"),
        ("own", ["a", "target"], [["nan", 2]], "column 'a' must hold finite numbers, got 'nan' in line 2"),
        ("own", ["a", "target"], [["inf", 2]], "column 'a' must hold finite numbers, got 'inf' in line 2"),
        ("own", ["a", "target"], [[1, 2], [1, "NA"]], "column 'target' must hold finite numbers, got 'NA' in line 3"),
        (
            "own",
            ["a", "target"],
            [[1, "red"], [1, " "]],
            "column 'target' must hold a class in every row, got ' ' in line 3",
        ),
        ("own", ["a", "target"], [[1, 2], [1, 2, 3]], "must have 2 cells, .* got 3 in line 3"),
        ("own", ["a", "split", "target"], [[1, "Train", 2]], "column 'split' must hold 'train' or 'test', got 'Train'"),
        ("own", ["a", "split", "target"], [[1, "train", 2]], "both 'train' and 'test', got 'train' only"),
        ("concrete", ["a", "target"], [[1, "red"]], "column 'target' must hold finite numbers, got 'red'"),
        ("wine", ["a", "target"], [[1, 2.5]], "column 'target' must hold classes, .* got '2.5' in line 2"),
    ],
)
def test_a_file_that_is_not_of_the_format(tmp_path, name, header, rows, message):
    path = write(tmp_path, name, header, rows)
    with pytest.raises(ValueError, match=message) as caught:
        load(name, data_home=tmp_path)
    assert str(path) in str(caught.value)


def test_a_damaged_file(tmp_path):
    path = write(tmp_path, "own", ["a", "target"], [[i, i] for i in range(500)])
    whole = path.read_bytes()
    flipped = bytes([*whole[:-6], whole[-6] ^ 1, *whole[-5:]])  # in the checksum
    for bad in (whole[:100], whole[:-3], flipped, b"a,target\n1,2\n", gzip.compress(b"a,target\n\xff,1\n"), b""):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"own\.csv\.gz (is damaged|must have a header)"):
            load("own", data_home=tmp_path)


def test_names_and_folders_that_are_none(tmp_path, monkeypatch):
    inner = tmp_path / "inner"
    inner.mkdir()
    write(tmp_path, "secret", ["a", "target"], [[1, 2]])
    for name in ("../secret", "..\\secret", "/secret", "inner/../../secret", "C:secret", "", ".", "..", "secret/"):
        with pytest.raises(ValueError, match="name must be that of a data set, without a folder"):
            load(name, data_home=inner)
    with pytest.raises(TypeError, match="name must be a string, got 3"):
        load(3)
    with pytest.raises(TypeError, match="data_home must be a path or None, got 3"):
        load("iris", data_home=3)
    with pytest.raises(NotADirectoryError, match=r"data_home must be a folder, got .*secret\.csv\.gz"):
        load("iris", data_home=tmp_path / "secret.csv.gz")
    monkeypatch.setenv("BREGNET_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"BREGNET_DATA must be a folder, got .*nowhere"):
        load("iris")


def test_a_name_that_is_nowhere(tmp_path):
    with pytest.raises(ValueError, match=r"got 'nothing': .*BREGNET_DATA is not set.*no network in tests"):
        load("nothing")
    write(tmp_path, "one", ["a", "target"], [[1, 2]])
    write(tmp_path, "two", ["a", "target"], [[1, 2]], packed=False)
    with pytest.raises(ValueError, match=r"has no nothing\.csv\.gz or nothing\.csv but one, two; ") as caught:
        load("nothing", data_home=tmp_path)
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(ValueError, match=r"'concrete' \(at UCI: Concrete Compressive Strength\).* not known to have"):
        load("concrete")
    with pytest.raises(ValueError, match="name must be that of a data set at hand"):
        load("x" * 1000, data_home=tmp_path)  # longer than a file's name can be


@pytest.mark.parametrize(
    ("name", "function", "labels"),
    [
        ("iris", "load_iris", {"setosa": 1, "versicolor": 2, "virginica": 3}),
        ("wine", "load_wine", {"class_0": 1, "class_1": 2, "class_2": 3}),
        ("wdbc", "load_breast_cancer", {"malignant": 1, "benign": 0}),
        ("breast_cancer", "load_breast_cancer", {"malignant": 0, "benign": 1}),
        ("digits", "load_digits", {i: i for i in range(10)}),
    ],
)
def test_classes_of_scikit_learn(name, function, labels):
    found, peer = load(name), getattr(sklearn.datasets, function)()
    assert np.array_equal(found.data, peer.data)
    assert found.target.tolist() == [labels[peer.target_names[label]] for label in peer.target]
    assert found.feature_names == list(peer.feature_names)
    assert (found.task, found.source, found.target_names) == ("classification", "scikit-learn", ["target"])


def test_diabetes_of_scikit_learn():
    found, (X, y) = load("diabetes"), sklearn.datasets.load_diabetes(return_X_y=True)
    assert np.array_equal(found.data, X)
    assert np.array_equal(found.target, y)
    assert found.task == "regression"


def answer(monkeypatch, data, target):
    """Let OpenML answer with these columns; returns the list of what it is asked."""
    asked = []

    def fetch(*args, **kwargs):
        asked.append((args, kwargs))
        return Bunch(data=pd.DataFrame(data), target=target)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return asked


def test_openml_categories_become_columns(monkeypatch):
    colours = pd.Categorical(["red", "blue", "red"], categories=["red", "green", "blue"])
    data = {"size": [1, 2, 3], "colour": colours, "on": [True, False, True], "n": pd.array([4, 5, 6], dtype="Int64")}
    asked = answer(monkeypatch, data, pd.Series([0.5, 1, 2], name="price"))
    found = load("shop")
    assert found.feature_names == ["size", "colour_blue", "colour_red", "on", "n"]
    assert found.data.tolist() == [[1, 0, 1, 1, 4], [2, 1, 0, 0, 5], [3, 0, 1, 1, 6]]
    assert found.data.dtype == np.float64
    assert found.target.tolist() == [0.5, 1, 2]
    assert (found.task, found.source, found.target_names, found.test) == ("regression", "OpenML", ["price"], None)
    assert asked == [((), {"name": "shop", "as_frame": True, "parser": "auto", "cache": False})]


@pytest.mark.parametrize(
    ("target", "task", "expected"),
    [
        (pd.Series([1, 2, 3]), "regression", [1.0, 2.0, 3.0]),
        (pd.Series(["1", "2", "1"], dtype="category"), "classification", [1, 2, 1]),
        (pd.Series([1, 2, 1], dtype="category"), "classification", [1, 2, 1]),
        (pd.Series(["a", "b", "1"], dtype="category"), "classification", ["a", "b", "1"]),
        (pd.Series(["a", "b", "a"]), "classification", ["a", "b", "a"]),
        (pd.Series([True, False, True]), "classification", [1, 0, 1]),
        (pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1, 2]}), "regression", [[1, 0.5], [2, 1], [3, 2]]),
    ],
)
def test_openml_targets(monkeypatch, target, task, expected):
    answer(monkeypatch, {"x": [1.0, 2.0, 3.0]}, target)
    found = load("some")
    assert found.task == task
    assert found.target.tolist() == expected
    assert found.target.dtype.kind == ("f" if task == "regression" else "U" if "a" in expected else "i")


def test_openml_is_asked_for_the_papers_set_by_number(monkeypatch):
    asked = answer(monkeypatch, {"x": [1.0, 2.0]}, pd.Series(["1", "2"], dtype="category"))
    assert load("transfusion").target.tolist() == [1, 2]
    assert asked[0][1]["data_id"] == 1464
    assert "name" not in asked[0][1]


def test_openml_sets_that_cannot_be_used(monkeypatch):
    three = pd.Series([1.0, 2.0, 3.0], name="y")
    for gaps in ([1.0, np.nan, 2.0], pd.Categorical(["a", None, "b"])):
        answer(monkeypatch, {"x": gaps}, three)
        with pytest.raises(ValueError, match="got 'some', which at OpenML has 1 in 'x', the first in row 1"):
            load("some")
    answer(monkeypatch, {"x": [1, 2, 3]}, three.where(three > 1))
    with pytest.raises(ValueError, match="1 in 'y', the first in row 0"):
        load("some")
    answer(monkeypatch, {"x": [1, 2, 3]}, None)
    with pytest.raises(ValueError, match="a set with a target, got 'some'"):
        load("some")
    answer(monkeypatch, {"x": [1, 2, 3]}, pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["u", "v", "u"]}))
    with pytest.raises(ValueError, match="targets of one kind, got 'some'"):
        load("some")


def literal_scaling(X, train, test):
    """The paper's scaling, number by number."""
    parts = np.empty((len(train), X.shape[1])), np.empty((len(test), X.shape[1]))
    for j in range(X.shape[1]):
        centre = sum(X[i, j] for i in train) / len(train)
        spread = sum(abs(X[i, j] - centre) for i in train) / len(train)
        for part, rows in zip(parts, (train, test), strict=True):
            part[:, j] = [(X[i, j] - centre) / max(spread, 1e-5) for i in rows]
    return parts


def assert_fold(fold, X, y, test, order=None):
    order = range(len(X)) if order is None else order
    train, test = [i for i in order if i not in set(test)], [i for i in order if i in set(test)]
    scaled, scaled_test = literal_scaling(X, train, test)
    np.testing.assert_allclose(fold.X, scaled, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fold.X_test, scaled_test, rtol=1e-9, atol=1e-12)
    assert fold.y.tolist() == [y[i] for i in train]
    assert fold.y_test.tolist() == [y[i] for i in test]


@pytest.mark.parametrize("n", [53, 100, 1030])
def test_regression_folds_are_those_of_table_3(tmp_path, n):
    X, Y = write_random(tmp_path, "concrete", n, 3)
    folds = paper_folds("concrete", data_home=tmp_path)
    p = torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()
    tests = [p[int(n / 5 * i) : int(n / 5 * (i + 1))] for i in range(5)]
    assert sorted(i for rows in tests for i in rows) == list(range(n))
    assert len(folds) == 5
    for fold, test in zip(folds, tests, strict=True):
        assert_fold(fold, X, Y[:, 0], test, order=p)


def test_a_fixed_split_is_one_fold_and_any_target_can_be_had(tmp_path):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 2)), rng.standard_normal((20, 2))
    X[:, 1] = 3.0  # constant in the training part, and not in the test part
    X[[2, 5], 1] = 4.0
    test = [2, 5, 19]
    splits = ["test" if i in test else "train" for i in range(20)]
    rows = [[*map(repr, x), s, *map(repr, y)] for x, s, y in zip(X.tolist(), splits, Y.tolist(), strict=True)]
    write(tmp_path, "sml2010", ["a", "b", "split", "target_1", "target_2"], rows)
    for number in range(2):
        (fold,) = paper_folds("sml2010", target=number, data_home=tmp_path)
        assert_fold(fold, X, Y[:, number], test)
        np.testing.assert_allclose(fold.X_test[:, 1], [1e5, 1e5, 0])
    for wrong, message in [(2, "must be below 2, the targets of sml2010, got 2"), (-1, "must be at least 0, got -1")]:
        with pytest.raises(ValueError, match=f"target {message}"):
            paper_folds("sml2010", target=wrong, data_home=tmp_path)
    with pytest.raises(TypeError, match="target must be an integer, got 'b'"):
        paper_folds("sml2010", target="b", data_home=tmp_path)


def test_class_folds_are_stratified_and_a_class_of_one_row_is_no_matter(tmp_path):
    X, Y = write_random(tmp_path, "balance_scale", 60, 2, classes=3)
    write(
        tmp_path,
        "abalone",
        ["a", "b", "target"],
        [[*x, 9 if i == 7 else y] for i, (x, y) in enumerate(zip(X, Y[:, 0], strict=True))],
    )
    labels = Y[:, 0].copy()
    for name in ("balance_scale", "abalone"):
        folds = paper_folds(name, data_home=tmp_path)  # a warning would be an error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tests = [test for _, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, labels)]
        for fold, test in zip(folds, tests, strict=True):
            assert_fold(fold, X, labels, test.tolist())
        labels[7] = 9


def test_iris_of_scikit_learn_loses_its_first_row_and_that_of_a_file_does_not(tmp_path):
    iris = sklearn.datasets.load_iris()
    fold = paper_folds("iris")[0]
    assert len(fold.y) + len(fold.y_test) == 149
    test = next(StratifiedKFold(5, shuffle=True, random_state=0).split(iris.data[1:], iris.target[1:]))[1]
    assert_fold(fold, iris.data[1:], iris.target[1:] + 1, test.tolist())
    rows = [[*map(repr, x), y + 1] for x, y in zip(iris.data.tolist(), iris.target.tolist(), strict=True)]
    write(tmp_path, "iris", ["a", "b", "c", "d", "target"], rows)
    fold = paper_folds("iris", data_home=tmp_path)[0]
    assert len(fold.y) + len(fold.y_test) == 150


def test_folds_of_sets_that_are_not_the_papers_or_not_there(monkeypatch):
    with pytest.raises(ValueError, match=r"name must be one of 'parkinson_speech', .*'abalone', got 'digits'"):
        paper_folds("digits")
    asked = answer(monkeypatch, {"x": [1.0, 2.0]}, pd.Series(["1", "2"], dtype="category"))
    with pytest.raises(ValueError, match=r"got 'abalone' .*BREGNET_DATA is not set"):
        paper_folds("abalone")
    assert not asked  # its rows need not be in the paper's order


def test_the_papers_sets():
    tasks = [about.task for about in PAPER_SETS.values()]
    assert tasks == 14 * ["regression"] + 6 * ["classification"]
    with pytest.raises(TypeError):
        PAPER_SETS["mine"] = PAPER_SETS["iris"]


def test_nothing_is_written_and_the_data_may_be_changed(tmp_path):
    write(tmp_path, "iris", ["a", "target"], [[1, 2], [3, 4]])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*")}
    for _ in range(2):
        found = load("iris", data_home=tmp_path)
        assert found.data.tolist() == [[1], [3]]
        found.data[:] = 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_scaling_leaves_its_input_as_it_was():
    X, test = np.arange(6.0).reshape(3, 2), np.array([True, False, False])
    Fold.scaled(X, np.arange(3), test)
    assert np.array_equal(X, np.arange(6.0).reshape(3, 2))


def test_the_package_has_it_without_loading_scikit_learns_sets():
    code = "import sys, bregnet; sys.exit('sklearn.datasets' in sys.modules or not callable(bregnet.datasets.load))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ([True, True, True], "test must mark some rows but not all, got 3 of 3"),
        ([False] * 3, "test must mark some rows but not all, got 0 of 3"),
        ([0, 1], r"test must have shape \(3,\), got \(2,\)"),
        ([0, 1, 2], "test must hold True or False"),
    ],
)
def test_fold_of_a_bad_mask(test, message):
    with pytest.raises(ValueError, match=message):
        Fold.scaled(np.zeros((3, 1)), np.zeros(3), np.array(test))


def test_fold_of_zeros_and_ones_is_that_of_a_mask():
    X, y = np.array([[1.0], [3.0], [8.0]]), np.array([0.1, 0.2, 0.3])
    for one, other in zip(
        Fold.scaled(X, y, np.array([0, 0, 1])),
        Fold.scaled(X, y, np.array([False, False, True])),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
