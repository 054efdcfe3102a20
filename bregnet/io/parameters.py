"""Constructor parameters of estimators as plain values and tensors, for files, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from bregnet._core import validation as check
from bregnet._core.state import Field, Tensors
from bregnet.divergences.state import NotPlainError, read_value, write_value
from bregnet.retrieval.base import WEIGHTS

OF_THE_RUN = {"callback", "checkpoint"}  # parameters about one run on one machine


def _device(name: str, value: Any) -> Any:
    """A device, whether or not this machine has it."""
    return value if isinstance(value, str) and value == "auto" else torch.device(value)


def _counts(name: str, value: Any) -> None:
    """A number of neighbors, several to choose from, or None."""
    for each in value if isinstance(value, list | tuple) else () if value is None else (value,):
        check.integer_at_least(name, each, 1)


# parameters that a fitted estimator uses after `fit`
USED: dict[str, Callable[[str, Any], Any]] = {
    "n_neighbors": _counts,
    "radius": check.at_least_zero,
    "weights": partial(check.one_of, accepted=tuple(WEIGHTS)),
    "clip": check.boolean,
    "device": _device,
}


def write_parameters(name: str, estimator: Any, tensors: Tensors, learners: Mapping[type, Field]) -> dict[str, Any]:
    """The parameters of an estimator, without those of one run and those that only `fit` uses and cannot be saved."""
    written = {}
    for each, given in estimator.get_params(deep=False).items():
        if each in OF_THE_RUN:
            continue
        try:
            written[each] = write_value(f"{name}.{each}", given, tensors, learners)
        except NotPlainError as error:
            # parameters that only `fit` uses may be code, or objects with a state
            if each in ("cv", "feature_map", "grid", "random_state", "scoring") or (each == "init" and callable(given)):
                continue
            raise TypeError(
                f"{each} of a {type(estimator).__name__} cannot be saved, got {given!r}: parameters must be None,"
                " numbers, text, devices, arrays, lists and tuples of these, generators, divergences and learners"
            ) from error
        if each in USED:
            USED[each](each, given)
    return written


def read_parameters(
    name: str, state: dict[str, Any], tensors: Tensors, learners: Mapping[type, Field]
) -> dict[str, Any]:
    """Read what `write_parameters` wrote."""
    parameters = {each: read_value(f"{name}.{each}", part, tensors, learners) for each, part in state.items()}
    for each in parameters.keys() & USED.keys():
        USED[each](each, parameters[each])
    return parameters
