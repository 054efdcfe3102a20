"""Searching by a learned divergence: queries a second and recall, beside faiss, scikit-learn and PyNNDescent.

python -m benchmarks.search [--quick] [--features D] [--json FILE]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import faiss
import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors

from benchmarks.data import latent_classes
from benchmarks.report import Table, write_json
from bregnet import PBDL, BregmanDivergence, BregmanIndex, MaxAffine

K = 10
TEMPERATURE = 0.3
COLUMNS = {
    "items": "d",
    "d": "d",
    "side": "5",
    "method": "32",
    "built in s": ".1f",
    "queries/s": ".4g",
    "recall": ".4f",
    "x faiss flat": ".3g",
    "bytes/item": ".0f",
}


def learned(d: int, n_pieces: int) -> PBDL:
    """A divergence learned from 3000 labelled points."""
    X, y = latent_classes(3000, d, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return PBDL(alpha=0.001, n_pieces=n_pieces, temperature=0, tol=0.3, max_iter=300, random_state=0).fit(X, y)


def rate(search: Callable[[np.ndarray], Any], Q: np.ndarray, repeats: int = 3) -> float:
    """Queries a second, the best of a few runs after one that does not count."""
    search(Q[:64])
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        search(Q)
        seconds.append(time.perf_counter() - began)
    return len(Q) / min(seconds)


def nearest_by_hand(D: BregmanDivergence, side: str, X: np.ndarray, Q: np.ndarray) -> list[set[int]]:
    """The nearest items by all divergences, in double precision; ties by squared Euclidean distance."""
    out = []
    for query in Q:
        values = D.pairwise(query[None], X)[0] if side == "right" else D.pairwise(X, query[None])[:, 0]
        near = np.flatnonzero(values <= np.partition(values, K)[K] + 1e-9)
        order = np.lexsort((np.square(X[near] - query).sum(1), values[near].round(10)))
        out.append(set(near[order[:K]].tolist()))
    return out


def recall(found: np.ndarray, expected: list[set[int]]) -> float:
    return float(np.mean([len(set(row) & right) / K for row, right in zip(found.tolist(), expected, strict=True)]))


class Case:
    """One collection, and rows about it."""

    def __init__(self, table: Table, D: BregmanDivergence, side: str, X: np.ndarray, Q: np.ndarray) -> None:
        self.table, self.D, self.side, self.X, self.Q = table, D, side, X, Q
        self.checked = Q[:50]
        self.expected = nearest_by_hand(D, side, X, self.checked)
        self.flat = 0.0  # queries a second of faiss

    def add(self, method: str, speed: float, **values: Any) -> None:
        """A row."""
        about = {"items": len(self.X), "d": self.X.shape[1], "side": self.side, "method": method}
        self.table.add(**about, **values, **{"queries/s": speed, "x faiss flat": speed / self.flat})

    def faiss_flat(self) -> None:
        """Raw inner products of the same shape, without ranking in double precision."""
        form = BregmanIndex(self.D, side=self.side)
        form.add(self.X)
        given = form.to_inner_product()
        flat = faiss.IndexFlatIP(given.width)
        flat.add(given.items)
        queries = given.encode(self.Q)
        self.flat = rate(lambda q: flat.search(q, K), queries)
        found = flat.search(queries[: len(self.checked)], K)[1]
        self.add("faiss IndexFlatIP", self.flat, recall=recall(found, self.expected), **{"bytes/item": 4 * given.width})

    def index(self, method: str, D: BregmanDivergence | None = None, **parameters: Any) -> BregmanIndex:
        """An index, built and measured."""
        index = BregmanIndex(D or self.D, side=self.side, random_state=0, **parameters)
        began = time.perf_counter()
        index.add(self.X)
        index.search(self.Q[:1], K)
        built = time.perf_counter() - began
        self.measure(method, index, None if D is None else nearest_by_hand(D, self.side, self.X, self.checked), built)
        return index

    def measure(
        self, method: str, index: BregmanIndex, expected: list[set[int]] | None = None, built: float | None = None
    ) -> None:
        """A row about an index as it is."""
        speed = rate(lambda q: index.search(q, K), self.Q)
        right = recall(np.asarray(index.search(self.checked, K)[1]), expected or self.expected)
        about = {"built in s": built, "bytes/item": index.nbytes / len(index)}
        self.add(f"{method} ({index.method})", speed, recall=right, **about)


def by_callable(case: Case, function: MaxAffine) -> None:
    """scikit-learn's brute force with a Python function for D, two queries."""
    slopes, intercepts, tau = function.slopes, function.intercepts, function.temperature

    def soft(x: np.ndarray) -> tuple[float, np.ndarray]:
        values = (slopes @ x + intercepts) / tau
        top = values.max()
        shares = np.exp(values - top)
        total = shares.sum()
        return tau * (top + np.log(total)), shares @ slopes / total

    def between(q: np.ndarray, x: np.ndarray) -> float:
        value, gradient = soft(x)
        return float(soft(q)[0] - value - gradient @ (q - x))

    metric = between if case.side == "right" else lambda q, x: between(x, q)
    peer = NearestNeighbors(n_neighbors=K, metric=metric, algorithm="brute").fit(case.X)
    began = time.perf_counter()
    found = peer.kneighbors(case.Q[:2], return_distance=False)
    case.add("scikit-learn, callable", 2 / (time.perf_counter() - began), recall=recall(found, case.expected[:2]))


