"""Data sets by name, from a folder of CSV files, scikit-learn or OpenML; and the folds of the paper's tables.

A file is called NAME.csv.gz or NAME.csv and has a header. A column called ``target``, or those called ``target_1``,
``target_2``, ..., are to be predicted; ``split``, if there is one, says ``train`` or ``test`` for each row; all others
are features, and numbers. Nothing is written to disk, downloads neither.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
import warnings
import zlib
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import Bunch

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.files import UnreadableFileError
from bregnet._core.optional import require


class PaperSet(NamedTuple):
    """What is known of a set of the paper, apart from its rows.

    Examples
    --------
    >>> from bregnet.datasets import PAPER_SETS
    >>> PAPER_SETS["wdbc"].task
    'classification'
    """

    task: str  # "regression" or "classification"
    title: str  # at UCI
    openml: int | None = None  # its number at OpenML, where that is known and needed


#: The 20 sets of tables 3 (regression) and 4 (classification) of the paper: a read-only mapping from their names.
PAPER_SETS: Mapping[str, PaperSet] = MappingProxyType(
    {
        "parkinson_speech": PaperSet("regression", "Parkinson Speech Dataset with Multiple Types of Sound Recordings"),
        "garment_productivity": PaperSet("regression", "Productivity Prediction of Garment Employees"),
        "concrete": PaperSet("regression", "Concrete Compressive Strength"),
        "music_origin": PaperSet("regression", "Geographical Original of Music"),
        "solar_flare": PaperSet("regression", "Solar Flare"),
        "airfoil": PaperSet("regression", "Airfoil Self-Noise"),
        "communities": PaperSet("regression", "Communities and Crime"),
        "sml2010": PaperSet("regression", "SML2010"),
        "parkinson_telemonitoring": PaperSet("regression", "Parkinsons Telemonitoring"),
        "wine_quality_white": PaperSet("regression", "Wine Quality"),
        "bias_correction": PaperSet("regression", "Bias correction of numerical prediction model temperature forecast"),
        "seoul_bike": PaperSet("regression", "Seoul Bike Sharing Demand"),
        "air_quality": PaperSet("regression", "Air Quality"),
        "ccpp": PaperSet("regression", "Combined Cycle Power Plant"),
        "iris": PaperSet("classification", "Iris"),
        "wine": PaperSet("classification", "Wine"),
        "transfusion": PaperSet("classification", "Blood Transfusion Service Center", 1464),
        "wdbc": PaperSet("classification", "Breast Cancer Wisconsin (Diagnostic)"),
        "balance_scale": PaperSet("classification", "Balance Scale", 11),
        "abalone": PaperSet("classification", "Abalone", 183),
    }
)

# The function of scikit-learn, and what its classes 0, 1, ... are called in the paper's files where they are in them.
_OF_SCIKIT_LEARN: dict[str, tuple[str, tuple[int, ...] | None]] = {
    "iris": ("load_iris", (1, 2, 3)),
    "wine": ("load_wine", (1, 2, 3)),
    "wdbc": ("load_breast_cancer", (1, 0)),
    "breast_cancer": ("load_breast_cancer", None),
    "digits": ("load_digits", None),
    "diabetes": ("load_diabetes", None),
}


class Fold(NamedTuple):
    """Training and test part of a set.

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet.datasets import Fold
    >>> X, y, X_test, y_test = Fold(np.zeros((4, 2)), np.zeros(4), np.ones((1, 2)), np.ones(1))
    >>> X_test.shape
    (1, 2)
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @classmethod
    def scaled(cls, X: np.ndarray, y: np.ndarray, test: np.ndarray) -> Fold:
        """Cut in two, features scaled as in the paper: by mean and mean absolute deviation of the training part.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        y : ndarray of shape (n,)
        test : ndarray of shape (n,), bool
            Which rows are for testing.

        Returns
        -------
        fold : Fold

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet.datasets import Fold
        >>> X, y = np.array([[1.0], [3.0], [8.0]]), np.array([0.1, 0.2, 0.3])
        >>> fold = Fold.scaled(X, y, np.array([False, False, True]))
        >>> fold.X.tolist(), fold.X_test.tolist()
        ([[-1.0], [1.0]], [[6.0]])
        """
        X = arrays.points("X", X, None, torch.float64, None).numpy()
        y = np.asarray(arrays.to_numpy(y, "y"))
        if y.shape[:1] != (len(X),):
            raise ValueError(f"y must have an entry for each of {len(X)} rows of X, got shape {y.shape}")
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise ValueError(f"y must be finite, got {y[~np.isfinite(y)][0]}")
        test = check.booleans("test", arrays.to_numpy(test, "test"), len(X))
        if test.all() or not test.any():
            raise ValueError(f"test must mark some rows but not all, got {test.sum()} of {len(test)}")
        with np.errstate(over="ignore", invalid="ignore"):
            center = X[~test].mean(0)
            scale = np.maximum(np.abs(X[~test] - center).mean(0), 1e-5)  # of the paper, for features that are constant
            scaled = (X - center) / scale
        if not np.isfinite(scaled).all():
            raise ValueError(f"X must have finite means and deviations, got values up to {np.abs(X).max():.3g}")
        return cls(scaled[~test], y[~test], scaled[test], y[test])


