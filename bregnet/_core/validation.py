"""Checks of constructor parameters, with errors that say what was found and what is accepted."""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Callable
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from sklearn.utils import validation
from sklearn.utils.multiclass import check_classification_targets

from bregnet._core import arrays
from bregnet._core.arrays import to_numpy

Fit = TypeVar("Fit", bound=Callable[..., Any])


def positive(name: str, value: Any) -> float:
    """A positive finite number."""
    return _finite(name, value, operator.gt, "positive")


def at_least_zero(name: str, value: Any) -> float:
    """A finite number that is not negative."""
    return _finite(name, value, operator.ge, "at least 0")


def _finite(name: str, value: Any, compare: Callable[[float, float], bool], accepted: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not (compare(number, 0) and math.isfinite(number)):
        raise ValueError(f"{name} must be {accepted} and finite, got {value!r}")
    return number


def numbers(name: str, values: Any, each: Callable[[str, Any], float]) -> tuple[float, ...]:
    """At least one number, every one of which `each` accepts."""
    if isinstance(values, str) or np.ndim(values) != 1:
        raise TypeError(f"{name} must be a sequence of numbers, got {values!r}")
    found = tuple(each(f"each of {name}", value) for value in values)
    if not found:
        raise ValueError(f"{name} must hold at least one number, got none")
    return found


def same_kind(name: str, values: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Values that are numbers or strings as those before; numpy would turn both into strings."""
    if is_text(values) != is_text(before):
        raise TypeError(f"{name} must hold values of one kind, got dtype {values.dtype} after {before.dtype}")
    return values


def is_text(values: np.ndarray) -> bool:
    """Whether they are strings, of numpy or, as in a column of a frame, of Python."""
    return values.dtype.kind in "US" or (values.dtype == object and all(isinstance(value, str) for value in values))


def folder(name: str, value: Any) -> Path:
    """A path."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a path, got {value!r}")
    if not os.fspath(value):
        raise ValueError(f"{name} must be a path, got an empty one")
    return Path(value)


def booleans(name: str, values: Any, length: int, *, signs: bool = False) -> np.ndarray:
    """Booleans (length,), or 0 and 1; with `signs` also -1 and 1."""
    array = np.asarray(values)
    if array.shape != (length,):
        raise ValueError(f"{name} must have shape ({length},), got {array.shape}")
    if signs and array.dtype.kind in "if" and np.isin(array, (-1, 1)).all():
        return array > 0
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        accepted = "True or False, or 1 and -1" if signs else "True or False"
        raise ValueError(f"{name} must hold {accepted}, got dtype {array.dtype} with other values")
    return array.astype(bool)


def integer_at_least(name: str, value: Any, least: int) -> int:
    """An integer not below `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def max_features(value: Any, n_features: int) -> int:
    """The number of features, given as a number or as a share of all; at least one."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"max_features must be a share or a number of features, got {value!r}")
    if isinstance(value, Integral):
        if not 1 <= int(value) <= n_features:
            accepted = f"at least 1 and at most the number of features, {n_features}"
            raise ValueError(f"max_features must be {accepted}, got {value}")
        return int(value)
    if not 0 < float(value) <= 1:
        raise ValueError(f"max_features must be above 0 and at most 1.0, or a whole number, got {value!r}")
    return max(1, round(float(value) * n_features))


def jobs(value: Any) -> int:
    """A number of jobs as joblib counts them: below zero, all but so many."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"n_jobs must be None or an integer, got {value!r}")
    if value == 0:
        raise ValueError("n_jobs must not be 0; -1 takes all cores")
    return int(value)


def one_of(name: str, value: Any, accepted: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in accepted:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}, got {value!r}")
    return value


def boolean(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def verbosity(value: Any) -> int:
    """A level of output; True is 1."""
    return int(value) if isinstance(value, bool) else integer_at_least("verbose", value, 0)


def all_or_nothing(fit: Fit) -> Fit:
    """A decorator: a fit that fails or is interrupted leaves the estimator as it was.

    The state for a warm start is lost, since the fit may have changed it.
    """

    @wraps(fit)
    def whole(self: Any, *arguments: Any, **named: Any) -> Any:
        before = {name: None if name == "_warm" else value for name, value in vars(self).items()}  # which is large
        try:
            return fit(self, *arguments, **named)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Fit, whole)


def calls_inside() -> int:
    """How many calls above the caller of this function are still in the library, itself included."""
    frame, n_calls = sys._getframe(1), 0
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("bregnet."):
        frame, n_calls = frame.f_back, n_calls + 1
    return n_calls


def class_labels(labels: np.ndarray) -> None:
    """Check that targets are classes, without scikit-learn's warnings about large numbers."""
    if labels.dtype.kind == "S":
        raise TypeError(f"y must hold numbers or strings, got bytes of dtype {labels.dtype}")
    with np.errstate(invalid="ignore"):
        check_classification_targets(labels)


def validate_data(estimator: Any, *arrays: Any, **checks: Any) -> Any:
    """As in scikit-learn, without a warning about infinities before the error.

    Arrays are in C order, so that a frame, which is in Fortran order, gives the same numbers; a memory map stays as it
    is.
    """
    if arrays and not isinstance(arrays[0], np.memmap):
        checks.setdefault("order", "C")
    with np.errstate(invalid="ignore"):
        return validation.validate_data(estimator, *arrays, **checks)


def fitted_if_estimator(given: Any) -> None:
    """Raise scikit-learn's error for an estimator that is not fitted; accept anything else."""
    if hasattr(given, "fit") and hasattr(type(given), "get_params"):
        validation.check_is_fitted(given)


def rows_of(estimator: Any, name: str, values: Any, **checks: Any) -> Any:
    """Rows for a fitted estimator, checked by scikit-learn, which calls every argument X."""
    try:
        return validate_data(estimator, values, reset=False, **checks)
    except ValueError as error:
        if name == "X" or not str(error).startswith(("X has", "Input X")):
            raise
        raise ValueError(str(error).replace("X", name, 1)) from error


def checked_score(score: Callable[..., float], X: Any, y: Any, sample_weight: Any) -> float:
    """A score by a method of scikit-learn, of checked arguments; an error, not a warning, where numbers overflow."""
    rows, targets = to_numpy(X, "X"), to_numpy(y, "y")
    try:
        n_rows = len(targets)
    except TypeError as error:
        raise TypeError(f"y must have an entry for each row, got {targets!r}") from error
    weights = sample_weights(sample_weight, n_rows)
    with np.errstate(over="ignore", invalid="ignore"):
        value = float(score(rows, targets, weights))
    if n_rows > 1 and not math.isfinite(value):  # of one row alone there is no such score
        raise ValueError(f"X and y must not be so large that errors overflow, got a score of {value}")
    return value


def callback(value: Any) -> Any:
    """None or something to call."""
    if value is not None and not callable(value):
        raise TypeError(f"callback must be None or callable, got {value!r}")
    return value


def pieces(value: Any, n_rows: int) -> None:
    """Check the `n_pieces` of an estimator: "auto", None or a number up to `n_rows`."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return
    if isinstance(value, str):
        raise ValueError(f"n_pieces must be 'auto', None or an integer, got {value!r}")
    count = integer_at_least("n_pieces", value, 1)
    if count > n_rows:
        raise ValueError(f"n_pieces must be at most the number of rows of X ({n_rows}), got {count}")


def resolve_device(value: Any) -> torch.device:
    """An available device; "auto" prefers CUDA."""
    if isinstance(value, str) and value == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return device_there("device", value, "'auto', ")


def device_there(name: str, value: Any, also: str = "") -> torch.device:
    """An available device; `also` names what else is accepted, for the error."""
    try:
        device = torch.device(value)
        torch.empty(0, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, TypeError, ValueError, NotImplementedError) as error:
        accepted = f"{also}'cpu'" + (", 'cuda'" if torch.cuda.is_available() else "")
        raise ValueError(f"{name} must be one of {accepted} or a device torch can use here, got {value!r}") from error
    if device.type == "meta":
        raise ValueError(f"{name} must hold data, got 'meta'")
    return device


def monotone_signs(value: Any, n_features: int) -> np.ndarray | None:
    """A sign for each feature, or None where no feature is constrained."""
    if value is None:
        return None
    try:
        signs = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"monotone must hold -1, 0 or 1 for each feature, got {value!r}") from None
    if signs.ndim == 0:
        signs = np.full(n_features, signs)
    if signs.shape != (n_features,):
        raise ValueError(f"monotone must have one entry for each of {n_features} features, got {value!r}")
    if not np.isin(signs, (-1, 0, 1)).all():
        raise ValueError(f"monotone must hold -1, 0 or 1 for each feature, got {value!r}")
    return signs if signs.any() else None


def sample_weights(given: Any, n_samples: int, name: str = "sample_weight") -> np.ndarray | None:
    """Weights of the rows of X, checked, in double precision."""
    if given is None:
        return None
    weights = arrays.to_torch(name, to_numpy(given, name)).double().numpy()
    if weights.ndim == 0:
        weights = np.full(n_samples, weights)
    if weights.shape != (n_samples,):
        raise ValueError(f"{name} must have shape ({n_samples},), got {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        found = f"{weights.min():g} to {weights.max():g}"
        raise ValueError(f"{name} must be finite, at least 0 and not all zero, got from {found}")
    return weights
