"""Searching by a divergence: queries a second and recall, beside faiss, each in a process of its own, in turns.

python -m benchmarks.search [--quick] [--features D] [--items N] [--graph] [--json FILE]
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import faiss
import numpy as np
import torch
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning

from benchmarks.data import latent_classes
from benchmarks.report import Table, write_json
from bregnet import PBDL, BregmanDivergence, BregmanIndex, MaxAffine

K = 10
COUNTS = (10, 100)  # nearest items
FEATURES = (16, 64, 128, 384, 768)
TEMPERATURE = 0.3
N_QUERIES, N_SINGLE, N_CHECKED = 2000, 50, 200
ROUNDS = 3
BLOCK = 20_000  # items made, or compared with all queries, at once
COLUMNS = {
    "items": "d",
    "d": "d",
    "side": "5",
    "method": "39",
    "k": "d",
    "built in s": ".1f",
    "queries/s": ".4g",
    "one by one/s": ".4g",
    "recall": ".4f",
    "x faiss flat": ".3g",
    "x one by one": ".3g",
    "bytes/item": ".0f",
}


def learned(d: int, n_pieces: int) -> PBDL:
    """A divergence learned from 3000 labeled points."""
    X, y = latent_classes(3000, d, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return PBDL(alpha=0.001, n_pieces=n_pieces, temperature=0, tol=0.3, max_iter=300, random_state=0).fit(X, y)


def planes(d: int, n_pieces: int) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and intercepts: learned ones, and for many features tangent planes of the squared norm at some points.

    The latter are scaled so that a typical divergence is 3, about that of a learned one.
    """
    if d <= 64:
        function = learned(d, n_pieces).function_
        return np.asarray(function.slopes), np.asarray(function.intercepts)
    X, _ = latent_classes(500 + n_pieces, d, seed=0)
    points = X[500:]
    slopes, intercepts = 2 * points, -np.square(points).sum(1)
    scale = 3 / np.median(BregmanDivergence(MaxAffine(slopes, intercepts)).pairwise(X[:500]))
    return scale * slopes, scale * intercepts


def rate(search: Callable[[np.ndarray], Any], Q: np.ndarray, repeats: int = 3) -> float:
    """Queries a second, the best of a few runs after one that does not count."""
    search(Q[:64])
    return max(once(search, Q) for _ in range(repeats))


def once(search: Callable[[np.ndarray], Any], Q: np.ndarray) -> float:
    """Queries a second."""
    began = time.perf_counter()
    search(Q)
    return len(Q) / (time.perf_counter() - began)


class Case(NamedTuple):
    """A collection, which every process makes again from its seed."""

    n: int
    d: int
    side: str
    slopes: np.ndarray
    intercepts: np.ndarray

    def divergence(self, temperature: float = TEMPERATURE) -> BregmanDivergence:
        """The divergence at a temperature."""
        return BregmanDivergence(MaxAffine(self.slopes, self.intercepts, temperature=temperature))

    def items(self) -> np.ndarray:
        """The items, (n, d)."""
        return latent_classes(self.n, self.d, seed=1)[0]

    def queries(self) -> np.ndarray:
        """The queries, (N_QUERIES, d)."""
        return latent_classes(N_QUERIES, self.d, seed=2)[0]


class Peer(NamedTuple):
    """What is measured: the method, and its parameters."""

    method: str
    temperature: float = TEMPERATURE
    efforts: tuple[int | None, ...] = (None,)  # lists, or candidates in a graph, that a search looks at

    def label(self, effort: int | None) -> str:
        """Its name in a table."""
        about = {"ivf": f", nprobe {effort}", "hnsw": f", efSearch {effort}"}.get(self.method, "")
        return self.method + about + ("" if self.temperature else ", temperature 0")


Search = Callable[..., Any]


class Built(NamedTuple):
    """An index: how it searches, for what, and what sets the effort of a search."""

    search: Search
    queries: np.ndarray
    name: str
    bytes_per_item: float
    exert: Callable[[int], None] = lambda effort: None