def load(name: str, *, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """A data set by its name, from the first of these that has it.

    1. ``NAME.csv.gz`` or ``NAME.csv`` in `data_home`, or else in the folder that $BREGNET_DATA names.
    2. scikit-learn: iris, wine, breast_cancer, digits and diabetes; "wdbc" is breast_cancer with the paper's labels.
    3. OpenML, which needs pandas and a network. Categories become a column of zeros and ones for each value. The sets
       of the paper are only looked for where OpenML is known to have them, as another set may have their name.

    Parameters
    ----------
    name : str
        Without folder and suffix.
    data_home : path, default=None
        The folder to look in; None for that of the environment variable BREGNET_DATA, if it is set.

    Returns
    -------
    found : Bunch
        With the attributes

        - ``name``;
        - ``data``: float64 array of shape (n, d);
        - ``target``: array of shape (n,), or (n, m) where there are m > 1 targets. Classes are integers or strings;
        - ``feature_names`` and ``target_names``: lists of d and m names of columns;
        - ``task``: "regression" or "classification";
        - ``test``: bool array of shape (n,), the test rows of a fixed split, or None;
        - ``source``: "file", "scikit-learn" or "OpenML".

    Raises
    ------
    ValueError
        The set was not found, or that of OpenML has missing values or no target. A file that is damaged or not of the
        format above gives a subclass of it, with the column and the line in question.
    NotADirectoryError
        `data_home` or $BREGNET_DATA is not a folder.

    Notes
    -----
    The task of a file is that of :data:`PAPER_SETS` if its name is there. Otherwise targets without a single number in
    them are classes, and so are whole numbers (1.0 is one) of at most 20 different values; anything else is regression.

    Iris, wine and wdbc have the labels of the paper's files (1, 2, 3; and 1 for malignant, 0 for benign) when they come
    from scikit-learn too. Its iris has all 150 rows, where the paper's has 149; see :func:`paper_folds`.

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet.datasets import load
    >>> wine = load("wine")
    >>> wine.data.shape, wine.task
    ((178, 13), 'classification')
    >>> np.unique(wine.target).tolist()
    [1, 2, 3]
    """
    _check_name(name)
    home = _folder(data_home)
    found = _at_hand(name, home)
    return _from_openml(name, home) if found is None else found


def paper_folds(name: str, *, target: int = 0, data_home: str | os.PathLike[str] | None = None) -> list[Fold]:
    """The folds of the paper's tables 3 and 4, features scaled as there.

    A fixed split is one fold. The rows of other regression sets are put in the order of ``torch.randperm`` with seed 0
    and cut into five, which is what the paper's table 3 was made with: its Lasso column comes out again, also where the
    inner folds of ``LassoCV``, which follow that order, make a difference. The folds of table 4 (classification) are
    not published; they are five stratified ones here, shuffled with seed 0. Features are centered by the mean and
    divided by the mean absolute deviation (at least 1e-5) of the training part.

    Parameters
    ----------
    name : str
        One of :data:`PAPER_SETS`.
    target : int, default=0
        The number of the target, for sets that have several.
    data_home : path, default=None
        As in :func:`load`. OpenML is not used: its copies may have the rows in another order.

    Returns
    -------
    folds : list of Fold
        Each with ``X``, ``y``, ``X_test`` and ``y_test``, rows in the order of the file, or that of the permutation.

    Notes
    -----
    The paper's iris lacks the first row, which was taken for a header, so it is left out when iris comes from
    scikit-learn. That copy still differs from UCI's, which the paper has, in two rows (three values).

    Examples
    --------
    >>> from bregnet.datasets import PAPER_SETS, paper_folds
    >>> [len(fold.y_test) for fold in paper_folds("wine")]
    [36, 36, 36, 35, 35]
    >>> [name for name, about in PAPER_SETS.items() if about.task == "classification"]
    ['iris', 'wine', 'transfusion', 'wdbc', 'balance_scale', 'abalone']
    """
    check.one_of("name", name, tuple(PAPER_SETS))
    column = check.integer_at_least("target", target, 0)
    home = _folder(data_home)
    found = _at_hand(name, home)
    if found is None:
        raise _missing(name, home, "its rows may be in another order")
    if column >= len(found.target_names):
        raise ValueError(f"target must be below {len(found.target_names)}, the targets of {name}, got {column}")
    X, y = found.data, found.target.reshape(len(found.data), -1)[:, column]
    if name == "iris" and found.source == "scikit-learn":
        X, y = X[1:], y[1:]
    if found.test is not None:
        return [Fold.scaled(X, y, found.test)]
    if found.task == "regression":
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0), device="cpu").numpy()
        X, y = X[order], y[order]
    return [Fold.scaled(X, y, np.isin(np.arange(len(X)), rows)) for rows in _test_rows(X, y, found.task)]


