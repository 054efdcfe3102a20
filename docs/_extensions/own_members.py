"""Class pages list the members of the library, not those that scikit-learn gives to every estimator."""

import inspect
from typing import Any

from sphinx.application import Sphinx


def skip(app: Sphinx, kind: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Whether autodoc leaves a member out; None leaves it to others."""
    where = getattr(inspect.unwrap(obj) if callable(obj) else obj, "__module__", None) or ""
    return True if where.split(".")[0] in ("sklearn", "torch") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to autodoc."""
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
