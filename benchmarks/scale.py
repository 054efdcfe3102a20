"""Cost and quality as the number of points grows, several processes against one, and how many pieces are enough.

    python -m benchmarks.scale [--quick] [--large] [--part A,B] [--json FILE]

Every fit runs in a process of its own, so that its peak memory is its own. Memory is counted above that of the same
process after a small fit (libraries and compiled code), and without the data themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from benchmarks import scale_search
from benchmarks.report import Table, machine, write_json
from benchmarks.solver import compile_first, make_problem, synthetic
from benchmarks.timing import forget_peak, in_own_process, iteration_seconds, peak_megabytes
from bregnet import PBDL, ConvexRegressor, DCRegressor, datasets, distributed
from bregnet.solver.admm import Iteration, Options
from bregnet.solver.solve import LAYOUTS, solve

N_FEATURES = 16
N_PIECES = 400
N_ITERATIONS = 100
HELD_OUT = 2000
LEARNERS = ("PBDL", "ConvexRegressor", "DCRegressor")
GROWTH_COLUMNS = {
    "n": "d",
    "s/iter": ".4f",
    "total s": ".1f",
    "iterations": "d",
    "state MB": ".0f",
    "peak MB": ".0f",
    "peak/state": ".2f",
    "objective": ".5f",
    "gap": ".1%",
    "mAP": ".4f",
}
PARTS = ("growth", "regression", "processes", "pieces", "search", "evaluation")
REGRESSION_FEATURES = 10
REGRESSION_SIZES, QUICK_REGRESSION_SIZES = [1000, 3000, 10_000, 30_000, 100_000], [500, 1000, 2000, 4000]
REGRESSION_COLUMNS = {
    "n": "d",
    "s/iter": ".5f",
    "total s": ".2f",
    "iterations": "d",
    "pairs a point": ".1f",
    "objective": ".5f",
    "gap": ".2%",
    "peak kB a point": ".1f",
}


def classes_data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Ten classes of eight clusters each, which overlap."""
    rng = np.random.default_rng(seed)
    centres = 1.1 * np.random.default_rng(1).standard_normal((80, N_FEATURES))
    cluster = rng.integers(80, size=n)
    return centres[cluster] + rng.standard_normal((n, N_FEATURES)), cluster % 10


def surface_data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A surface with ridges and valleys, and noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, N_FEATURES))
    y = np.abs(X[:, :4]).sum(1) - np.abs(X[:, 4:8]).sum(1) + X[:, 0] * X[:, 8] + np.sin(2 * X[:, 1])
    return X, y + 0.3 * rng.standard_normal(n)


def learner(name: str, n_pieces: int, max_iter: int, **parameters: Any) -> Any:
    """A learner of so many pieces."""
    settings = {"n_pieces": n_pieces, "max_iter": max_iter, "tol": 1e-3, "random_state": 0, **parameters}
    if name == "PBDL":
        return PBDL(**{"alpha": 1e-3, "temperature": 0.1, **settings})
    return {"ConvexRegressor": ConvexRegressor, "DCRegressor": DCRegressor}[name](**{"alpha": 1e-4, **settings})


class StepClock:
    """Time spent in iterations alone, without certificates."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        for layout in LAYOUTS.values():
            layout.run = self._timed(layout.run)

    def _timed(self, plain: Callable[[Iteration, int], None]) -> Callable[[Iteration, int], None]:
        def run(iteration: Iteration, n_steps: int) -> None:
            began = time.perf_counter()
            plain(iteration, n_steps)
            self.seconds += [(time.perf_counter() - began) / n_steps] * n_steps

        return run

    def median(self) -> float:
        """Of one iteration."""
        return float(np.median(self.seconds))


def measured_fit(n: int, max_iter: int) -> dict[str, Any]:
    """One fit of a divergence and its cost, as a row."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    learner("PBDL", 20, 30).fit(*classes_data(500))  # compiles
    X, y = classes_data(n)
    held_out = classes_data(HELD_OUT, 7)
    before, clock = peak_megabytes(), StepClock()
    began = time.perf_counter()
    model = learner("PBDL", N_PIECES, max_iter).fit(X, y)
    seconds = time.perf_counter() - began
    peak = peak_megabytes() - before
    state = model.memory_needed(n, N_FEATURES).state / 2**20
    return {
        "n": n,
        "s/iter": clock.median(),
        "total s": seconds,
        "iterations": model.n_iter_,
        "state MB": state,
        "peak MB": peak,
        "peak/state": peak / state,
        "objective": model.result_.objective,
        "gap": model.gap_,
        "mAP": model.score(*held_out),
    }


