"""Saving and loading: one file of tensors with a header of plain values, never pickle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bregnet._core.files import UnreadableFileError, digest, naming_damage, read_tensors, whole_file, write_tensors
from bregnet._core.state import Tensors
from bregnet.io.kinds import read_any, write_any

VERSION = 1


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write a generator, a divergence, an index or a fitted estimator to one file.

    The file holds numbers and text only, no code. It is written under another name first and renamed when it is
    complete, so that a save that fails leaves an older file as it was.

    Parameters
    ----------
    obj : object
        One of

        - a generator, of the library or your own; a `DifferenceOfConvex` of two; a `BregmanDivergence` or a
          `MappedDivergence`,
        - a fitted `PBDL`, `BregmanNCA`, `ConvexRegressor`, `DCRegressor`, or search for the parameters of one,
        - a fitted `BregmanNearestNeighbors`, `BregmanKNeighborsClassifier`, `BregmanKNeighborsRegressor` or
          `BregmanRanker`, with its rows; a fitted `BregmanKMeans` or `BregmanMixture`. A learner in them is a `PBDL`, a
          `PBDLCV` or a `BregmanNCA`,
        - a fitted pipeline that ends in one of these estimators, after scikit-learn's scalers, PCA and other common
          transformers of numbers, or a `ColumnTransformer` made of `SimpleImputer`, `OneHotEncoder` and
          `OrdinalEncoder`,
        - a `BregmanIndex` (its own ``save`` writes a folder that can be memory-mapped), or the `InnerProductForm` that
          ``to_inner_product`` makes of one.
    path : str or path
        The file; an older one is replaced.

    Raises
    ------
    TypeError
        For an object of another type, or a parameter that is code, such as a function that weights neighbors.
    sklearn.exceptions.NotFittedError
        For an estimator that is not fitted.
    OSError
        Where the file cannot be written.

    Notes
    -----
    Estimators are saved with their constructor parameters and fitted attributes. Parameters that only `fit` uses and
    that are code, or objects with a state, are not saved and have their defaults after :func:`load`: a callback, a
    checkpoint, a splitter, a function as `scoring` or `init`, a ``RandomState``.

    After :func:`load`, `partial_fit` of :class:`bregnet.BregmanKMeans` goes on as before. `partial_fit` and
    ``warm_start=True`` of the estimators on the solver start again, since the rows and the solver's state are not
    saved.

    A generator of your own is saved as the name of its class and the arguments of its constructor. The module that
    defines the class must be imported before :func:`load`, which runs no code from the file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import bregnet
    >>> model = bregnet.ConvexRegressor(1e-4).fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 4.0, 9.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bregnet.save(model, Path(folder) / "model.bregnet")
    ...     same = bregnet.load(Path(folder) / "model.bregnet")
    >>> bool(same.predict([[1.5]]) == model.predict([[1.5]]))
    True
    """
    tensors = Tensors()
    content = {"state": write_any("object", obj, tensors), "same": tensors.same}
    header = {**content, "digest": digest(content, tensors.stored)}
    with whole_file(Path(path)) as made:
        write_tensors(made, "model", VERSION, header, tensors.stored)


def load(path: str | os.PathLike[str]) -> Any:
    """Read what :func:`save` wrote.

    No code in the file is run: its header names one of the types that can be saved, and is checked.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    obj : object
        An object of the type that was saved, with the same results to the last bit on the same machine. Parameters of
        generators are shown as numpy arrays. An index computes on the CPU if it did before, and otherwise on the device
        that "auto" chooses.

    Raises
    ------
    bregnet.UnreadableFileError
        For a file that was truncated or altered, is of a later version, or holds something unknown, such as a generator
        whose class was not imported.
    OSError
        For a file that does not exist or cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import bregnet
    >>> classifier = bregnet.BregmanKNeighborsClassifier("kl", n_neighbors=1).fit([[0.1, 0.9], [0.8, 0.2]], ["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bregnet.save(classifier, Path(folder) / "classifier.bregnet")
    ...     bregnet.load(Path(folder) / "classifier.bregnet").predict([[0.3, 0.7]])
    array(['a'], dtype='<U1')

    An index is one file too, to which items can be added after it was read:

    >>> index = bregnet.BregmanIndex("sqeuclidean")
    >>> index.add([[0.0], [1.0], [3.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bregnet.save(index, Path(folder) / "items.bregnet")
    ...     same = bregnet.load(Path(folder) / "items.bregnet")
    >>> same.add([[2.0]])
    >>> same.search([[2.2]], k=2)[1]
    array([[3, 2]])
    """
    return load_with_header(path)[0]


def load_with_header(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """The object that :func:`save` wrote, and the header of the file."""
    path = Path(path)
    if path.is_dir():
        raise UnreadableFileError(f"{path} is a folder; the folder of an index is opened by BregmanIndex.load")
    header, stored = read_tensors(path, "model", VERSION)
    with naming_damage(path, "model"):
        content = {name: header[name] for name in ("state", "same")}
        if header["digest"] != digest(content, stored):
            raise ValueError("its contents do not have the checksum that was written with them")
        tensors = Tensors(stored, content["same"])
        found = read_any("object", content["state"], tensors)
        tensors.expect_all_read()
    return found, header
