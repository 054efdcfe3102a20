"""The store of results: files of one line of JSON for each finished piece of work, and which of them are of other code.

A line has the job, the parameters that tell its pieces of work apart, the rows that came out, and where they come from:
the commit, a hash of the code that was measured, the date, the versions of packages and the machine.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from benchmarks.report import machine, versions

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
QUICK_RESULTS = ROOT / "build" / "quick-results"  # small cases that no page shows

WITHOUT = ":!"  # before the path of a module that does not count, as git has it

Row: TypeAlias = dict[str, Any]


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
    """The smallest piece of work for the paper's tables: one method on one fold; `stop` is how a timed fit ends."""

    table: int
    set: str
    target: int
    fold: int
    method: str
    stop: str | None = None

    def __str__(self) -> str:
        target = f"-{self.target}" if self.target > 1 else ""
        stop = f" ({self.stop})" if self.stop else ""
        return f"table {self.table} {self.set}{target} fold {self.fold + 1} {self.method}{stop}"


@cache
def code_hash(*measured: str) -> str:
    """Of the statements in some folders and modules, by paths from the root, without comments and docstrings.

    Modules behind :data:`WITHOUT` are left out.
    """
    digest = hashlib.sha256()
    left_out = {ROOT / path.removeprefix(WITHOUT) for path in measured if path.startswith(WITHOUT)}
    for path in measured:
        place = ROOT / path
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place] if not path.startswith(WITHOUT) else []
        for file in (file for file in files if file not in left_out):
            digest.update(f"{file.relative_to(ROOT)}\n{_statements(file)}\n".encode())
    return digest.hexdigest()[:16]


@cache
def _statements(file: Path) -> str:
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            node.body[:1] = []
    return ast.unparse(tree)


def commit(measured: Iterable[str]) -> str | None:
    """Of the checkout; with a plus sign where what is measured differs from it, None outside of a checkout."""
    head = _git("rev-parse", "--short=10", "HEAD")
    return head and head + ("+" if _git("status", "--porcelain", "--", *measured) else "")


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


class Store:
    """The results of one job, by the parameters of its pieces of work.

    The file is replaced whole whenever something is added: it never has half a line, and no two for the same work.

    Parameters
    ----------
    job : str
    folder : Path
        Of the files `JOB.jsonl`.
    """

    def __init__(self, job: str, folder: Path = RESULTS) -> None:
        self.job, self._path = job, folder / f"{job}.jsonl"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self._records: dict[str, Row] = {}
        for record in map(json.loads, lines):
            self._records[_key(record["parameters"])] = record

    def __iter__(self) -> Any:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def get(self, parameters: Row) -> Row | None:
        """What is known of a piece of work."""
        return self._records.get(_key(parameters))

    def is_current(self, parameters: Row, measured: Sequence[str]) -> bool:
        """Whether there is a result, and of the code as it is."""
        found = self.get(parameters)
        return found is not None and found["code"] == code_hash(*measured)

    def add(self, parameters: Row, rows: list[Row], measured: Sequence[str], **about: Any) -> None:
        """Keep the rows of a piece of work, in place of earlier ones; `about` may say what else they were made with."""
        record = {
            "job": self.job,
            "parameters": parameters,
            "commit": commit(measured),
            "code": code_hash(*measured),
            "date": time.strftime("%Y-%m-%d"),
            "versions": versions(),
            "machine": machine(),
            **about,
            "rows": rows,
        }
        self._records = Store(self.job, self._path.parent)._records | {_key(parameters): record}  # another run's, too
        self.write()

    def write(self) -> None:
        """Replace the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(record, default=lambda value: value.tolist()) + "\n" for record in self)
        unfinished = self._path.with_suffix(f".{os.getpid()}")
        unfinished.write_text("".join(lines))
        unfinished.replace(self._path)


def _key(parameters: Row) -> str:
    return json.dumps(parameters, sort_keys=True)
