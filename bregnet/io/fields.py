"""How the attributes of fitted estimators are written, as plain values and tensors, and read."""

from __future__ import annotations

from dataclasses import MISSING, astuple, fields
from typing import Any

import numpy as np
import torch

from bregnet._core import validation as check
from bregnet._core.state import Field, Made, Numbers, Real, Tensors, mapping, plain, text, texts, whole
from bregnet.clustering.minibatch import RunningMeans
from bregnet.solver.result import Check, Result


def sequence(kind: type) -> Made:
    """A field of a tuple or a list of numbers."""
    return Made(
        lambda name, value, tensors: Numbers().write(name, np.array(value, dtype=float), tensors),
        lambda name, state, tensors: kind(tensors.array(name).tolist()),
    )


def value_range() -> Made:
    """A field of the least and the largest of some numbers."""

    def read(name: str, state: Any, tensors: Tensors) -> tuple[float, float]:
        low, high = (Real(finite=True).read(name, each, tensors) for each in state)
        if low > high:
            raise ValueError(f"{name} must be in order, got {low} and {high}")
        return low, high

    return Made(lambda name, value, tensors: [float(each) for each in value], read)


def output_container() -> Made:
    """A field of the container that `set_output` has chosen."""

    def read(name: str, state: Any) -> dict[str, str]:
        return {"transform": check.one_of(name, mapping(name, state)["transform"], ("default", "pandas", "polars"))}

    return plain(lambda value: {"transform": value.get("transform", "default")}, read)


class Targets:
    """Numbers, one or several for each row."""

    def write(self, name: str, value: np.ndarray, tensors: Tensors) -> int:
        """The number of dimensions."""
        tensors.put_array(name, value)
        return value.ndim

    def read(self, name: str, state: Any, tensors: Tensors) -> np.ndarray:
        """The numbers."""
        if state not in (1, 2):
            raise ValueError(f"{name} must have 1 or 2 dimensions, got {state!r}")
        return tensors.array(name, ndim=int(state))


class ResultField:
    """A `Result` of the solver."""

    def write(self, name: str, value: Result, tensors: Tensors) -> dict[str, Any]:
        """All but the history, which is a tensor."""
        rows = np.array([astuple(each) for each in value.history], dtype=float).reshape(-1, len(fields(Check)))
        tensors.put(f"{name}.history", torch.as_tensor(rows))
        parts = [each for each in fields(Result) if each.name != "history"]
        return {each.name: self._field(each.type).write(name, getattr(value, each.name), tensors) for each in parts}

    def read(self, name: str, state: Any, tensors: Tensors) -> Result:
        """The result; parts that the file does not hold have their defaults."""
        rows = tensors.array(f"{name}.history", ndim=2, finite=False)
        if rows.shape[1] != len(fields(Check)):
            raise ValueError(f"{name}.history must have {len(fields(Check))} columns, got {rows.shape[1]}")
        found: dict[str, Any] = {"history": tuple(Check(int(first), *others) for first, *others in rows.tolist())}
        for part in fields(Result):
            if part.name != "history" and (part.name in mapping(name, state) or part.default is MISSING):
                found[part.name] = self._field(part.type).read(f"{name}.{part.name}", state[part.name], tensors)
        return Result(**found)

    def _field(self, annotation: Any) -> Field:
        """The field of a part by its annotation."""
        known: dict[str, Field] = {"str": plain(str, text), "bool": plain(bool, check.boolean), "int": whole(0)}
        return known.get(annotation, Real())


class SearchTable:
    """The `cv_results_` of a search; its "params" follow from two of the columns."""

    def write(self, name: str, value: dict[str, Any], tensors: Tensors) -> list[str]:
        """The names of the columns."""
        columns = [each for each in value if each != "params"]
        for column in columns:
            tensors.put_array(f"{name}.{column}", value[column])
        return columns

    def read(self, name: str, state: Any, tensors: Tensors) -> dict[str, Any]:
        """The table."""
        columns = {each: tensors.array(f"{name}.{each}", kinds="iuf", finite=False) for each in texts(name, state)}
        if len({len(column) for column in columns.values()}) != 1:
            raise ValueError(f"{name} must have columns of one length")
        chosen = zip(columns["param_alpha"], columns["param_temperature"], strict=True)
        params = [{"alpha": float(alpha), "temperature": float(temperature)} for alpha, temperature in chosen]
        return {"params": params, **columns}


class RunningField:
    """The running means of `partial_fit` of k-means."""

    def write(self, name: str, value: RunningMeans, tensors: Tensors) -> dict[str, Any]:
        """Plain values."""
        tensors.put(f"{name}.centres", value.centres)
        tensors.put(f"{name}.weights", value.weights)
        sequence(list).write(f"{name}.history", value.history, tensors)
        return {"n_since_placed": int(value.n_since_placed)}

    def read(self, name: str, state: Any, tensors: Tensors) -> RunningMeans:
        """The running means."""
        centres = tensors.tensor(f"{name}.centres", (None, None), torch.float32, torch.float64)
        weights = tensors.tensor(f"{name}.weights", (len(centres),), torch.float64)
        if (weights < 0).any():
            raise ValueError(f"{name}.weights must be at least 0, got {weights.min():g}")
        history = sequence(list).read(f"{name}.history", None, tensors)
        placed = check.integer_at_least(name, mapping(name, state)["n_since_placed"], 0)
        return RunningMeans(centres, weights, placed, history)


class Seed:
    """A `RandomState` of numpy, which is a Mersenne twister: 624 words, a place among them, and a spare number."""

    def write(self, name: str, value: np.random.RandomState, tensors: Tensors) -> Any:
        """Plain values; None for numpy's global state, which every process has for itself."""
        state: Any = value.get_state(legacy=False)
        if value is np.random.mtrand._rand or state["bit_generator"] != "MT19937":
            return None
        tensors.put(name, torch.as_tensor(state["state"]["key"].view(np.int32)))
        return {"place": int(state["state"]["pos"]), "spare": float(state["gauss"]) if state["has_gauss"] else None}

    def read(self, name: str, state: Any, tensors: Tensors) -> np.random.RandomState:
        """The generator of random numbers."""
        if state is None:
            return np.random.mtrand._rand
        key = tensors.tensor(name, (624,), torch.int32).numpy().view(np.uint32)
        place = check.integer_at_least(name, mapping(name, state)["place"], 0)
        if place > len(key):
            raise ValueError(f"{name} must have a place up to {len(key)}, got {place}")
        spare = state["spare"]
        gauss = 0.0 if spare is None else Real(finite=True).read(name, spare, tensors)
        made = np.random.RandomState()
        made.set_state(("MT19937", key, place, int(spare is not None), gauss))
        return made