def by_descent(case: Case, function: MaxAffine) -> None:
    """PyNNDescent with a compiled function for D."""
    import numba
    from pynndescent import NNDescent

    slopes, intercepts = (np.asarray(part, dtype=np.float32) for part in (function.slopes, function.intercepts))
    tau = np.float32(function.temperature)

    @numba.njit(fastmath=True)
    def between(q, x):  # type: ignore[no-untyped-def]  # D(q, x)
        at_q, at_x = slopes @ q + intercepts, slopes @ x + intercepts
        top_q, top_x = at_q.max(), at_x.max()
        sum_q, sum_x, along = np.float32(0), np.float32(0), np.float32(0)
        for k in range(len(at_q)):
            sum_q += np.exp((at_q[k] - top_q) / tau)
            share = np.exp((at_x[k] - top_x) / tau)
            sum_x += share
            along += share * (at_q[k] - at_x[k])
        value = (top_q - top_x) + tau * (np.log(sum_q) - np.log(sum_x)) - along / sum_x
        return max(value, np.float32(0))

    began = time.perf_counter()
    peer = NNDescent(case.X.astype(np.float32), metric=between, n_neighbors=30, random_state=0)
    queries = case.Q.astype(np.float32)
    peer.query(queries[:10], k=K)
    built = time.perf_counter() - began
    speed = rate(lambda q: peer.query(q, k=K), queries, repeats=1)
    found = peer.query(queries[: len(case.checked)], k=K)[0]
    case.add("PyNNDescent, compiled metric", speed, recall=recall(found, case.expected), **{"built in s": built})


def run(table: Table, n: int, d: int, model: PBDL, *, n_queries: int, peers: bool) -> None:
    """All methods on n items of d features, both sides."""
    X, _ = latent_classes(n, d, seed=1)
    Q, _ = latent_classes(n_queries, d, seed=2)
    f = model.function_
    smooth = MaxAffine(f.slopes, f.intercepts, temperature=TEMPERATURE)
    for side in ("right", "left"):
        case = Case(table, BregmanDivergence(smooth), side, X, Q)
        case.faiss_flat()
        case.index("BregmanIndex")
        cells = case.index("ivf, nprobe 8", kind="ivf", nprobe=8)
        for cells.nprobe in (16, 32, 64):
            case.measure(f"ivf, nprobe {cells.nprobe}", cells)
        case.index("temperature 0", BregmanDivergence(f))
        by_callable(case, smooth)
        if peers and side == "right" and find_spec("pynndescent"):
            by_descent(case, smooth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="20,000 items only, 100 pieces")
    parser.add_argument("--features", type=int, choices=(16, 64), help="16 or 64 only; both by default")
    parser.add_argument("--json", metavar="FILE", help="write all rows to a file")
    arguments = parser.parse_args()
    n_pieces = 100 if arguments.quick else 400
    features = (16, 64) if arguments.features is None else (arguments.features,)
    sizes = [(20_000, features[0])] if arguments.quick else [(n, d) for d in features for n in (20_000, 200_000)]
    models = {d: learned(d, n_pieces) for d in sorted({d for _, d in sizes})}
    gaps = ", ".join(f"d = {d}: {model.result_.status}" for d, model in models.items())
    title = (
        f"The {K} nearest items by a learned divergence of {n_pieces} pieces ({gaps}), temperature {TEMPERATURE} unless"
        f" said otherwise; {torch.get_num_threads()} threads; recall of 50 queries against all divergences in double"
        " precision"
    )
    table = Table(title, COLUMNS)
    for n, d in sizes:
        slow = (n, d) == (20_000, 16) and not arguments.quick  # PyNNDescent is built in minutes
        run(table, n, d, models[d], n_queries=2000, peers=slow)
    write_json(arguments.json, [table])


if __name__ == "__main__":
    main()
