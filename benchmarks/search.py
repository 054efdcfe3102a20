"""Searching by a divergence: queries a second and recall, beside faiss, each in a process of its own, in turns.

python -m benchmarks.search [--quick] [--features D] [--json FILE]
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import faiss
import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from benchmarks.data import latent_classes
from benchmarks.report import Table, write_json
from bregnet import PBDL, BregmanDivergence, BregmanIndex, MaxAffine

K = 10
COUNTS = (10, 100)  # nearest items
FEATURES = (16, 64, 128, 384, 768)
TEMPERATURE = 0.3
N_QUERIES, N_SINGLE, N_CHECKED = 2000, 50, 50
ROUNDS = 3
COLUMNS = {
    "items": "d",
    "d": "d",
    "side": "5",
    "method": "32",
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
    """A divergence learned from 3000 labelled points."""
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
    nprobe: int | None = None


Search = Callable[..., Any]


def faiss_flat(case: Case) -> tuple[Search, np.ndarray, str, float]:
    """Raw inner products of the same shape, without ranking in double precision."""
    index = BregmanIndex(case.divergence(), side=case.side)
    index.add(case.items())
    form = index.to_inner_product()
    flat = faiss.IndexFlatIP(form.width)
    flat.add(form.items)
    return flat.search, form.encode(case.queries()), "IndexFlatIP", 4.0 * form.width


def index_of(case: Case, peer: Peer) -> tuple[Search, np.ndarray, str, float]:
    """An index of this package."""
    kind, nprobe = ("flat", 1) if peer.nprobe is None else ("ivf", peer.nprobe)
    index = BregmanIndex(
        case.divergence(peer.temperature), side=case.side, kind=kind, nprobe=nprobe, device="cpu", random_state=0
    )
    index.add(case.items())
    index.search(case.queries()[:1], K)
    return index.search, case.queries(), index.method, index.bytes_per_item


def one_by_one(search: Search, k: int, Q: np.ndarray) -> None:
    """Search for each query alone."""
    for query in Q:
        search(query[None], k)


def serve(case: Case, peer: Peer, pipe: Any) -> None:
    """In a process of its own: build, then measure whenever the parent asks for it, and answer what was found."""
    began = time.perf_counter()
    search, Q, name, size = faiss_flat(case) if peer.method == "faiss" else index_of(case, peer)
    pipe.send({"built in s": time.perf_counter() - began, "name": name, "bytes/item": size})
    for k in COUNTS:
        search(Q[:128], k)
    while (asked := pipe.recv()) is not None:
        k, what = asked
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


def nearest_by_hand(D: BregmanDivergence, side: str, X: np.ndarray, Q: np.ndarray, k: int) -> list[set[int]]:
    """The nearest items by all divergences, in double precision; ties by squared Euclidean distance."""
    out = []
    for query in Q:
        values = D.pairwise(query[None], X)[0] if side == "right" else D.pairwise(X, query[None])[:, 0]
        near = np.flatnonzero(values <= np.partition(values, k)[k] + 1e-9)
        order = np.lexsort((np.square(X[near] - query).sum(1), values[near].round(10)))
        out.append(set(near[order[:k]].tolist()))
    return out


def recall(found: np.ndarray, expected: list[set[int]]) -> float:
    """The share of the nearest items that were found."""
    shares = [len(set(row) & right) / len(right) for row, right in zip(found.tolist(), expected, strict=True)]
    return float(np.mean(shares))


def run(table: Table, case: Case) -> None:
    """All methods on one collection. Each is measured beside faiss, the two in turns, and the best of each counts."""
    X, Q = case.items(), case.queries()[:N_CHECKED]
    temperatures = (TEMPERATURE, 0.0)
    expected = {(t, k): nearest_by_hand(case.divergence(t), case.side, X, Q, k) for t in temperatures for k in COUNTS}
    peers = [Peer("exact"), *(Peer("ivf", nprobe=count) for count in (8, 16, 32)), Peer("exact", temperature=0.0)]
    flat = Peer("faiss")
    about = {"items": case.n, "d": case.d, "side": case.side}
    for peer in peers:
        with started(case, flat) as reference, started(case, peer) as measured:
            built = {peer: measured.recv(), flat: reference.recv()}
            for k in COUNTS:
                best: dict[tuple[Peer, str], float] = {}
                for _ in range(ROUNDS):
                    for each, pipe in ((flat, reference), (peer, measured)):
                        for what in ("batch", "single"):
                            pipe.send((k, what))
                            best[each, what] = max(best.get((each, what), 0.0), pipe.recv())
                shown = ((flat, reference), (peer, measured)) if peer is peers[0] else ((peer, measured),)
                for each, pipe in shown:
                    pipe.send((k, "found"))
                    right = recall(pipe.recv(), expected[each.temperature, k])
                    probes = "" if each.nprobe is None else f", nprobe {each.nprobe}"
                    cold = "" if each.temperature else ", temperature 0"
                    values = {
                        "method": f"{each.method}{probes}{cold} ({built[each]['name']})",
                        "k": k,
                        "recall": right,
                        "queries/s": best[each, "batch"],
                        "one by one/s": best[each, "single"],
                        "x faiss flat": best[each, "batch"] / best[flat, "batch"],
                        "x one by one": best[each, "single"] / best[flat, "single"],
                        **{name: built[each][name] for name in ("built in s", "bytes/item")},
                    }
                    table.add(**about, **values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="20,000 items of 16 and 64 features only, 100 pieces")
    parser.add_argument("--features", type=int, choices=FEATURES, help="one number of features; all by default")
    parser.add_argument("--json", metavar="FILE", help="write all rows to a file")
    arguments = parser.parse_args()
    n_pieces, n = (100, 20_000) if arguments.quick else (400, 200_000)
    features = FEATURES if arguments.features is None else (arguments.features,)
    title = (
        f"The nearest items by a divergence of {n_pieces} pieces, learned up to 64 features, temperature {TEMPERATURE}"
        f" unless said otherwise; {torch.get_num_threads()} threads; recall of {N_CHECKED} queries against all"
        " divergences in double precision"
    )
    table = Table(title, COLUMNS)
    for d in features[:2] if arguments.quick else features:
        pieces = planes(d, n_pieces)
        for side in ("right", "left"):
            run(table, Case(n if d <= 128 else n // 4, d, side, *pieces))
    write_json(arguments.json, [table])


if __name__ == "__main__":
    main()
