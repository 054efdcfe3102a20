"""Saving and loading: one file of tensors with a header of plain values, never pickle."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bregnet import _validation as check
from bregnet._files import UnreadableFileError, read_tensors, whole_file, write_tensors
from bregnet._states import (
    ARRAY,
    DIVERGENCE,
    FINITE,
    FUNCTION,
    KNOWN,
    LABELS,
    NAMES,
    RANGE,
    REAL,
    TEXT,
    TRUTH,
    Field,
    Made,
    Tensors,
    finite_number,
    mapping,
    text,
    texts,
    whole,
)
from bregnet.admm.result import Check, Result
from bregnet.divergences import BregmanDivergence
from bregnet.functions import DifferenceOfConvex, MaxAffine
from bregnet.generators import Generator
from bregnet.metric_learning import PBDL
from bregnet.model_selection import PBDLCV, ConvexRegressorCV, DCRegressorCV
from bregnet.regression import ConvexRegressor, DCRegressor

HOLDS, VERSION = "model", 1
ROOT = "object"
OF_THE_RUN = {"callback", "checkpoint", "scratch"}  # parameters about one run on one machine
DAMAGE = (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError, RecursionError, OverflowError)


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write a generator, a divergence or a fitted estimator to one file.

    The file holds numbers and words only, no code. It is written beside `path` first and takes its place when it is
    whole, so that a save that fails leaves what was there.

    Parameters
    ----------
    obj : generator, DifferenceOfConvex, BregmanDivergence or fitted estimator
        Estimators are saved with their constructor parameters and fitted attributes. A callback, a splitter, a
        ``RandomState`` and where to keep checkpoints are not saved, and have their defaults after :func:`load`; nor is
        what a warm start would go on from.
    path : str or path
        The file; one that is there is replaced.

    Raises
    ------
    TypeError
        For an object of another type.
    sklearn.exceptions.NotFittedError
        For an estimator that is not fitted.

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
    content = {"state": _write_any(ROOT, obj, tensors), "same": tensors.same}
    header = {**content, "digest": _digest(content, tensors.stored)}
    with whole_file(Path(path)) as made:
        try:
            write_tensors(made, HOLDS, VERSION, header, tensors.stored)
        except SafetensorError as error:  # of the system: no space, no permission
            raise OSError(f"{path} cannot be written: {error}") from error


def load(path: str | os.PathLike[str]) -> Any:
    """Read what :func:`save` wrote.

    Nothing in the file is run: its header is checked and names one of the types that can be saved.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    obj : object
        Of the type that was saved; parameters of generators are shown as numpy arrays.

    Raises
    ------
    bregnet.UnreadableFileError
        For a file that was cut short or altered, is of a later version, or holds something else.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import bregnet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bregnet.save(bregnet.divergence("kl"), Path(folder) / "kl.bregnet")
    ...     bregnet.load(Path(folder) / "kl.bregnet")
    BregmanDivergence(KullbackLeibler())
    """
    return load_with_header(path)[0]


def load_with_header(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """What :func:`save` wrote, and the header of the file."""
    path = Path(path)
    if path.is_dir():
        raise UnreadableFileError(f"{path} is a folder; the folder of an index is opened by BregmanIndex.load")
    header, stored = read_tensors(path, HOLDS, VERSION, mmap=False)
    try:
        content = {name: header[name] for name in ("state", "same")}
        if header["digest"] != _digest(content, stored):
            raise ValueError("its contents do not have the checksum that was written with them")
        return _read_any(ROOT, content["state"], Tensors(stored, content["same"])), header
    except DAMAGE as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise UnreadableFileError(f"{path} is not a {HOLDS} of bregnet, or was damaged: {what}") from error


def _digest(content: dict[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """A checksum against accidents; it does not say who wrote the file."""
    found = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


PARTS: dict[str, Field] = {"str": TEXT, "bool": TRUTH, "int": whole(0), "float": REAL}  # of a Result, by annotation
CHECK_PARTS = len(fields(Check))


def _write_result(name: str, value: Result, tensors: Tensors) -> dict[str, Any]:
    rows = np.array([astuple(each) for each in value.history], dtype=float).reshape(-1, CHECK_PARTS)
    tensors.put(f"{name}.history", torch.as_tensor(rows))
    parts = [each for each in fields(Result) if each.name != "history"]
    return {each.name: PARTS[str(each.type)].write(name, getattr(value, each.name), tensors) for each in parts}


def _read_result(name: str, state: Any, tensors: Tensors) -> Result:
    rows = tensors.array(f"{name}.history", ndim=2, finite=False)
    if rows.shape[1] != CHECK_PARTS:
        raise ValueError(f"{name}.history must have {CHECK_PARTS} columns, got {rows.shape[1]}")
    found: dict[str, Any] = {"history": tuple(Check(int(first), *map(float, others)) for first, *others in rows)}
    for part in fields(Result):
        if part.name != "history" and (part.name in mapping(name, state) or part.default is MISSING):
            found[part.name] = PARTS[str(part.type)].read(f"{name}.{part.name}", state[part.name], tensors)
    return Result(**found)


def _write_table(name: str, value: dict[str, Any], tensors: Tensors) -> list[str]:
    columns = [each for each in value if each != "params"]
    for column in columns:
        ARRAY.write(f"{name}.{column}", value[column], tensors)
    return columns


def _read_table(name: str, state: Any, tensors: Tensors) -> dict[str, Any]:
    """The `cv_results_` of a search; its "params" say again what two of the columns say."""
    columns = {each: tensors.array(f"{name}.{each}", kinds="iuf", finite=False) for each in texts(name, state)}
    if len({len(column) for column in columns.values()}) != 1:
        raise ValueError(f"{name} must have columns of one length")
    chosen = zip(columns["param_alpha"], columns["param_temperature"], strict=True)
    params = [{"alpha": float(alpha), "temperature": float(temperature)} for alpha, temperature in chosen]
    return {"params": params, **columns}


def _write_any(name: str, value: Any, tensors: Tensors) -> dict[str, Any]:
    if type(value) not in KINDS:
        accepted = ", ".join(sorted(each.__name__ for each in KINDS))
        raise TypeError(f"only objects of these types can be saved: {accepted}; got a {type(value).__name__}")
    return {"type": type(value).__name__, **KINDS[type(value)].write(name, value, tensors)}


def _read_any(name: str, state: Any, tensors: Tensors) -> Any:
    known = {each.__name__: field for each, field in KINDS.items()}
    found = text("type", mapping(name, state)["type"])
    if found not in known:
        raise ValueError(f"it must hold one of {', '.join(sorted(known))}, got {found!r}")
    return known[found].read(name, state, tensors)


FITTED: dict[str, Field] = {
    "n_features_in_": whole(1),
    "feature_names_in_": NAMES,
    "function_": FUNCTION,
    "divergence_": DIVERGENCE,
    "threshold_": REAL,
    "classes_": LABELS,
    "feature_bounds_": ARRAY,
    "target_range_": RANGE,
    "result_": Made(_write_result, _read_result),
    "gap_": REAL,
    "n_iter_": whole(1),
    "alpha_": FINITE,
    "temperature_": FINITE,
    "best_score_": REAL,
    "best_index_": whole(0),
    "n_splits_": whole(1),
    "n_fits_": whole(1),
    "cv_results_": Made(_write_table, _read_table),
    "best_estimator_": Made(_write_any, _read_any),
}


class _NotPlainError(TypeError):
    """A parameter that is code, or has a state of its own."""


def _write_parameter(name: str, value: Any, tensors: Tensors) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        items = [_write_parameter(f"{name}.{number}", each, tensors) for number, each in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        ARRAY.write(name, value, tensors)
        return {"array": value.ndim}
    if isinstance(value, Generator):
        return {"generator": FUNCTION.write(name, value, tensors)}
    raise _NotPlainError(f"{name} cannot be saved, got {value!r}")


def _read_parameter(name: str, state: Any, tensors: Tensors) -> Any:
    if isinstance(state, list):
        return [_read_parameter(f"{name}.{number}", each, tensors) for number, each in enumerate(state)]
    if not isinstance(state, dict):
        return finite_number(name, state) if isinstance(state, float) else state
    ((tag, inner),) = state.items()
    if tag == "tuple" and isinstance(inner, list):
        return tuple(_read_parameter(name, inner, tensors))
    if tag == "device":
        return torch.device(text(name, inner))
    if tag == "array":
        return tensors.array(name, ndim=check.integer_at_least(name, inner, 0), kinds="biuf", finite=False)
    if tag == "generator":
        return FUNCTION.read(name, inner, tensors)
    raise ValueError(f"{name} must be a plain value, got {state!r}")


@dataclass(frozen=True)
class Fitted:
    """An estimator: its constructor parameters and fitted attributes."""

    of: type
    learns: tuple[type, ...]  # types of function_
    attributes: tuple[str, ...]
    perhaps: tuple[str, ...] = ("feature_names_in_",)  # attributes that some fits do not set

    def write(self, name: str, value: Any, tensors: Tensors) -> dict[str, Any]:
        """The parameters that are plain values, and all attributes."""
        check_is_fitted(value, self.attributes)
        parameters = {}
        for each, given in value.get_params(deep=False).items():
            if each not in OF_THE_RUN:
                try:
                    parameters[each] = _write_parameter(f"{name}.{each}", given, tensors)
                except _NotPlainError:
                    continue
        there = [*self.attributes, *(each for each in self.perhaps if hasattr(value, each))]
        fitted = {each: FITTED[each].write(f"{name}.{each}", getattr(value, each), tensors) for each in there}
        return {"parameters": parameters, "fitted": fitted}

    def read(self, name: str, state: Any, tensors: Tensors) -> Any:
        """The fitted estimator; parameters that the file does not hold have their defaults."""
        given, fitted = (mapping(part, state[part]) for part in ("parameters", "fitted"))
        accepted = set(inspect.signature(self.of).parameters) - OF_THE_RUN
        unknown = (given.keys() - accepted) | (fitted.keys() - {*self.attributes, *self.perhaps})
        missing = set(self.attributes) - fitted.keys()
        if unknown or missing:
            raise ValueError(f"a {self.of.__name__} without {sorted(missing)} and with {sorted(unknown)}")
        parameters = {each: _read_parameter(f"{name}.{each}", part, tensors) for each, part in given.items()}
        estimator = self.of(**parameters)
        for each, part in fitted.items():
            setattr(estimator, each, FITTED[each].read(f"{name}.{each}", part, tensors))
        self._check(estimator)
        return estimator

    def _check(self, estimator: Any) -> None:
        """Whether what was read belongs together."""
        counts = {"function_": estimator.function_.n_features, "feature_bounds_": len(estimator.feature_bounds_)}
        if not isinstance(estimator.function_, self.learns):
            raise ValueError(f"function_ of a {self.of.__name__} cannot be {estimator.function_!r}")
        if hasattr(estimator, "feature_names_in_"):
            counts["feature_names_in_"] = len(estimator.feature_names_in_)
        if hasattr(estimator, "divergence_"):
            counts["divergence_"] = estimator.divergence_.n_features
        if hasattr(estimator, "best_estimator_"):
            if type(estimator.best_estimator_) is not estimator._searched:
                raise ValueError(f"best_estimator_ cannot be {estimator.best_estimator_!r}")
            counts["best_estimator_"] = estimator.best_estimator_.n_features_in_
        for name, count in counts.items():
            if count != estimator.n_features_in_:
                raise ValueError(f"{name} must have {estimator.n_features_in_} features, got {count}")


_SOLVED = ("n_features_in_", "function_", "feature_bounds_", "result_", "gap_", "n_iter_")
_REGRESSOR = (*_SOLVED, "target_range_")
_LEARNER = (*_SOLVED, "divergence_", "threshold_")
_CHOSEN = ("alpha_", "temperature_", "best_score_", "best_index_", "n_splits_", "n_fits_", "cv_results_")
_SEARCHED = (*_CHOSEN, "best_estimator_")
_PERHAPS_CLASSES = ("feature_names_in_", "classes_")

_ESTIMATORS = (
    Fitted(ConvexRegressor, (MaxAffine,), _REGRESSOR),
    Fitted(DCRegressor, (DifferenceOfConvex,), _REGRESSOR),
    Fitted(PBDL, (MaxAffine,), _LEARNER, _PERHAPS_CLASSES),
    Fitted(ConvexRegressorCV, (Generator,), (*_REGRESSOR, *_SEARCHED)),
    Fitted(DCRegressorCV, (DifferenceOfConvex,), (*_REGRESSOR, *_SEARCHED)),
    Fitted(PBDLCV, (MaxAffine,), (*_LEARNER, *_SEARCHED), _PERHAPS_CLASSES),
)
# a new kind of object is a new entry here
KINDS: dict[type, Field] = {
    **dict.fromkeys((*KNOWN, DifferenceOfConvex), FUNCTION),
    BregmanDivergence: DIVERGENCE,
    **{each.of: each for each in _ESTIMATORS},
}
