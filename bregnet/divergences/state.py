"""Generators, divergences and parameters of estimators as plain JSON and tensors, and back.

A generator is saved as the arguments of its constructor (`Generator._saved_parameters`) and the name under which its
class is registered. A file is read by looking that name up among the classes that were imported: nothing in it is run.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.files import UnreadableFileError
from bregnet._core.state import Field, Tensors, mapping, read_number, text, write_number
from bregnet.divergences.bregman_divergence import BregmanDivergence
from bregnet.divergences.generators import Generator, GeneratorSum, registered
from bregnet.divergences.mapped import MappedDivergence
from bregnet.divergences.maps import AffineStep, GaussianStep, PointMap, step_arrays
from bregnet.divergences.max_affine import DifferenceOfConvex

MAP_STEPS: dict[str, Any] = {"AffineStep": AffineStep, "GaussianStep": GaussianStep}


class NotPlainError(TypeError):
    """A parameter that cannot be saved, such as a function."""


def write_generator(name: str, generator: Generator, tensors: Tensors) -> dict[str, Any]:
    """A generator as plain values; its tensors are stored under names that begin with `name`."""
    values: dict[str, Any] = {"type": generator._saved_as}
    if type(generator) is GeneratorSum:
        parts = [write_generator(f"{name}.{number}", f, tensors) for number, f in enumerate(generator.generators)]
        return values | {"weights": list(generator.weights), "generators": parts}
    parameters = generator._saved_parameters()
    if parameters.keys() & {"type", "dtype"}:
        raise TypeError(f"a parameter of {generator._saved_as} must have another name than 'type' or 'dtype'")
    for each, value in parameters.items():
        if isinstance(value, Tensor):
            tensors.put(f"{name}.{each}", value)
            values[each] = {"array": value.ndim}
        elif value is not None:  # the default
            values[each] = write_value(f"{name}.{each}", value, tensors)
    if generator._dtype is not None and not any(isinstance(value, Tensor) for value in parameters.values()):
        values["dtype"] = str(generator._dtype).removeprefix("torch.")  # nothing else says its precision
    return values


def read_generator(name: str, state: Any, tensors: Tensors) -> Generator:
    """Read what `write_generator` wrote; arrays are numpy arrays."""
    kind = text("type", mapping(name, state)["type"])
    if kind not in registered:
        raise UnreadableFileError(
            f"it holds a {kind!r}, which is unknown here; where that is a generator of your own, import the module that"
            " defines it first"
        )
    if registered[kind] is GeneratorSum:
        parts = [read_generator(f"{name}.{number}", part, tensors) for number, part in enumerate(state["generators"])]
        return GeneratorSum(parts, state["weights"])
    given = {each: part for each, part in state.items() if each not in ("type", "dtype")}
    for each in inspect.signature(registered[kind]).parameters:
        if each not in given and f"{name}.{each}" in tensors:  # version 0.1.0 did not say which of them are arrays
            given[each] = {"array": tensors[f"{name}.{each}"].ndim}
    parameters = {each: read_value(f"{name}.{each}", part, tensors) for each, part in given.items()}
    for each, value in parameters.items():
        if isinstance(value, np.ndarray) and value.size == 0:
            raise ValueError(f"{name}.{each} cannot have shape {value.shape}")
    generator = registered[kind](**parameters)
    precisions = {"float32": torch.float32, "float64": torch.float64}
    return generator.to(precisions[state["dtype"]]) if "dtype" in state else generator


def write_function(name: str, value: Generator | DifferenceOfConvex, tensors: Tensors) -> dict[str, Any]:
    """What JSON can hold of a generator, or a difference of two."""
    if isinstance(value, Generator):
        return write_generator(name, value, tensors)
    parts = {side: write_generator(f"{name}.{side}", part, tensors) for side, part in vars(value).items()}
    return {"type": type(value).__name__, **parts}


def read_function(name: str, state: Any, tensors: Tensors) -> Generator | DifferenceOfConvex:
    """What `write_function` was given."""
    if mapping(name, state)["type"] != DifferenceOfConvex.__name__:
        return read_generator(name, state, tensors)
    parts = (read_generator(f"{name}.{side}", state[side], tensors) for side in ("convex", "concave"))
    return DifferenceOfConvex(*parts)


def write_divergence(name: str, value: BregmanDivergence, tensors: Tensors) -> dict[str, Any]:
    """What JSON can hold of a divergence, and of the map in front of it."""
    written: dict[str, Any] = {"generator": write_generator(name, value.generator, tensors)}
    if isinstance(value, MappedDivergence):
        written["map"] = write_map(f"{name}.map", value.feature_map, tensors)
    return written


def read_divergence(name: str, state: Any, tensors: Tensors) -> BregmanDivergence:
    """What `write_divergence` was given."""
    generator = read_generator(name, mapping(name, state)["generator"], tensors)
    if "map" in state:
        return MappedDivergence(generator, read_map(f"{name}.map", state["map"], tensors))
    return BregmanDivergence(generator)


def write_map(name: str, value: PointMap, tensors: Tensors) -> list[Any]:
    """The steps of a map as plain values."""
    steps = [(type(step).__name__, step_arrays(step)) for step in value.steps]
    return [
        {"type": kind, **{each: write_value(f"{name}.{at}.{each}", part, tensors) for each, part in parts.items()}}
        for at, (kind, parts) in enumerate(steps)
    ]


def read_map(name: str, state: Any, tensors: Tensors) -> PointMap:
    """What `write_map` was given."""
    steps = []
    for at, written in enumerate(state):
        parts = {each: value for each, value in mapping(name, written).items() if each != "type"}
        kind = MAP_STEPS[text(f"{name}.type", written["type"])]
        steps.append(kind(**{each: read_value(f"{name}.{at}.{each}", part, tensors) for each, part in parts.items()}))
    return PointMap(steps)


def write_value(name: str, value: Any, tensors: Tensors, learners: Mapping[type, Field] | None = None) -> Any:
    """A parameter as plain values: a number, text, an array, a generator, a divergence or one of the learners."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": write_number(value)}
    if isinstance(value, list | tuple):
        items = [write_value(f"{name}.{number}", each, tensors, learners) for number, each in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, Tensor):
        tensors.put(name, value)
        return {"tensor": value.ndim}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        tensors.put_array(name, value)
        return {"array": value.ndim}
    if isinstance(value, Generator):
        return {"generator": write_generator(name, value, tensors)}
    if type(value) in (BregmanDivergence, MappedDivergence):
        return {"divergence": write_divergence(name, value, tensors)}
    if learners is not None and type(value) in learners:
        return {"learner": learners[type(value)].write(name, value, tensors)}
    raise NotPlainError(f"{name} cannot be saved, got {value!r}")