def growth_tables(sizes: list[int], max_iter: int) -> list[Table]:
    title = f"growth with n: PBDL, {N_PIECES} pieces, {N_FEATURES} features, at most {max_iter} iterations"
    table = Table(f"{title}; mAP on {HELD_OUT} new rows", GROWTH_COLUMNS)
    for n in sizes:
        table.add(**in_own_process(measured_fit, n, max_iter))
    return [table, exponents("PBDL", table.rows)]


def exponents(name: str, rows: list[dict[str, Any]]) -> Table:
    """How fast times grow with n, over all sizes and over the last two."""
    table = Table(f"exponent of time in n: {name}", {"sizes": "20", "s/iter": ".2f", "total s": ".2f"})
    for some in (rows, rows[-2:]) if len(rows) > 2 else (rows,):
        sizes = [row["n"] for row in some]
        fitted = {column: exponent(sizes, [row[column] for row in some]) for column in ("s/iter", "total s")}
        table.add(sizes=f"{sizes[0]:,} to {sizes[-1]:,}", **fitted)
    return table


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def measured_regression(n: int) -> dict[str, Any]:
    """One convex fit with a piece per point, to a certified gap of 1%, as a row."""
    compile_first()
    problem = make_problem(*synthetic(n, REGRESSION_FEATURES, False), 0.01, False)
    forget_peak()
    before = peak_megabytes()
    solution = solve(problem, Options())
    peak, result = peak_megabytes() - before, solution.result
    return {
        "n": n,
        "total s": result.seconds,
        "iterations": result.n_iter,
        "pairs a point": len(solution.state.keys) / n,
        "objective": result.objective,
        "gap": result.gap,
        "peak kB a point": 1024 * peak / n,
        "s/iter": iteration_seconds(problem, 50, solution.state),
    }


def regression_tables(sizes: list[int]) -> list[Table]:
    title = f"growth with n: convex regression, a piece per point, {REGRESSION_FEATURES} features"
    table = Table(f"{title}, to a certified gap of 1%", REGRESSION_COLUMNS)
    for n in sizes:
        table.add(**in_own_process(measured_regression, n))
    return [table, exponents("convex regression", table.rows)]


def worker(name: str, n: int, max_iter: int, out: str) -> None:
    """A process of a shared fit; rank 0 writes what it cost."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(1)
    data = (classes_data if name == "PBDL" else surface_data)(n)
    learner(name, 20, 30).fit(*(part[:500] for part in data))  # compiles, each process for itself
    with distributed.joined() as ranks:
        clock, began, waited = StepClock(), time.perf_counter(), ranks.seconds
        model = learner(name, N_PIECES, max_iter).fit(*data)
        seconds, shared = time.perf_counter() - began, ranks.seconds - waited
        n_exchanges = ranks.n_exchanges
        each = _exchange_seconds(ranks)
        if ranks.rank == 0:
            row = {
                "s/iter": clock.median(),
                "total s": seconds,
                "objective": model.result_.objective,
                "gap": model.gap_,
                "iterations": model.n_iter_,
                "waiting": shared / seconds,
                "communication": n_exchanges * each / seconds,
                "per iteration": each / clock.median(),
            }
            Path(out).write_text(json.dumps(row))


def _exchange_seconds(ranks: distributed.Ranks, n_times: int = 200) -> float:
    """Time of one exchange of as many numbers as an iteration exchanges, when nobody has to wait."""
    numbers = torch.zeros((N_PIECES, N_FEATURES + 1), dtype=torch.float64)
    ranks.sum(numbers)
    began = time.perf_counter()
    for _ in range(n_times):
        ranks.sum(numbers)
    return (time.perf_counter() - began) / n_times


def shared_fit(name: str, n: int, max_iter: int, n_processes: int) -> dict[str, Any]:
    """A fit by some processes of one thread each."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "row.json")
        module = ["-m", "benchmarks.scale", "--worker", name, str(n), str(max_iter), out]
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_processes)]
        launcher = [] if n_processes == 1 else launch
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, *launcher, *module], check=True, env=environment, stderr=subprocess.DEVNULL)
        return json.loads(Path(out).read_text())


