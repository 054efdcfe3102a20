"""Printing rows as they come, and keeping them for a file."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    packages = ("torch", "numpy", "numba", "scikit-learn", "clarabel")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        **{name: version(name) for name in packages},
    }


class Table:
    """Rows of named values, printed one a line in columns of a fixed width.

    Parameters
    ----------
    title : str
    columns : dict
        The format of each column's numbers by its name; for a column of long words, their length.
    """

    def __init__(self, title: str, columns: dict[str, str]) -> None:
        self._columns = columns
        self.title = title
        self.rows: list[dict[str, Any]] = []
        print(f"\n{title}\n" + "  ".join(f"{name:>{self._width(name)}}" for name in columns), flush=True)

    def _width(self, name: str) -> int:
        style = self._columns[name]
        return max(len(name), 9, int(style) if style.isdigit() else 0)

    def add(self, **values: Any) -> None:
        """Print and keep a row; missing values show as a dash."""
        self.rows.append(values)
        cells = []
        for name, style in self._columns.items():
            value = values.get(name)
            text = "-" if value is None else value if isinstance(value, str) else format(value, style)
            cells.append(f"{text:>{self._width(name)}}")
        print("  ".join(cells), flush=True)


def write_json(path: str | None, tables: list[Table]) -> None:
    """Write all rows with the machine, where a path was given."""
    if path is not None:
        content = {"machine": machine(), "tables": {t.title: t.rows for t in tables}}
        Path(path).write_text(json.dumps(content, indent=1))