def by_faiss(case: Case, items: np.ndarray, *, graph: bool) -> Built:
    """Raw inner products, all or by a graph of neighbors, without ranking in double precision."""
    index = BregmanIndex(case.divergence(), side=case.side)
    index.add(items)
    form = index.to_inner_product(symmetric=graph)
    if not graph:
        flat = faiss.IndexFlatIP(form.width)
        flat.add(form.items)
        return Built(flat.search, form.encode(case.queries()), "IndexFlatIP", 4.0 * form.width)
    links = faiss.IndexHNSWFlat(form.width, 32)
    links.add(form.items)
    size = faiss.serialize_index(links).nbytes / case.n
    exert = partial(setattr, links.hnsw, "efSearch")
    return Built(links.search, form.encode(case.queries()), "IndexHNSWFlat", size, exert)


def by_index(case: Case, items: np.ndarray, peer: Peer) -> Built:
    """An index of this package."""
    kind = "ivf" if peer.method == "ivf" else "flat"
    index = BregmanIndex(case.divergence(peer.temperature), side=case.side, kind=kind, device="cpu", random_state=0)
    index.add(items)
    index.search(case.queries()[:1], K)
    return Built(index.search, case.queries(), index.method, index.bytes_per_item, partial(setattr, index, "nprobe"))


def one_by_one(search: Search, k: int, Q: np.ndarray) -> None:
    """Search for each query alone."""
    for query in Q:
        search(query[None], k)


def serve(case: Case, peer: Peer, pipe: Any) -> None:
    """In a process of its own: build, then measure whenever the parent asks for it, and answer what was found."""
    items, graph = case.items(), peer.method == "hnsw"
    began = time.perf_counter()
    built = by_index(case, items, peer) if peer.method in ("exact", "ivf") else by_faiss(case, items, graph=graph)
    search, Q = built.search, built.queries
    pipe.send({"built in s": time.perf_counter() - began, "name": built.name, "bytes/item": built.bytes_per_item})
    for k in COUNTS:
        search(Q[:128], k)
    while (asked := pipe.recv()) is not None:
        effort, k, what = asked
        if effort is not None:
            built.exert(effort)
        if what == "found":
            pipe.send(np.asarray(search(Q[:N_CHECKED], k)[1]))
        elif what == "batch":
            pipe.send(once(partial(search, k=k), Q))
        else:
            pipe.send(once(partial(one_by_one, search, k), Q[:N_SINGLE]))


