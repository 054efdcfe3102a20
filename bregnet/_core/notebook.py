"""The hook by which notebooks ask an object for its HTML form; the forms themselves are in `bregnet.reporting.cards`.

It follows ``sklearn.set_config(display=...)``: with "text" there is nothing but the `repr`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from sklearn import get_config

ClassT = TypeVar("ClassT", bound=type)


def shown_in_notebooks(cls: ClassT) -> ClassT:
    """Give a class the two methods that notebooks look for, in place of scikit-learn's where it has them.

    `bregnet.reporting` is imported when an object is shown, so that the classes do not depend on it.
    """
    cls._repr_html_ = property(_html_method)  # type: ignore[attr-defined]
    cls._repr_mimebundle_ = _mime_bundle  # type: ignore[attr-defined]
    return cls


def _html_method(shown: Any) -> Callable[[], str]:
    if get_config()["display"] != "diagram":
        raise AttributeError("_repr_html_ is there for sklearn.set_config(display='diagram') only")
    return lambda: import_module("bregnet.reporting.cards").html_card(shown)


def _mime_bundle(shown: Any, **kwargs: Any) -> dict[str, str]:
    bundle = {"text/plain": repr(shown)}
    if hasattr(shown, "_repr_html_"):
        bundle["text/html"] = shown._repr_html_()
    return bundle
