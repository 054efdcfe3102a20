"""The work of `bregnet search`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from tqdm import tqdm

from bregnet.cli.data import Columns, Data
from bregnet.cli.models import Model, plain
from bregnet.cli.options import STANDARD
from bregnet.cli.output import shows_progress, tell, writing
from bregnet.retrieval import BregmanIndex
from bregnet.retrieval.base import nearest_others

K = 10
QUERIES_AT_ONCE = 4096
FIELDS = ("query", "rank", "id", "divergence")


@dataclass(frozen=True)
class SearchPlan:
    """What to look for, and where.

    Attributes
    ----------
    index : BregmanIndex
    queries : ndarray of shape (n_queries, n_features)
    k : int
    alone : bool
        Whether the queries are the items, which do not find themselves.
    query_names : ndarray or None
        Row numbers where there are none.
    item_names : ndarray or None
        By id; the ids themselves where there are none.
    """

    index: BregmanIndex
    queries: np.ndarray
    k: int
    alone: bool
    query_names: np.ndarray | None
    item_names: np.ndarray | None


def plan(
    path: Path,
    items: Path | None,
    queries: Path | None,
    columns: Columns,
    *,
    k: int | None,
    side: str | None,
    names: str | None,
) -> SearchPlan:
    """Read the model, the items and the queries."""
    model = Model.at(path)
    divergence = model.needed_divergence("search")
    gallery: Data | None = None
    if items is not None:
        gallery = model.rows(items, columns, names=names)
        index = BregmanIndex(divergence, side=side or "right")
        index.add(plain(gallery.X))
    elif model.index is None:
        raise click.UsageError(f"ITEMS must be given to search with {path}, a {model.kind} without items of its own")
    elif queries is None:
        raise click.UsageError("--queries must be given where the items are those of the model")
    elif side not in (None, model.index.side):
        raise click.UsageError(f"--side must be {model.index.side}, that of the items of {path}, got {side}")
    else:
        index = model.index
    asked = model.rows(queries, columns, names=names) if queries is not None else gallery
    assert asked is not None
    count = _count(k, len(index) - (queries is None))
    item_names = None if gallery is None else gallery.labels
    return SearchPlan(index, plain(asked.X), count, queries is None, asked.labels, item_names)


def _count(k: int | None, there: int) -> int:
    if there < 1:
        raise ValueError("there must be an item to find beside the query itself, got none")
    if k is not None and k > there:
        raise ValueError(f"-k must be at most {there}, as many items as a query can find, got {k}")
    return min(K, there) if k is None else k


def neighbours(wanted: SearchPlan, *, quiet: bool) -> Iterator[tuple[Any, int, Any, float]]:
    """Query, rank, id and divergence, query by query; some queries are searched for at a time."""
    total = len(wanted.queries)
    with tqdm(total=total, desc="searching", unit=" queries", disable=not shows_progress(quiet=quiet)) as bar:
        for start in range(0, total, QUERIES_AT_ONCE):
            rows = np.arange(start, min(start + QUERIES_AT_ONCE, total))
            if wanted.alone:
                found = nearest_others(wanted.index, wanted.queries[rows], wanted.k, rows, progress=False)
            else:
                found = wanted.index.search(wanted.queries[rows], wanted.k, progress=False)
            divergences, ids = map(np.asarray, found)
            called = rows if wanted.query_names is None else wanted.query_names[rows]
            items = ids if wanted.item_names is None else wanted.item_names[ids]
            for query, near, values in zip(called.tolist(), items.tolist(), divergences.tolist(), strict=True):
                for rank, (item, value) in enumerate(zip(near, values, strict=True), start=1):
                    yield query, rank, item, value
            bar.update(len(rows))


def write(found: Iterable[tuple[Any, int, Any, float]], output: Path | None, *, as_lines: bool, quiet: bool) -> None:
    """Write neighbours as CSV, or as a line of JSON each."""
    count = 0
    with writing(output) as file:
        lines = csv.writer(file, lineterminator="\n")
        if not as_lines:
            lines.writerow(FIELDS)
        for each in found:
            count += 1
            if as_lines:
                file.write(json.dumps(dict(zip(FIELDS, each, strict=True)), default=str) + "\n")
            else:
                lines.writerow(each)
    if output not in (None, STANDARD):
        tell(f"{count} neighbours written to {output}", quiet=quiet)
