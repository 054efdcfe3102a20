"""The store of finished rows: one line of JSON each, appended as soon as a unit of work is done."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What one method made of one fold.

    Attributes
    ----------
    score : float or None
        R^2 or accuracy on the test part, as a fraction.
    seconds_per_fit : float
        Of the final fit.
    seconds_all : float
        Of all fits, those that choose parameters included.
    gap : float or None
        Certified relative gap, for methods that have one.
    extra : dict
        What else is worth knowing, such as the parameters chosen; must be fit for JSON.
    """

    score: float | None
    seconds_per_fit: float
    seconds_all: float
    gap: float | None = None
    extra: dict[str, Any] = {}  # noqa: RUF012 - never changed


class Unit(NamedTuple):
    """The smallest piece of work: one method on one fold. `settings` are all that the outcome depends on besides."""

    table: int
    set: str
    target: int
    fold: int
    method: str
    settings: dict[str, Any]

    @property
    def key(self) -> str:
        """The same text for the same work."""
        return json.dumps(self, sort_keys=True)

    def __str__(self) -> str:
        target = f"-{self.target}" if self.target > 1 else ""
        stop = f" ({self.settings['stop']})" if "stop" in self.settings else ""
        return f"table {self.table} {self.set}{target} fold {self.fold + 1} {self.method}{stop}"


class Store:
    """Finished rows in a file that several processes may append to.

    A line that a killed process left unfinished is passed over, and the next row begins on a line of its own.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, dict[str, Any]] = {}
        self.n_torn = 0
        for line in path.read_bytes().splitlines() if path.exists() else []:
            self._take_in(line)

    def _take_in(self, line: bytes) -> None:
        try:
            row = json.loads(line)
        except ValueError:
            self.n_torn += bool(line.strip())
            return
        if "forget" in row:
            for unit in row["forget"]:
                self._rows.pop(Unit(**unit).key, None)
        else:
            self._rows[Unit(**row["unit"]).key] = row

    def _append(self, row: dict[str, Any]) -> None:
        """One write of a whole line, which the system does not mix with another process's."""
        line = json.dumps(row, default=lambda value: value.tolist()).encode()  # numpy's numbers and arrays
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, (b"\n" if torn else b"") + line + b"\n")
        finally:
            os.close(descriptor)
        self._take_in(line)

    def add(self, unit: Unit, outcome: Outcome, **about: Any) -> None:
        """Keep an outcome, with what else is known about how it came to be."""
        row = {"unit": unit._asdict(), **outcome._asdict(), **about, "finished": time.strftime("%Y-%m-%d %H:%M:%S")}
        self._append(row)

    def forget(self, units: Iterable[Unit]) -> None:
        """Drop the rows of `units`. The file only grows: the line that says so holds for the rows before it."""
        self._append({"forget": [unit._asdict() for unit in units]})

    def write(self, path: Path, units: Iterable[Unit]) -> None:
        """The rows of `units` that are finished, in a file of their own that can be a store again."""
        rows = [row for row in map(self.get, units) if row is not None]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def get(self, unit: Unit) -> dict[str, Any] | None:
        """The row of a unit, or None where it is not finished."""
        return self._rows.get(unit.key)

    def __contains__(self, unit: Unit) -> bool:
        return unit.key in self._rows

    def __len__(self) -> int:
        return len(self._rows)
