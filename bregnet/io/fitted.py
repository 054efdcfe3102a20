"""How fitted estimators are written, as parameters and attributes, and read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bregnet._core.state import Field, Tensors, mapping, plain, texts
from bregnet.io.parameters import OF_THE_RUN, read_parameters, write_parameters

Attributes = dict[str, Field]
_names = plain(lambda value: [str(each) for each in value], lambda name, state: np.array(texts(name, state), object))


@dataclass(frozen=True)
class Fitted:
    """An estimator: its constructor parameters and fitted attributes."""

    cls: type
    attributes: Attributes
    expect: Callable[[Any], None]  # raises an error where attributes do not belong together
    optional: Attributes = field(default_factory=dict)  # attributes that some fits do not set
    skipped: Callable[[Any], tuple[str, ...]] = lambda estimator: ()  # attributes that are not valid any more
    complete: Callable[[Any], None] = lambda estimator: None  # sets attributes that follow from the others
    parts: Mapping[type, Field] = field(default_factory=dict)  # estimators that may be parameters

    @cached_property
    def _accepted(self) -> set[str]:
        return set(inspect.signature(self.cls).parameters) - OF_THE_RUN

    @cached_property
    def _all(self) -> Attributes:
        return {**self.attributes, **self.optional, "feature_names_in_": _names}

    def write(self, name: str, value: Any, tensors: Tensors) -> dict[str, Any]:
        """The parameters that are plain values, and all attributes."""
        check_is_fitted(value, list(self.attributes))
        self._check(value)
        present = [each for each in self._all if hasattr(value, each) and each not in self.skipped(value)]
        fitted = {each: self._all[each].write(f"{name}.{each}", getattr(value, each), tensors) for each in present}
        return {"parameters": write_parameters(name, value, tensors, self.parts), "fitted": fitted}

    def read(self, name: str, state: Any, tensors: Tensors) -> Any:
        """The fitted estimator; parameters that the file does not hold have their defaults."""
        estimator, fitted = self.unfitted(name, state, tensors), mapping("fitted", state["fitted"])
        unknown, missing = fitted.keys() - self._all.keys(), self.attributes.keys() - fitted.keys()
        if unknown or missing:
            raise ValueError(f"a {self.cls.__name__} without {sorted(missing)} and with {sorted(unknown)}")
        for each, part in fitted.items():
            setattr(estimator, each, self._all[each].read(f"{name}.{each}", part, tensors))
        self.complete(estimator)
        self._check(estimator)
        return estimator

    def unfitted(self, name: str, state: Any, tensors: Tensors) -> Any:
        """The estimator with its parameters only."""
        found = mapping("parameters", state["parameters"])
        given = {each: part for each, part in found.items() if each != "reassign"}  # of 0.1.0: how to find a function
        if given.pop("index", "deprecated") != "deprecated":  # of 0.1.0: the name of kind
            given["kind"] = found["index"]
        unknown = given.keys() - self._accepted
        if unknown:
            raise ValueError(f"a {self.cls.__name__} with {sorted(unknown)}")
        return self.cls(**read_parameters(name, given, tensors, self.parts))

    def _check(self, estimator: Any) -> None:
        if hasattr(estimator, "feature_names_in_"):
            expect_features(estimator, feature_names_in_=len(estimator.feature_names_in_))
        if hasattr(estimator, "classes_"):
            classes = estimator.classes_
            if not (classes[:-1] < classes[1:]).all():
                raise ValueError("classes_ must be in order, and each there once")
        self.expect(estimator)


def expect_features(estimator: Any, **counts: int | None) -> None:
    """Raise an error where a part is for another number of features than the estimator; None is any number."""
    for name, count in counts.items():
        if count not in (None, estimator.n_features_in_):
            raise ValueError(f"{name} must have {estimator.n_features_in_} features, got {count}")
