"""Pipelines, and the preprocessing of tables in them, in files.

What a transformer has learned is a few values: those that fill gaps, and categories. A file holds these and the
parameters. Reading fits the transformer to a row of such values, from which it learns the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.utils.validation import check_is_fitted

from bregnet._core import validation as check
from bregnet._core.optional import require
from bregnet._core.state import Tensors, mapping, read_number, text, texts

PASSED = "passthrough"
# parameters that a file holds; all others must have their defaults
SAVED: dict[type, tuple[str, ...]] = {
    SimpleImputer: ("strategy",),
    OneHotEncoder: ("handle_unknown", "sparse_output"),
    OrdinalEncoder: (),
}


def write_transformer(name: str, value: ColumnTransformer, tensors: Tensors) -> dict[str, Any]:
    """The parts of a ColumnTransformer that was fitted to a frame, with the names of their columns."""
    check_is_fitted(value)
    if not hasattr(value, "feature_names_in_"):
        raise TypeError(f"{name} must have been fitted to a data frame to be saved, got an array")
    pandas = getattr(value, "_sklearn_output_config", {}).get("transform") == "pandas"
    expected = ColumnTransformer([], verbose_feature_names_out=value.verbose_feature_names_out)
    _expect_defaults(name, value, expected, {"transformers"})
    parts = []
    for each, part, columns in value.transformers:
        names = list(columns) if isinstance(columns, list | tuple | np.ndarray) else []
        if not names or not all(isinstance(column, str) for column in names):
            raise TypeError(f"{name}: {each!r} must be for a list of names of columns to be saved, got {columns!r}")
        fitted = part if part == PASSED else value.named_transformers_[each]
        steps = [step for _, step in fitted.steps] if isinstance(fitted, Pipeline) else [fitted]
        written = [_write_step(f"{name}.{each}", step) for step in steps]
        parts.append({"name": each, "columns": names, "steps": written, "in_pipeline": isinstance(fitted, Pipeline)})
    return {
        "columns": [str(column) for column in value.feature_names_in_],
        "parts": parts,
        "verbose": value.verbose_feature_names_out,
        "pandas": pandas,
    }


def read_transformer(name: str, state: Any, tensors: Tensors) -> ColumnTransformer:
    """Read what `write_transformer` wrote."""
    require("the preprocessing of a table", "pandas", extra="cli")
    import pandas as pd

    row: dict[str, Any] = dict.fromkeys(texts("columns", state["columns"]), 0.0)
    parts = []
    for part in state["parts"]:
        names, steps = texts("columns", mapping("part", part)["columns"]), []
        if not names or not set(names) <= row.keys():
            raise ValueError(f"{name} must have columns of {sorted(row)}, got {names}")
        for number, step in enumerate(part["steps"]):
            made, values = _read_step(name, step, len(names))
            steps.append(made)
            if number == 0:
                row |= dict(zip(names, values, strict=True))
        if len(steps) != 1 + check.boolean("in_pipeline", part["in_pipeline"]) * (len(steps) - 1) or not steps:
            raise ValueError(f"{name} must have a step for {names}, got {len(steps)}")
        whole = Pipeline([(type(step).__name__.lower(), step) for step in steps]) if part["in_pipeline"] else steps[0]
        parts.append((text("name", part["name"]), whole, names))
    made = ColumnTransformer(parts, verbose_feature_names_out=check.boolean("verbose", state["verbose"]))
    if check.boolean("pandas", state["pandas"]):
        made.set_output(transform="pandas")
    return made.fit(pd.DataFrame({column: [value] for column, value in row.items()}))


def write_imputer(name: str, value: SimpleImputer, tensors: Tensors) -> dict[str, Any]:
    """A SimpleImputer that is a step of a pipeline."""
    check_is_fitted(value)
    names = getattr(value, "feature_names_in_", None)
    return {**_write_step(name, value), "columns": None if names is None else [str(each) for each in names]}


def read_imputer(name: str, state: Any, tensors: Tensors) -> SimpleImputer:
    """Read what `write_imputer` wrote."""
    made, values = _read_step(name, state, len(mapping(name, state)["values"]))
    if state["columns"] is None:
        return made.fit(np.array([values], dtype=object if any(isinstance(each, str) for each in values) else float))
    require("the preprocessing of a table", "pandas", extra="cli")
    import pandas as pd

    columns = texts("columns", state["columns"])
    return made.fit(pd.DataFrame({column: [value] for column, value in zip(columns, values, strict=True)}))


def _write_step(name: str, step: Any) -> dict[str, Any]:
    if isinstance(step, str) and step == PASSED:
        return {"type": PASSED}
    saved = SAVED.get(type(step))
    if saved is None:
        accepted = ", ".join(sorted(each.__name__ for each in SAVED))
        raise TypeError(f"{name} must be {PASSED!r} or one of {accepted} to be saved, got a {type(step).__name__}")
    chosen = {each: getattr(step, each) for each in saved}
    free = {"categories"} if hasattr(step, "categories_") else set()
    _expect_defaults(name, step, type(step)(**chosen), free)
    if type(step) is SimpleImputer:
        if step.strategy not in ("mean", "median", "most_frequent"):
            raise TypeError(f"{name} must fill by mean, median or most_frequent to be saved, got {step.strategy!r}")
        learned: dict[str, Any] = {"values": [_plain(name, value) for value in step.statistics_.tolist()]}
    else:
        learned = {"categories": [[_plain(name, each) for each in values.tolist()] for values in step.categories_]}
    return {"type": type(step).__name__, "parameters": chosen, **learned}


def _read_step(name: str, state: Any, width: int) -> tuple[Any, list[Any]]:
    """A transformer that is not fitted, and values of which it learns what it had learned."""
    kind = mapping(name, state)["type"]
    if kind == PASSED:
        return PASSED, [0.0] * width
    found = {each.__name__: each for each in SAVED}[text("type", kind)]
    parameters = mapping("parameters", state["parameters"])
    if set(parameters) != set(SAVED[found]) or not all(isinstance(each, str | bool) for each in parameters.values()):
        raise ValueError(f"{name}: a {kind} with {parameters}")
    if found is SimpleImputer:
        check.one_of("strategy", parameters["strategy"], ("mean", "median", "most_frequent"))
        learned = [_plain_of(name, value) for value in state["values"]]
        if parameters["strategy"] != "most_frequent" and any(isinstance(value, str) for value in learned):
            raise ValueError(f"{name} must fill by numbers, got {learned}")
    else:
        categories = [[_plain_of(name, each) for each in values] for values in state["categories"]]
        if not all(values and len(set(map(type, values))) == 1 for values in categories):
            raise ValueError(f"{name} must have categories of one kind for each column, got {categories}")
        learned = [values[0] for values in categories]
        words = [np.array(values, object if isinstance(values[0], str) else float) for values in categories]
        parameters = {**parameters, "categories": words}
    if len(learned) != width:
        raise ValueError(f"{name} must have values for {width} columns, got {len(learned)}")
    return found(**parameters), learned


def _plain(name: str, value: Any) -> str | float:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and np.isfinite(value):
        return float(value)
    raise TypeError(f"{name} must fill by and encode text and numbers to be saved, got {value!r}")


def _plain_of(name: str, state: Any) -> str | float:
    return state if isinstance(state, str) else read_number(name, state, finite=True)


def _expect_defaults(name: str, value: Any, expected: Any, free: set[str]) -> None:
    """Raise an error for a parameter that a file does not hold and that is not the default."""
    given, default = value.get_params(deep=False), expected.get_params(deep=False)
    other = [each for each in given if each not in free and repr(given[each]) != repr(default[each])]
    if other:
        raise TypeError(f"{name}: {', '.join(other)} of a {type(value).__name__} must have the default to be saved")
