"""Fits that tests run in processes of their own, to be shared, killed and resumed.

python -m tests.support.scale_jobs LEARNER OUT [--checkpoint FOLDER] [--die-at ITERATION] [--die-while-writing NUMBER]
"""

import argparse
import json
import os
import signal
import sys
import warnings
from contextlib import nullcontext

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bregnet import PBDL, Checkpoint, ConvexRegressor, DCRegressor, distributed
from bregnet._core.chunks import at_most
from bregnet.solver import checkpoints


def data(learner, n=600, d=4):
    rng = np.random.default_rng(0)
    centres = 1.5 * rng.standard_normal((9, d))
    cluster = rng.integers(9, size=n)
    X = centres[cluster] + 0.6 * rng.standard_normal((n, d))
    X[1] = X[0]  # a duplicate, on the same rank or not
    if learner == "apart":  # two classes that are nearly one, and another far away, which is all that a rank has
        X = np.concatenate([X[:200], 40 + 0.01 * X[200:400, ::-1]])
        return X, np.r_[rng.integers(0, 2, 200), np.full(200, 2)]
    if learner == "PBDL":
        return X, cluster % 3
    return X, np.abs(X[:, :2]).sum(1) - np.abs(X[:, 2:]).sum(1) + 0.1 * rng.standard_normal(n)


def model(learner, **parameters):
    settings = {"n_pieces": 120, "tol": 1e-2, "max_iter": 150, "random_state": 0, "device": "cpu", **parameters}
    if learner in ("PBDL", "apart"):
        return PBDL(1e-3, **settings)
    settings["tol"] = parameters.get("tol", 1e-4)  # regressions would end too soon to be interrupted
    return {"ConvexRegressor": ConvexRegressor, "DCRegressor": DCRegressor}[learner](1e-2, **settings)


def summary(fitted):
    """What two fits are compared by; numbers to the last bit."""
    f = fitted.function_
    parts = [f] if hasattr(f, "slopes") else [f.convex, f.concave]
    history = [[c.iteration, c.objective, c.dual_bound] for c in fitted.result_.history]
    numbers = [float(v) for part in parts for v in np.r_[part.slopes.ravel(), part.intercepts]]
    return {"numbers": numbers, "history": history, "objective": fitted.result_.objective}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("learner")
    parser.add_argument("out")
    parser.add_argument("--checkpoint")
    parser.add_argument("--die-at", type=int)
    parser.add_argument("--differ", action="store_true")
    parser.add_argument("--no-seed", action="store_true")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--die-while-writing", type=int)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    kept = None if arguments.checkpoint is None else Checkpoint(arguments.checkpoint, seconds=0)
    flush, count = checkpoints._flush, 0

    def flush_or_die(path):
        nonlocal count
        count += 1
        if count == arguments.die_while_writing:
            die()
        flush(path)

    checkpoints._flush = flush_or_die
    with distributed.joined() as ranks:
        last = ranks.rank == ranks.size - 1

        def callback(check):
            if arguments.die_at is not None and check.iteration >= arguments.die_at and last:
                die()

        X, y = data(arguments.learner)
        if arguments.differ and last:
            X[3] += 1
        made = model(arguments.learner, checkpoint=kept, callback=callback)
        if arguments.no_seed:
            made.set_params(random_state=None, companion="nca")
        with at_most(1000) if arguments.few else nullcontext():  # only some points are polished
            fitted = made.fit(X, y)
        if arguments.no_seed:
            found = fitted.threshold_, float(fitted.divergence_.paired(X[:1], X[5:6])[0])
            sys.stdout.write(f"threshold {found}\n")  # at once: other ranks write here, too
        if last:  # not the one that wrote its results first in all else
            with open(arguments.out, "w") as file:
                json.dump(summary(fitted), file)


if __name__ == "__main__":
    main()