def processes_table(n: int, max_iter: int) -> Table:
    columns = {
        "learner": "15",
        "processes": "d",
        "s/iter": ".4f",
        "total s": ".1f",
        "speed-up": ".2f",
        "objective": ".6f",
        "difference": ".1e",
        "gap": ".1%",
        "communication": ".2%",
        "with waiting": ".1%",
    }
    table = Table(f"processes of one thread each that share {n} points, {N_PIECES} pieces", columns)
    for name in LEARNERS:
        alone, shared = (shared_fit(name, n, max_iter, count) for count in (1, 2))
        difference = abs(shared["objective"] - alone["objective"]) / abs(alone["objective"])
        table.add(learner=name, processes=1, **{key: alone[key] for key in ("s/iter", "total s", "objective", "gap")})
        both = {key: shared[key] for key in ("s/iter", "total s", "objective", "gap", "communication")}
        both |= {"speed-up": alone["total s"] / shared["total s"], "with waiting": shared["waiting"]}
        table.add(learner=name, processes=2, difference=difference, **both)
    return table


def pieces_sets() -> dict[str, tuple[str, np.ndarray, np.ndarray]]:
    """Data to choose the number of pieces by: the learner's name, X and y by that of the set."""
    digits = load_digits(return_X_y=True)
    sets = {"digits": ("PBDL", *digits), "classes": ("PBDL", *classes_data(10_000))}
    sets["surface"] = ("DCRegressor", *surface_data(10_000))
    if os.environ.get("BREGNET_DATA"):
        found = datasets.load("ccpp")
        sets["ccpp"] = ("DCRegressor", found.data, found.target.reshape(len(found.data), -1)[:, 0])
    return sets


def pieces_table(counts: list[int], max_iter: int) -> Table:
    columns = {"data": "9", "learner": "12", "n": "d", "pieces": "d", "seconds": ".1f", "objective": ".5f"}
    columns |= {"gap": ".1%", "score": ".4f"}
    table = Table("quality on a held-out fifth against the number of pieces", columns)
    for data, (name, X, y) in pieces_sets().items():
        train, test, target, wanted = train_test_split(X, y, test_size=0.2, random_state=0)
        for count in (count for count in counts if count < len(train)):
            model = learner(name, count, max_iter, tol=1e-2, alpha=1e-3)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(train, target)
            score = model.score(test, wanted)
            row = {"seconds": model.result_.seconds, "objective": model.result_.objective, "gap": model.gap_}
            table.add(data=data, learner=name, n=len(train), pieces=count, score=score, **row)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute or two")
    parser.add_argument("--large", action="store_true", help="PBDL with 1,000,000 points as well")
    parser.add_argument("--part", metavar="A,B", default=",".join(PARTS), help="only these parts")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    parser.add_argument("--worker", nargs=4, metavar=("LEARNER", "N", "ITERATIONS", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        name, n, max_iter, out = arguments.worker
        worker(name, int(n), int(max_iter), out)
        return
    quick = arguments.quick
    sizes = [1000, 10_000] + ([] if quick else [100_000]) + ([1_000_000] if arguments.large else [])
    max_iter = 40 if quick else N_ITERATIONS
    counts = [25, 100] if quick else [25, 50, 100, 200, 400, 800, 1600]
    parts: dict[str, Callable[[], list[Table]]] = {
        "growth": lambda: growth_tables(sizes, max_iter),
        "regression": lambda: regression_tables(QUICK_REGRESSION_SIZES if quick else REGRESSION_SIZES),
        "processes": lambda: [processes_table(10_000 if quick else 100_000, max_iter)],
        "pieces": lambda: [pieces_table(counts, 60 if quick else 300)],
        "search": lambda: scale_search.tables(quick),
        "evaluation": lambda: [scale_search.evaluation_table(quick=quick)],
    }
    wanted = arguments.part.split(",")
    unknown = set(wanted) - set(parts)
    if unknown:
        parser.error(f"--part must name some of {', '.join(parts)}, got {', '.join(sorted(unknown))}")
    print(machine())
    write_json(arguments.json, [table for part in wanted for table in parts[part]()])


if __name__ == "__main__":
    main()