def _test_rows(X: np.ndarray, y: np.ndarray, task: str) -> list[np.ndarray]:
    """Which rows are for testing, in each of five folds."""
    n = len(X)
    if task == "regression":
        return [np.arange(int(n / 5 * i), int(n / 5 * (i + 1))) for i in range(5)]
    with warnings.catch_warnings():  # abalone has classes of a single row
        warnings.filterwarnings("ignore", "The least populated class in y has only", UserWarning)
        return [rows for _, rows in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)]


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {name!r}")
    if name in ("", ".", "..") or PurePosixPath(name).name != name or PureWindowsPath(name).name != name:
        raise ValueError(f"name must be that of a data set, without a folder, got {name!r}")


def _folder(data_home: Any) -> Path | None:
    """The folder to look in, or None where there is none."""
    argument, value = "data_home", data_home
    if data_home is None:
        argument, value = "the environment variable BREGNET_DATA", os.environ.get("BREGNET_DATA")
        if not value:
            return None
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{argument} must be a path or None, got {value!r}")
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(f"{argument} must be a folder, got {str(value)!r}, which is none")
    return folder


def _missing(name: str, home: Path | None, reason: object) -> ValueError:
    """The error for a set that is nowhere, with all places where it might have been."""
    if home is None:
        looked = "no folder was looked at (data_home is None and BREGNET_DATA is not set)"
    else:
        files = {*home.glob("*.csv"), *home.glob("*.csv.gz")}
        names = sorted({path.name.removesuffix(".gz").removesuffix(".csv") for path in files})
        listed = ", ".join(names[:40]) + (", ..." if len(names) > 40 else "")
        looked = (
            f"{home} (data_home or BREGNET_DATA) has no {name}.csv.gz or {name}.csv but {listed or 'no such files'}"
        )
    title = f" (at UCI: {PAPER_SETS[name].title})" if name in PAPER_SETS else ""
    return ValueError(
        f"name must be that of a data set at hand, got {name!r}{title}: {looked}; scikit-learn has"
        f" {', '.join(_OF_SCIKIT_LEARN)}; not from OpenML: {reason}"
    )