def read_value(name: str, state: Any, tensors: Tensors, learners: Mapping[type, Field] | None = None) -> Any:
    """Read what `write_value` wrote."""
    if isinstance(state, list):
        return [read_value(f"{name}.{number}", each, tensors, learners) for number, each in enumerate(state)]
    if not isinstance(state, dict):
        return read_number(name, state, finite=True) if isinstance(state, float) else state
    ((tag, inner),) = state.items()
    if tag == "tuple" and isinstance(inner, list):
        return tuple(read_value(name, inner, tensors, learners))
    if tag == "number":
        return read_number(name, inner)
    if tag == "device":
        return torch.device(text(name, inner))
    if tag in ("array", "tensor"):
        ndim = check.integer_at_least(name, inner, 0)
        array = tensors.array(name, ndim=ndim, kinds="biuf", finite=False)
        return array if tag == "array" else torch.from_numpy(array)
    if tag == "generator":
        return read_generator(name, inner, tensors)
    if tag == "divergence":
        return read_divergence(name, inner, tensors)
    if tag == "learner" and isinstance(inner, dict):
        for kind, field in (learners or {}).items():
            if inner.get("type") == kind.__name__:
                return field.read(name, inner, tensors)
    raise ValueError(f"{name} must be a plain value, got {state!r}")