@contextmanager
def started(case: Case, peer: Peer) -> Iterator[Any]:
    """A pipe to a process that serves a peer."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(case, peer, there))
    process.start()
    there.close()  # an end in the other process is then seen here
    try:
        yield here
        here.send(None)
    finally:
        here.close()
        process.join()


def nearest_by_hand(D: BregmanDivergence, side: str, X: np.ndarray, Q: np.ndarray, k: int) -> np.ndarray:
    """Rows of the nearest items of all queries, (m, k), by all divergences in double precision.

    Divergences that differ by rounding tie, and squared Euclidean distance decides.
    """
    best = [np.empty((0, 3))] * len(Q)  # divergence, squared distance and row of the nearest so far
    for start in range(0, len(X), BLOCK):
        part = X[start : start + BLOCK]
        values = D.pairwise(Q, part) if side == "right" else D.pairwise(part, Q).T
        values, squares = values.round(10), cdist(Q, part, "sqeuclidean")
        for number, (row, apart) in enumerate(zip(values, squares, strict=True)):
            near = np.flatnonzero(row <= np.partition(row, min(k, len(row)) - 1)[min(k, len(row)) - 1])
            found = np.concatenate([best[number], np.column_stack([row[near], apart[near], start + near])])
            best[number] = found[np.lexsort(found.T[::-1])[:k]]
    return np.array([rows[:, 2] for rows in best]).astype(int)


def share_found(found: np.ndarray, expected: np.ndarray) -> float:
    """The share of the nearest items that were found: recall."""
    return float((found[:, :, None] == expected[:, None]).any(2).mean())


def best_rates(pipes: dict[Any, int | None], k: int) -> dict[Any, list[float]]:
    """The best rates of each process with its effort, in batches and one query at a time, from all of them in turns."""
    best = {pipe: [0.0, 0.0] for pipe in pipes}
    for _ in range(ROUNDS):
        for pipe, effort in pipes.items():
            for number, what in enumerate(("batch", "single")):
                pipe.send((effort, k, what))
                best[pipe][number] = max(best[pipe][number], pipe.recv())
    return best


def run(table: Table, case: Case, peers: list[Peer], counts: tuple[int, ...]) -> None:
    """All methods on one collection. Each is measured in turns with faiss, and the best of each counts."""
    X, Q = case.items(), case.queries()[:N_CHECKED]
    expected = {
        temperature: nearest_by_hand(case.divergence(temperature), case.side, X, Q, max(counts))
        for temperature in {peer.temperature for peer in peers}
    }
    flat = Peer("faiss")
    with started(case, flat) as reference:
        about = {flat: reference.recv()}
        for peer in peers:
            with started(case, peer) as measured:
                about[peer] = measured.recv()
                for effort, k in product(peer.efforts, counts):
                    pipes = {reference: None, measured: effort}
                    best = best_rates(pipes, k)
                    shown = [(flat, reference)] if (peer, effort) == (peers[0], peers[0].efforts[0]) else []
                    for each, pipe in (*shown, (peer, measured)):
                        pipe.send((pipes[pipe], k, "found"))
                        built, ratios = about[each], np.divide(best[pipe], best[reference])
                        values = {
                            "method": f"{each.label(pipes[pipe])} ({built['name']})",
                            "k": k,
                            "recall": share_found(pipe.recv(), expected[each.temperature][:, :k]),
                            **dict(zip(("queries/s", "one by one/s"), best[pipe], strict=True)),
                            **dict(zip(("x faiss flat", "x one by one"), ratios.tolist(), strict=True)),
                            **{name: built[name] for name in ("built in s", "bytes/item")},
                        }
                        table.add(items=case.n, d=case.d, side=case.side, **values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="20,000 items, 100 pieces, 16 and 64 features")
    parser.add_argument("--features", type=int, choices=FEATURES, help="one number of features")
    parser.add_argument("--items", type=int, metavar="N", help="200,000 by default, 50,000 from 384 features on")
    parser.add_argument(
        "--graph", action="store_true", help="cells and a graph of faiss (HNSW) instead, 16 and 64 features by default"
    )
    parser.add_argument("--json", metavar="FILE", help="write all rows to a file")
    arguments = parser.parse_args()
    n_pieces, some = (100, 20_000) if arguments.quick else (400, 200_000)
    default = FEATURES[:2] if arguments.quick or arguments.graph else FEATURES
    title = (
        f" by a divergence of {n_pieces} pieces, learned up to 64 features, temperature {TEMPERATURE}"
        f" unless said otherwise; {torch.get_num_threads()} threads; recall of {N_CHECKED} queries against all"
        " divergences in double precision"
    )
    if arguments.graph:
        table = Table(f"Cells and graphs: the nearest items{title}", COLUMNS)
        peers = [Peer("ivf", efforts=(4, 8, 16, 32, 64)), Peer("hnsw", efforts=(16, 32, 64, 128, 256))]
    else:
        table = Table(f"The nearest items{title}", COLUMNS)
        peers = [Peer("exact"), Peer("ivf", efforts=(8, 16, 32)), Peer("exact", temperature=0.0)]
    counts = (K,) if arguments.graph else COUNTS
    for d in default if arguments.features is None else (arguments.features,):
        pieces, n = planes(d, n_pieces), arguments.items or (some if d <= 128 else some // 4)
        for side in ("right", "left"):
            run(table, Case(n, d, side, *pieces), peers, counts)
    write_json(arguments.json, [table])


if __name__ == "__main__":
    main()