def _at_hand(name: str, home: Path | None) -> Bunch | None:
    """The set from a file or from scikit-learn, or None."""
    for path in () if home is None else (home / f"{name}.csv.gz", home / f"{name}.csv"):
        if os.path.isfile(path):  # False, not an error, for names no file can have
            return _from_file(name, _read(path))
    return _from_scikit_learn(name) if name in _OF_SCIKIT_LEARN else None


class _Table(NamedTuple):
    """A CSV file, cells as they are written."""

    path: Path
    columns: dict[str, tuple[str, ...]]
    lines: tuple[int, ...]  # of the file, one a row

    def numbers(self, name: str) -> np.ndarray:
        """A column of finite numbers."""
        values = np.array([_number(cell) for cell in self.columns[name]], dtype=float)  # None becomes NaN
        self.require(name, np.isfinite(values), "finite numbers")
        return values

    def require(self, name: str, right: np.ndarray, accepted: str) -> None:
        """Refuse the file for the first cell of a column that is not right."""
        if not right.all():
            row = int(right.argmin())
            found = self.columns[name][row]
            raise UnreadableFileError(
                f"{self.path}: column {name!r} must hold {accepted}, got {found!r} in line {self.lines[row]}"
            )


def _number(cell: str) -> float | None:
    """What a cell says, None where that is no number."""
    try:
        return float(cell)
    except ValueError:
        return None


def _read(path: Path) -> _Table:
    open_text: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise UnreadableFileError(f"{path} is damaged, or not a CSV file: {error}") from error
    for line, row in rows:
        if len(row) != len(header):
            raise UnreadableFileError(
                f"{path}: every row must have {len(header)} cells, as the header has, got {len(row)} in line {line}"
            )
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise UnreadableFileError(f"{path}: columns must have different names, got {', '.join(map(repr, twice))} twice")
    if not rows:
        raise UnreadableFileError(f"{path} must have a header and at least one row, got {len(header)} columns, no row")
    lines, cells = zip(*rows, strict=True)
    return _Table(path, dict(zip(header, zip(*cells, strict=True), strict=True)), lines)


def _from_file(name: str, table: _Table) -> Bunch:
    targets = [column for column in table.columns if re.fullmatch(r"target(_[0-9]+)?", column)]
    targets.sort(key=lambda column: int(column[7:] or 0))
    features = [column for column in table.columns if column not in (*targets, "split")]
    if not targets or (len(targets) > 1 and "target" in targets):
        raise UnreadableFileError(
            f"{table.path} must have a column 'target', or columns 'target_1', 'target_2', ..., got"
            f" {', '.join(map(repr, table.columns))}"
        )
    if not features:
        raise UnreadableFileError(f"{table.path} must have a feature, got only {', '.join(map(repr, table.columns))}")
    target, task = _targets(table, targets, PAPER_SETS[name].task if name in PAPER_SETS else None)
    data = np.column_stack([table.numbers(column) for column in features])
    names = {"name": name, "feature_names": features, "target_names": targets}
    return _bunch(data, target, task=task, test=_split(table), source="file", **names)


def _split(table: _Table) -> np.ndarray | None:
    if "split" not in table.columns:
        return None
    cells = np.array(table.columns["split"])
    table.require("split", np.isin(cells, ("train", "test")), "'train' or 'test'")
    test = cells == "test"
    if test.all() or not test.any():
        raise UnreadableFileError(
            f"{table.path}: column 'split' must hold both 'train' and 'test', got '{cells[0]}' only"
        )
    return test


def _targets(table: _Table, names: list[str], task: str | None) -> tuple[np.ndarray, str]:
    """Targets (n, m), and the task; where that is not known, the rule of :func:`load`."""
    cells = np.array([table.columns[name] for name in names]).T
    if task != "regression" and all(_number(cell) is None for cell in cells.flat):
        for name, words in zip(names, cells.T, strict=True):
            table.require(name, np.char.str_len(np.char.strip(words)) > 0, "a class in every row")
        return cells, "classification"
    values = np.column_stack([table.numbers(name) for name in names])
    whole = (values == np.rint(values)) & (np.abs(values) < 2**53)
    if task is None:
        few = all(len(np.unique(column)) <= 20 for column in values.T)
        task = "classification" if whole.all() and few else "regression"
    if task == "regression":
        return values, task
    for name, right in zip(names, whole.T, strict=True):
        table.require(name, right, "classes, whole numbers or words")
    return values.astype(np.int64), task


