"""Constructor parameters of estimators as plain values and tensors, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.state import ARRAY, REAL, Field, Tensors, finite_number, text
from bregnet.divergences import BregmanDivergence, Generator
from bregnet.divergences.state import DIVERGENCE, FUNCTION

OF_THE_RUN = {"callback", "checkpoint"}  # parameters about one run on one machine
RETIRED = {"reassign"}  # of files of 0.1.0: parameters that were about how a function was found
FOR_ANOTHER_FIT = {"cv", "init", "random_state", "scoring"}  # that may be code, or have a state of their own
ACCEPTED = (
    "parameters must be None, numbers, text, devices, arrays, lists and tuples of these, generators and divergences of"
    " this library, PBDL or PBDLCV"
)


class NotPlainError(TypeError):
    """A parameter that is code, or has a state of its own."""


def _vote(name: str, value: Any) -> str:
    return check.one_of(name, value, ("uniform", "distance"))


def _device(name: str, value: Any) -> Any:
    """A device, whether or not this machine has it."""
    return value if isinstance(value, str) and value == "auto" else torch.device(value)


# what a fitted estimator looks at when it is used; all others are looked at by `fit`
USED: dict[str, Callable[[str, Any], Any]] = {
    "n_neighbors": partial(check.integer_at_least, least=1),
    "radius": check.at_least_zero,
    "weights": _vote,
    "clip": check.boolean,
    "device": _device,
}


def write_parameters(name: str, estimator: Any, tensors: Tensors, learners: Mapping[type, Field]) -> dict[str, Any]:
    """The parameters of an estimator, but those that are about the run or that only another fit would look at."""
    written = {}
    for each, given in estimator.get_params(deep=False).items():
        if each in OF_THE_RUN:
            continue
        try:
            written[each] = _write(f"{name}.{each}", given, tensors, learners)
        except NotPlainError as error:
            if each in FOR_ANOTHER_FIT and (each != "init" or callable(given)):
                continue
            found = f"{each} of a {type(estimator).__name__} cannot be saved, got {given!r}"
            raise TypeError(f"{found}: {ACCEPTED}") from error
        if each in USED:
            USED[each](each, given)
    return written


def read_parameters(
    name: str, state: dict[str, Any], tensors: Tensors, learners: Mapping[str, Field]
) -> dict[str, Any]:
    """What `write_parameters` was given."""
    parameters = {each: _read(f"{name}.{each}", part, tensors, learners) for each, part in state.items()}
    for each in parameters.keys() & USED.keys():
        USED[each](each, parameters[each])
    return parameters


def _write(name: str, value: Any, tensors: Tensors, learners: Mapping[type, Field]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": REAL.write(name, value, tensors)}
    if isinstance(value, list | tuple):
        items = [_write(f"{name}.{number}", each, tensors, learners) for number, each in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, Tensor):
        tensors.put(name, value)
        return {"tensor": value.ndim}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        ARRAY.write(name, value, tensors)
        return {"array": value.ndim}
    if isinstance(value, Generator):
        return {"generator": FUNCTION.write(name, value, tensors)}
    if type(value) is BregmanDivergence:
        return {"divergence": DIVERGENCE.write(name, value, tensors)}
    if type(value) in learners:
        return {"learner": learners[type(value)].write(name, value, tensors)}
    raise NotPlainError(f"{name} cannot be saved, got {value!r}")


def _read(name: str, state: Any, tensors: Tensors, learners: Mapping[str, Field]) -> Any:
    if isinstance(state, list):
        return [_read(f"{name}.{number}", each, tensors, learners) for number, each in enumerate(state)]
    if not isinstance(state, dict):
        return finite_number(name, state) if isinstance(state, float) else state
    ((tag, inner),) = state.items()
    if tag == "tuple" and isinstance(inner, list):
        return tuple(_read(name, inner, tensors, learners))
    if tag == "number":
        return REAL.read(name, inner, tensors)
    if tag == "device":
        return torch.device(text(name, inner))
    if tag in ("array", "tensor"):
        ndim = check.integer_at_least(name, inner, 0)
        array = tensors.array(name, ndim=ndim, kinds="biuf", finite=False)
        return array if tag == "array" else torch.from_numpy(array)
    if tag == "generator":
        return FUNCTION.read(name, inner, tensors)
    if tag == "divergence":
        return DIVERGENCE.read(name, inner, tensors)
    if tag == "learner" and isinstance(inner, dict) and inner.get("type") in learners:
        return learners[inner["type"]].read(name, inner, tensors)
    raise ValueError(f"{name} must be a plain value, got {state!r}")
