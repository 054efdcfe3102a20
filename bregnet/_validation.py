"""Checks of constructor parameters, with errors that say what was found and what is accepted."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch


def positive(name: str, value: Any) -> float:
    """A positive finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return number


def at_least_zero(name: str, value: Any) -> float:
    """A finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not (number >= 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be at least 0 and finite, got {value!r}")
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
    """Values that are numbers or strings as those before were: numpy would make strings of all."""
    if (values.dtype.kind in "US") != (before.dtype.kind in "US"):
        raise TypeError(f"{name} must hold values of one kind, got dtype {values.dtype} after {before.dtype}")
    return values


def folder(name: str, value: Any) -> Path:
    """A path."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a path, got {value!r}")
    return Path(value)


def booleans(name: str, values: Any, length: int) -> np.ndarray:
    """Truth values (length,); 0 and 1 will do."""
    array = np.asarray(values)
    if array.shape != (length,):
        raise ValueError(f"{name} must have shape ({length},), got {array.shape}")
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold True or False, got dtype {array.dtype} with other values")
    return array.astype(bool)


def integer_at_least(name: str, value: Any, least: int) -> int:
    """An integer not below `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


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
    """A device that is there; "auto" prefers CUDA."""
    if isinstance(value, str) and value == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(value)
        torch.empty(0, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, TypeError, ValueError, NotImplementedError) as error:
        there = "'auto', 'cpu'" + (", 'cuda'" if torch.cuda.is_available() else "")
        raise ValueError(f"device must be one of {there} or a device torch can use here, got {value!r}") from error
    if device.type == "meta":
        raise ValueError("device must hold data, got 'meta'")
    return device


def monotone_signs(value: Any, n_features: int) -> np.ndarray | None:
    """A sign a feature, or None where nothing is asked."""
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