def _from_scikit_learn(name: str) -> Bunch:
    from sklearn import datasets  # here, as few need it

    function, labels = _OF_SCIKIT_LEARN[name]
    found = getattr(datasets, function)()
    target = found.target if labels is None else np.array(labels)[found.target]
    task = "classification" if target.dtype.kind == "i" else "regression"
    features = [str(feature) for feature in found.feature_names]
    names = {"name": name, "feature_names": features, "target_names": ["target"]}
    return _bunch(found.data, target[:, None], task=task, test=None, source="scikit-learn", **names)


def _from_openml(name: str, home: Path | None) -> Bunch:
    from sklearn.datasets import fetch_openml  # here, as few need it

    paper = PAPER_SETS.get(name)
    if paper is not None and paper.openml is None:
        raise _missing(name, home, "it is not known to have this set of the paper")
    which = {"name": name} if paper is None else {"data_id": paper.openml}
    try:
        require("a set of OpenML", "pandas", extra="tables")
        with warnings.catch_warnings():  # of tries before the last, which is in the error
            warnings.filterwarnings("ignore", "A network error occurred while downloading", UserWarning)
            found = fetch_openml(**which, as_frame=True, parser="auto", cache=False)
    except (OSError, HTTPException, ValueError, ImportError) as error:
        raise _missing(name, home, error) from error
    if found.target is None:
        raise ValueError(f"name must be that of a set with a target, got {name!r}, for which OpenML states none")
    frame = found.target.to_frame() if found.target.ndim == 1 else found.target
    for column, values in (*found.data.items(), *frame.items()):
        gaps = values.isna().to_numpy()
        if gaps.any():
            raise ValueError(
                f"name must be that of a set without missing values, got {name!r}, which at OpenML has {gaps.sum()} in"
                f" {str(column)!r}, the first in row {gaps.argmax()}"
            )
    coded = [pair for column in found.data for pair in _coded(column, found.data[column])]
    columns = [_openml_target(frame[column]) for column in frame]
    tasks = {"regression" if column.dtype.kind == "f" else "classification" for column in columns}
    if len(tasks) > 1:
        raise ValueError(
            f"name must be that of a set with targets of one kind, got {name!r}, which has numbers and classes"
        )
    data, target = np.column_stack([values for _, values in coded]), np.column_stack(columns)
    features, targets = [feature for feature, _ in coded], [str(column) for column in frame]
    names = {"name": name, "feature_names": features, "target_names": targets}
    return _bunch(data, target, task=tasks.pop(), test=None, source="OpenML", **names)


def _coded(column: str, values: Any) -> list[tuple[str, np.ndarray]]:
    """Names and values of the features made of a pandas column: itself, or one for each of its categories."""
    if values.dtype.kind in "biuf":
        return [(str(column), values.to_numpy(dtype=float))]
    words = values.astype(str).to_numpy(dtype=str)
    return [(f"{column}_{word}", (words == word).astype(float)) for word in np.unique(words)]


def _openml_target(values: Any) -> np.ndarray:
    """Numbers as floats; classes as integers, or as strings where they are no integers."""
    if values.dtype.kind in "iuf":
        return values.to_numpy(dtype=float)
    words = values.astype(int if values.dtype.kind == "b" else str).to_numpy().astype(str)
    try:
        return words.astype(np.int64)
    except ValueError:
        return words


def _bunch(data: np.ndarray, target: np.ndarray, **fields: Any) -> Bunch:
    """A set; several targets are columns."""
    target = target[:, 0] if target.shape[1] == 1 else target
    return Bunch(data=np.ascontiguousarray(data, dtype=np.float64), target=target, **fields)
