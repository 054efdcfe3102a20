"""Printing rows as they come, keeping them for a file, and what they were measured on."""

from __future__ import annotations

import json
import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = (
    "bregnet",
    "torch",
    "numpy",
    "numba",
    "scikit-learn",
    "faiss-cpu",
    "clarabel",
    "metric-learn",
    "xgboost-cpu",
)


def machine() -> dict[str, Any]:
    """What the figures were measured on: nothing that names the machine itself."""
    cpu = _first_match("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.processor() or platform.machine()
    kilobytes = _first_match("/proc/meminfo", r"MemTotal:\s*(\d+)")
    memory = None if kilobytes is None else round(int(kilobytes) / 2**20)
    return {"cpu": cpu, "cores": os.cpu_count(), "memory GB": memory, "threads": torch.get_num_threads()}


def versions() -> dict[str, str]:
    """Of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _first_match(path: str, pattern: str) -> str | None:
    file = Path(path)
    found = re.search(pattern, file.read_text()) if file.exists() else None
    return found.group(1).strip() if found else None


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
        cells = (f"{shown(values.get(name), style):>{self._width(name)}}" for name, style in self._columns.items())
        print("  ".join(cells), flush=True)


def shown(value: Any, style: str) -> str:
    """A value as tables have it: words as they are, a dash for what is missing."""
    return "-" if value is None else value if isinstance(value, str) else format(value, style)


def write_json(path: str | None, tables: list[Table]) -> None:
    """Write all rows with the machine, where a path was given."""
    if path is not None:
        content = {"machine": machine(), "versions": versions(), "tables": {t.title: t.rows for t in tables}}
        Path(path).write_text(json.dumps(content, indent=1, default=lambda value: value.tolist()))
