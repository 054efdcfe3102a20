"""The command line in this process, and files for it."""

import numpy as np
import pandas as pd
from click.testing import CliRunner

from bregnet.cli import main

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 3))
Y = X[:, 0] ** 2 - np.abs(X[:, 1]) + 0.1 * RNG.standard_normal(60)
LABELS = np.where(X[:, 0] > 0, "high", "low")
NAMES = np.array([f"row {number}, {number % 7}" for number in range(60)])  # a comma, for CSV
FEW = ("--n-pieces", "6", "--tol", "0.1")
SAME = {"n_pieces": 6, "tol": 0.1, "random_state": 0}


def run(*arguments, code=0, given=None):
    """The command, which must end with an exit code; no error but those of the command line may leave it."""
    result = CliRunner().invoke(main, [str(each) for each in arguments], input=given)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def error_of(*arguments, code=1):
    """What a command says that must fail: in one line, after what it said it would do."""
    result = run(*arguments, code=code)
    *before, last = result.stderr.splitlines()
    if code != 2:
        assert last.startswith("error: ")
        assert all(line.startswith("fitting ") for line in before)
    return last


def write_files(folder):
    """Tables and arrays of the same rows."""
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.assign(y=Y).to_csv(folder / "numbers.csv", index=False)
    frame.assign(y=Y).to_parquet(folder / "numbers.parquet")
    frame.assign(kind=LABELS).to_csv(folder / "labels.csv", index=False)
    frame.assign(kind=LABELS, name=NAMES).to_csv(folder / "named.csv", index=False)
    np.savez(folder / "numbers.npz", X=X, y=Y, kind=LABELS)
    np.save(folder / "X.npy", X)
    np.save(folder / "Y.npy", Y)
    np.save(folder / "labels.npy", LABELS)
