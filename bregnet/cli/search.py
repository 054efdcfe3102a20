"""The work of `bregnet search`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from tqdm import tqdm

from bregnet.cli.data import Columns, Data
from bregnet.cli.models import Model
from bregnet.cli.options import STANDARD
from bregnet.cli.output import check_outputs, shows_progress, tell, writing
from bregnet.retrieval import BregmanIndex
from bregnet.retrieval.base import nearest_others


def run(
    path: Path,
    items: Path | None,
    queries: Path | None,
    columns: Columns,
    *,
    k: int | None,
    side: str | None,
    names: str | None,
    form: str | None,
    output: Path | None,
    quiet: bool,
) -> None:
    """Search, and write the neighbors as CSV or as a line of JSON each."""
    check_outputs(stream=output)
    model = Model.read(path)
    gallery = None if items is None else model.rows(items, columns, names=names)
    index = _index(model, gallery, queries, side)
    asked = gallery if queries is None else model.rows(queries, columns, names=names)
    assert asked is not None
    k = _count(k, len(index) - (queries is None))
    query_names, item_names = _names(asked), _names(gallery)
    if names is not None and gallery is None:
        tell(f"note: items are called as in {path}, by their row numbers or ids; give ITEMS for names", quiet=quiet)
    as_lines = form == "jsonl" or (form is None and output is not None and output.suffix in (".jsonl", ".json"))
    fields, count = ("query", "rank", "id", "divergence"), 0
    with writing(output) as file:
        lines = csv.writer(file, lineterminator="\n")
        if not as_lines:
            lines.writerow(fields)
        for query, rank, item, value in neighbors(index, np.asarray(asked.X), k, alone=queries is None, quiet=quiet):
            line = (query_names.get(query, query), rank, item_names.get(item, item), value)
            count += 1
            if as_lines:
                file.write(json.dumps(dict(zip(fields, line, strict=True)), default=str) + "\n")
            else:
                lines.writerow(line)
    if output not in (None, STANDARD):
        tell(f"{count} neighbors written to {output}", quiet=quiet)


def _index(model: Model, gallery: Data | None, queries: Path | None, side: str | None) -> BregmanIndex:
    """An index of the given items, or the model's own."""
    divergence = model.needed_divergence("search")
    if gallery is not None:
        index = BregmanIndex(divergence, side=side or "right")
        index.add(np.asarray(gallery.X))
        return index
    if model.index is None:
        without = f"{model.path}, a {model.kind} without items of its own"
        raise click.UsageError(f"ITEMS must be given to search with {without}")
    if queries is None:
        raise click.UsageError("--queries must be given where the items are those of the model")
    if side not in (None, model.index.side):
        raise click.UsageError(f"--side must be {model.index.side}, that of the items of {model.path}, got {side}")
    return model.index


def _names(rows: Data | None) -> dict[int, Any]:
    """Names of rows by their numbers; empty where they have none."""
    return {} if rows is None or rows.labels is None else dict(enumerate(rows.labels.tolist()))


def _count(k: int | None, there: int) -> int:
    if there < 1:
        raise ValueError("there must be an item to find beside the query itself, got none")
    if k is not None and k > there:
        raise ValueError(f"-k must be at most {there}, as many items as a query can find, got {k}")
    return min(10, there) if k is None else k


def neighbors(
    index: BregmanIndex, queries: np.ndarray, k: int, *, alone: bool, quiet: bool, at_once: int = 4096
) -> Iterator[tuple[int, int, int, float]]:
    """Query, rank, id and divergence, query by query, with `at_once` queries in one search.

    Where the queries are `alone`, they are the items too, and a query is not its own neighbor.
    """
    total = len(queries)
    with tqdm(total=total, desc="searching", unit=" queries", disable=not shows_progress(quiet=quiet)) as bar:
        for start in range(0, total, at_once):
            rows = np.arange(start, min(start + at_once, total))
            if alone:
                found = nearest_others(index, queries[rows], k, rows, progress=False)
            else:
                found = index.search(queries[rows], k, progress=False)
            divergences, ids = map(np.asarray, found)
            for query, near, values in zip(rows.tolist(), ids.tolist(), divergences.tolist(), strict=True):
                for rank, (item, value) in enumerate(zip(near, values, strict=True), start=1):
                    yield query, rank, item, value
            bar.update(len(rows))
