"""Reports of the commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bregnet.cli.data import Data
from bregnet.cli.output import tell, warnings_as_lines
from bregnet.reporting import report


def write_report(
    path: Path,
    estimator: Any,
    data: Data,
    known: Data | None,
    *,
    title: str,
    quiet: bool,
    class_names: list[str] | None = None,
    comparison: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write a report about rows, which are queries against others where these are given."""
    others = {} if known is None else {"X_known": known.X, "y_known": known.y}
    with warnings_as_lines():
        report(
            estimator,
            data.X,
            data.y,
            path,
            **others,
            feature_names=data.feature_names,
            class_names=class_names,
            title=title,
            comparison=comparison,
        )
    tell(f"report written to {path}", quiet=quiet)
