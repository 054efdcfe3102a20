"""Generators, differences of them and divergences as plain JSON and tensors, and back."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.state import Made, Tensors, mapping
from bregnet.divergences.bregman_divergence import BregmanDivergence
from bregnet.divergences.classical import ItakuraSaito, KullbackLeibler, Logistic, Quadratic, SquaredEuclidean
from bregnet.divergences.generators import Generator, GeneratorSum
from bregnet.divergences.max_affine import DifferenceOfConvex, MaxAffine

PLAIN = {kind.__name__: kind for kind in (KullbackLeibler, ItakuraSaito, Logistic)}
KNOWN = (GeneratorSum, MaxAffine, Quadratic, SquaredEuclidean, *PLAIN.values())
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}


def generator_state(generator: Generator, prefix: str = "generator") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What to write of a generator: values that JSON can hold, and tensors by names that begin with `prefix`."""
    values: dict[str, Any] = {"type": type(generator).__name__}
    tensors: dict[str, Tensor | None] = {}
    if type(generator) not in KNOWN:
        raise TypeError(f"only the generators of this library can be saved, and sums of them, got {generator!r}")
    if isinstance(generator, GeneratorSum):
        states = [generator_state(f, f"{prefix}.{number}") for number, f in enumerate(generator.generators)]
        values |= {"weights": list(generator.weights), "generators": [state for state, _ in states]}
        return values, {name: tensor for _, parts in states for name, tensor in parts.items()}
    if isinstance(generator, MaxAffine):
        values["temperature"] = generator.temperature
        tensors = {name: getattr(generator, f"_{name}") for name in ("slopes", "intercepts", "strictness")}
    elif isinstance(generator, Quadratic):
        tensors = {"matrix": generator._matrix}
    elif isinstance(generator, SquaredEuclidean):
        tensors = {"weights": generator._weights}
    named = {f"{prefix}.{name}": part for name, part in tensors.items() if part is not None}
    if not named and generator._dtype is not None:  # nothing else tells in which precision it computes
        values["dtype"] = str(generator._dtype).removeprefix("torch.")
    return values, {name: part.detach().cpu().contiguous() for name, part in named.items()}


class Named(Protocol):
    """Tensors by name."""

    def __contains__(self, name: object) -> bool: ...

    def __getitem__(self, name: str) -> Tensor: ...


def generator_from(state: dict[str, Any], tensors: Named, prefix: str = "generator") -> Generator:
    """The generator that `generator_state` described. Parameters are shown as numpy arrays."""
    kind = state["type"]
    if kind == GeneratorSum.__name__:
        parts = [generator_from(part, tensors, f"{prefix}.{number}") for number, part in enumerate(state["generators"])]
        return GeneratorSum(parts, state["weights"])
    if kind == MaxAffine.__name__:
        temperature = check.at_least_zero("temperature", state["temperature"])
        names = ("slopes", "intercepts", "strictness")
        return MaxAffine(**_parameters(tensors, prefix, names), temperature=temperature)
    if kind == Quadratic.__name__:
        return Quadratic(**_parameters(tensors, prefix, ("matrix",)))
    if kind == SquaredEuclidean.__name__:
        return _in_precision(SquaredEuclidean(**_parameters(tensors, prefix, ("weights",))), state)
    if kind in PLAIN:
        return _in_precision(PLAIN[kind](), state)
    raise ValueError(f"unknown generator {kind!r}")


def _parameters(tensors: Named, prefix: str, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The tensors of a generator, by the names of its parameters; no parameter may be without a feature."""
    given = {name: tensors[f"{prefix}.{name}"].numpy() for name in names if f"{prefix}.{name}" in tensors}
    for name, part in given.items():
        if part.size == 0 or part.dtype not in (np.float32, np.float64):
            raise ValueError(f"{prefix}.{name} cannot have shape {part.shape} and dtype {part.dtype}")
    return given


def _in_precision(generator: Generator, state: dict[str, Any]) -> Generator:
    return generator.to(PRECISIONS[state["dtype"]]) if "dtype" in state else generator


def function_state(
    function: Generator | DifferenceOfConvex, prefix: str = "function"
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What to write of a generator or of a difference of two."""
    if not isinstance(function, DifferenceOfConvex):
        return generator_state(function, prefix)
    values: dict[str, Any] = {"type": DifferenceOfConvex.__name__}
    tensors: dict[str, Tensor] = {}
    for side in ("convex", "concave"):
        values[side], parts = generator_state(getattr(function, side), f"{prefix}.{side}")
        tensors |= parts
    return values, tensors


def function_from(state: dict[str, Any], tensors: Named, prefix: str = "function") -> Generator | DifferenceOfConvex:
    """The function that `function_state` described."""
    if state["type"] != DifferenceOfConvex.__name__:
        return generator_from(state, tensors, prefix)
    return DifferenceOfConvex(
        *(generator_from(state[side], tensors, f"{prefix}.{side}") for side in ("convex", "concave"))
    )


def _write_function(name: str, value: Any, tensors: Tensors) -> dict[str, Any]:
    state, parts = function_state(value, name)
    for each, part in parts.items():
        tensors.put(each, part)
    return state


def _read_function(name: str, state: Any, tensors: Tensors) -> Generator | DifferenceOfConvex:
    return function_from(mapping(name, state), tensors, name)


def _write_divergence(name: str, value: BregmanDivergence, tensors: Tensors) -> dict[str, Any]:
    state, parts = generator_state(value.generator, name)
    for each, part in parts.items():
        tensors.put(each, part)
    return {"generator": state}


def _read_divergence(name: str, state: Any, tensors: Tensors) -> BregmanDivergence:
    return BregmanDivergence(generator_from(mapping(name, state)["generator"], tensors, name))


FUNCTION = Made(_write_function, _read_function)
DIVERGENCE = Made(_write_divergence, _read_divergence)
