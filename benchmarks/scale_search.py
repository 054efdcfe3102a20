"""Searching a million items: time to build, memory, queries a second and recall; and metrics in several threads.

python -m benchmarks.scale_search [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import faiss
import numpy as np
import torch

from benchmarks.data import latent_classes
from benchmarks.report import Table, write_json
from benchmarks.search import BLOCK, TEMPERATURE, K, learned, nearest_by_hand, rate, share_found
from benchmarks.timing import in_own_process, peak_megabytes
from bregnet import BregmanDivergence, BregmanIndex, MaxAffine
from bregnet.metrics import (
    map_at_r,
    mean_average_precision,
    precision_at_k,
    r_precision,
    recall_at_k,
    retrieval_auc,
)
from bregnet.retrieval.evaluation import retrieval_scores

D = 16
TEMPERATURES = (0.1, 0.0)
N_CHECKED, N_TIMED = 200, 1000
COLUMNS = {
    "temperature": "g",
    "side": "5",
    "method": "29",
    "built in s": ".1f",
    "bytes/item": ".0f",
    "MB before": ".0f",
    "peak MB": ".0f",
    "queries/s": ".4g",
    "recall": ".4f",
    "x faiss flat": ".3g",
}
METRICS: dict[str, Callable[..., Any]] = {
    "mean_average_precision": mean_average_precision,
    "map_at_r": map_at_r,
    "r_precision": r_precision,
    "precision_at_k": partial(precision_at_k, k=10),
    "recall_at_k": partial(recall_at_k, k=10),
    "retrieval_auc": retrieval_auc,
}


class Case(NamedTuple):
    """What to search by, and in what."""

    n: int
    slopes: np.ndarray
    intercepts: np.ndarray
    temperature: float
    side: str

    def divergence(self) -> BregmanDivergence:
        """The divergence that was learned, at this temperature."""
        return BregmanDivergence(MaxAffine(self.slopes, self.intercepts, temperature=self.temperature))


def items(n: int) -> np.ndarray:
    """Clustered points, made a block at a time so that they are all that takes memory."""
    X = np.empty((n, D))
    for number, start in enumerate(range(0, n, BLOCK)):
        part = X[start : start + BLOCK]
        part[:] = latent_classes(len(part), D, seed=100 + number)[0]
    return X


def queries() -> np.ndarray:
    """Points like the items."""
    return latent_classes(N_TIMED, D, seed=2)[0]


def expected_of(case: Case) -> np.ndarray:
    """Rows of the nearest items of the first queries, (N_CHECKED, K)."""
    return nearest_by_hand(case.divergence(), case.side, items(case.n), queries()[:N_CHECKED], K)


def by_faiss(case: Case, expected: np.ndarray) -> list[dict[str, Any]]:
    """Raw inner products of the same shape, without ranking in double precision."""
    index = BregmanIndex(case.divergence(), side=case.side)
    index.add(items(case.n))
    given = index.to_inner_product()
    vectors, width = given.encode(queries()), given.width
    del index
    before = peak_megabytes()
    faiss.omp_set_num_threads(torch.get_num_threads())
    flat = faiss.IndexFlatIP(width)
    began = time.perf_counter()
    flat.add(given.items)
    built = time.perf_counter() - began
    speed = rate(lambda q: flat.search(q, K), vectors)
    recall = share_found(flat.search(vectors[:N_CHECKED], K)[1], expected)
    about = {"built in s": built, "bytes/item": 4 * width, "MB before": before, "peak MB": peak_megabytes()}
    return [{"method": "faiss IndexFlatIP", "queries/s": speed, "recall": recall, **about}]


def by_index(case: Case, expected: np.ndarray, kind: str, probes: tuple[int, ...]) -> list[dict[str, Any]]:
    """An index, built and measured; a row for each number of cells that are searched."""
    X, Q = items(case.n), queries()
    before = peak_megabytes()
    index = BregmanIndex(case.divergence(), side=case.side, kind=kind, random_state=0)
    began = time.perf_counter()
    index.add(X)
    index.search(Q[:1], K)
    built: float | None = time.perf_counter() - began
    rows = []
    for nprobe in probes if index.method == "cells" else (1,):
        index.nprobe = nprobe
        speed = rate(lambda q: index.search(q, K), Q)
        recall = share_found(np.asarray(index.search(Q[:N_CHECKED], K)[1]), expected)
        name = f"ivf, nprobe {nprobe} (cells)" if index.method == "cells" else f"{kind} ({index.method})"
        about = {"bytes/item": index.bytes_per_item, "MB before": before, "peak MB": peak_megabytes()}
        rows.append({"method": name, "built in s": built, "queries/s": speed, "recall": recall, **about})
        built = None
    return rows


def search_table(*, quick: bool) -> Table:
    """All kinds of index, for both temperatures, each in a process of its own."""
    n, n_pieces = (50_000, 100) if quick else (1_000_000, 400)
    model = learned(D, n_pieces)
    title = (
        f"The {K} nearest of {n:,} items of {D} features by a learned divergence of {n_pieces} pieces"
        f" ({model.result_.status}); {torch.get_num_threads()} threads; recall of {N_CHECKED} queries against all"
        " divergences in double precision, ties by squared Euclidean distance, which faiss does not know of; memory is"
        " that of a process with the items and all libraries, before the index and at its peak"
    )
    table = Table(title, COLUMNS)
    function = model.function_
    for temperature in TEMPERATURES:
        for side in ("right",) if quick else ("right", "left"):
            case = Case(n, np.asarray(function.slopes), np.asarray(function.intercepts), temperature, side)
            expected = expected_of(case)
            flat = 0.0  # queries a second of faiss
            for measure in (
                by_faiss,
                partial(by_index, kind="flat", probes=()),
                partial(by_index, kind="ivf", probes=(8, 16, 32)),
            ):
                for row in in_own_process(measure, case, expected):
                    flat = flat or row["queries/s"]
                    table.add(temperature=temperature, side=side, **row, **{"x faiss flat": row["queries/s"] / flat})
    return table


def sorted_rows(values: np.ndarray, n_jobs: int) -> None:
    """Sort all rows in threads: what a machine gives to code that holds no lock."""
    with ThreadPoolExecutor(n_jobs) as pool:
        list(pool.map(partial(np.sort, axis=1), np.array_split(values, 4 * n_jobs)))


def seconds(call: Callable[[], Any], repeats: int = 3) -> float:
    """Time of a call, the least of a few."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def metric_table(*, quick: bool) -> Table:
    """Metrics with one thread and with two."""
    n_queries, n_items = (500, 10_000) if quick else (2000, 50_000)
    rng = np.random.default_rng(0)
    divergences = rng.random((n_queries, n_items))
    relevant = rng.random((n_queries, n_items)) < 0.05
    columns = {"metric": "24", "n_jobs=1 in s": ".2f", "n_jobs=2 in s": ".2f", "ratio": ".2f", "equal": "5"}
    table = Table(f"Metrics of {n_queries:,} queries and {n_items:,} items by the number of threads", columns)

    def add(name: str, times: list[float], equal: str | None = None) -> None:
        row = {"n_jobs=1 in s": times[0], "n_jobs=2 in s": times[1], "ratio": times[0] / times[1], "equal": equal}
        table.add(metric=name, **row)

    add("sorting rows, no more", [seconds(partial(sorted_rows, divergences, n_jobs)) for n_jobs in (1, 2)])
    for name, metric in METRICS.items():
        calls = [partial(metric, divergences, relevant, per_query=True, n_jobs=n_jobs) for n_jobs in (1, 2)]
        equal = np.array_equal(calls[0](), calls[1](), equal_nan=True)
        add(name, [seconds(call) for call in calls], "yes" if equal else "no")
    return table


def scores_by_hand(values: np.ndarray, relevant: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of each query by sorting all its divergences, (m, n); no two of these may be equal."""
    hits = np.take_along_axis(relevant, values.argsort(1), 1)
    found, places, total = hits.cumsum(1), np.arange(1, hits.shape[1] + 1), hits.sum(1)
    return {
        "map": (hits * found / places).sum(1) / total,
        "r_precision": found[np.arange(len(hits)), total - 1] / total,
        "auc": 1 - (hits * (places - found)).sum(1) / (total * (hits.shape[1] - total)),
    }


def evaluation_table(*, quick: bool) -> Table:
    """The evaluation of a whole collection, beside numpy."""
    n_queries, n_items, d = (500, 4500, 20) if quick else (5000, 45_000, 20)
    function = learned(d, 100).function_
    D = BregmanDivergence(MaxAffine(function.slopes, function.intercepts, temperature=TEMPERATURE))
    (Q, y), (X, classes) = latent_classes(n_queries, d, seed=2), latent_classes(n_items, d, seed=1)
    title = f"mAP, R-precision and AUC of {n_queries:,} queries and {n_items:,} items of {d} features"
    columns = {"side": "5", "seconds": ".2f", "numpy in s": ".2f", "largest difference": ".1e"}
    table = Table(f"{title}; numpy computes divergences in double precision and sorts them, on one thread", columns)
    for side in ("right", "left"):
        evaluate = partial(retrieval_scores, D, side=side, measures=("map", "r_precision", "auc"))
        evaluate(Q[:10], y[:10], (X[:100], classes[:100]))  # compiles
        began = time.perf_counter()
        scores = evaluate(Q, y, (X, classes))
        taken = time.perf_counter() - began
        began = time.perf_counter()
        parts = []
        for rows in np.array_split(np.arange(n_queries), max(1, n_queries // 100)):
            values = D.pairwise(Q[rows], X) if side == "right" else D.pairwise(X, Q[rows]).T
            parts.append(scores_by_hand(values, y[rows, None] == classes))
        by_hand = time.perf_counter() - began
        away = max(np.abs(np.concatenate([p[name] for p in parts]) - scores[name]).max() for name in parts[0])
        table.add(side=side, seconds=taken, **{"numpy in s": by_hand, "largest difference": float(away)})
    return table


def tables(quick: bool) -> list[Table]:
    """All tables, printed as they are filled."""
    return [search_table(quick=quick), metric_table(quick=quick)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="50,000 items, 100 pieces, D(query, item) only")
    parser.add_argument("--json", metavar="FILE", help="write all rows to a file")
    arguments = parser.parse_args()
    write_json(arguments.json, tables(arguments.quick))


if __name__ == "__main__":
    main()
