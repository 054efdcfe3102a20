import json
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from bregnet import PBDL, Checkpoint, ConvexRegressor, UnreadableFileError
from bregnet.solver import checkpoints
from tests.support.scale_jobs import data, model, summary
from tests.support.selecting import some_slow

ROOT = Path(__file__).parents[2]
quiet = pytest.mark.filterwarnings("ignore:.*not converged:sklearn.exceptions.ConvergenceWarning")


def run(*arguments, n_processes=1, **kwargs):
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_processes)]
    job = ["-m", "tests.support.scale_jobs", *map(str, arguments)]
    command = [sys.executable, *(several if n_processes > 1 else []), *job]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300, **kwargs)


def latest_iteration(folder):
    return int(json.loads((folder / "latest.json").read_text())["folder"].split("-")[1])


class InterruptedFitError(Exception):
    pass


def stops_at(iteration):
    def callback(check):
        if check.iteration >= iteration:
            raise InterruptedFitError

    return callback


@quiet
@pytest.mark.parametrize("learner", ["PBDL", "ConvexRegressor", "DCRegressor"])
@pytest.mark.parametrize("n_pieces", [120, None])
def test_an_interrupted_fit_ends_as_if_it_had_not_been(learner, n_pieces, tmp_path):
    X, y = data(learner, 200)
    settings = {"n_pieces": n_pieces, "max_iter": 120, "tol": 1e-3}
    expected = summary(model(learner).set_params(**settings).fit(X, y))
    kept = Checkpoint(tmp_path / "kept", seconds=0)
    with pytest.raises(InterruptedFitError):
        model(learner).set_params(**settings, checkpoint=kept, callback=stops_at(50)).fit(X, y)
    assert 25 <= latest_iteration(tmp_path / "kept") <= 50
    resumed = model(learner).set_params(**settings, checkpoint=kept).fit(X, y)
    assert summary(resumed) == expected


@quiet
def test_without_a_seed_the_cells_of_the_checkpoint_are_used(tmp_path):
    X, y = data("ConvexRegressor", 200)
    kept = Checkpoint(tmp_path, seconds=0)
    seen = []
    settings = {"random_state": None, "n_pieces": 12, "tol": 1e-9, "max_iter": 60}
    with pytest.raises(InterruptedFitError):
        # early: the function of so few cells may reach the bound of its program before iteration 50
        model("ConvexRegressor", checkpoint=kept).set_params(**settings, callback=stops_at(20)).fit(X, y)
    for _ in range(2):
        seen.append(summary(model("ConvexRegressor", checkpoint=kept).set_params(**settings).fit(X, y)))
    assert seen[0] == seen[1]


@quiet
def test_without_a_seed_a_fit_goes_on_with_the_same_map(tmp_path):
    X, y = data("PBDL", 200)
    kept = Checkpoint(tmp_path, seconds=0)
    settings = {"random_state": None, "n_pieces": 12, "tol": 1e-9, "max_iter": 60, "feature_map": "rbf"}
    with pytest.raises(InterruptedFitError):
        model("PBDL", checkpoint=kept).set_params(**settings, callback=stops_at(20)).fit(X, y)
    resumed = [summary(model("PBDL", checkpoint=kept).set_params(**settings).fit(X, y)) for _ in range(2)]
    assert resumed[0] == resumed[1]


@pytest.mark.parametrize("learner", some_slow(["PBDL", "DCRegressor"], always=["PBDL"]))
def test_a_killed_fit_is_resumed_to_the_same_result(learner, tmp_path):
    assert run(learner, tmp_path / "expected").returncode == 0
    killed = run(learner, tmp_path / "out", "--checkpoint", tmp_path / "kept", "--die-at", 25)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert run(learner, tmp_path / "out", "--checkpoint", tmp_path / "kept").returncode == 0
    assert (tmp_path / "out").read_text() == (tmp_path / "expected").read_text()


# the fifth is of a state, the sixth of the note that names the latest
@pytest.mark.parametrize("number", some_slow([5, 6], always=[]))
def test_a_kill_while_writing_leaves_the_checkpoint_before(number, tmp_path):
    assert run("PBDL", tmp_path / "expected").returncode == 0
    killed = run("PBDL", tmp_path / "out", "--checkpoint", tmp_path / "kept", "--die-while-writing", number)
    assert killed.returncode == -signal.SIGKILL
    assert latest_iteration(tmp_path / "kept") == 10  # the second of them
    header, tensors = checkpoints.CheckpointWriter(Checkpoint(tmp_path / "kept"))._found
    assert header["n_iter"] == 10
    assert tensors["slacks"].isfinite().all()
    assert run("PBDL", tmp_path / "out", "--checkpoint", tmp_path / "kept").returncode == 0
    assert (tmp_path / "out").read_text() == (tmp_path / "expected").read_text()


@pytest.fixture
def written(tmp_path):
    X, y = data("ConvexRegressor", 80)
    kept = Checkpoint(tmp_path / "kept", seconds=0)
    with pytest.raises(InterruptedFitError):
        ConvexRegressor(1e-3, n_pieces=9, random_state=0, tol=1e-4, checkpoint=kept, callback=stops_at(50)).fit(X, y)
    return X, y, kept


def test_other_data_or_parameters_are_refused(written):
    X, y, kept = written
    same = {"n_pieces": 9, "random_state": 0, "tol": 1e-4, "checkpoint": kept}
    others = [{"monotone": 1}, {"n_pieces": 12}, {"random_state": 1}]
    for alpha, changed, more in ((2e-3, X, {}), (1e-3, X + np.eye(80, 4), {}), *((1e-3, X, more) for more in others)):
        with pytest.raises(ValueError, match=r"checkpoint must be for the same data and parameters, got '.*kept'"):
            ConvexRegressor(alpha, **{**same, **more}).fit(changed, y)
    with pytest.raises(ValueError, match="checkpoint must be for the same data and parameters"):
        ConvexRegressor(1e-3, **same).fit(X[:-1], y[:-1])
    again = Checkpoint(kept.path, resume=False)
    ConvexRegressor(2e-3, n_pieces=9, random_state=0, checkpoint=again).fit(X, y)


def test_damaged_checkpoints_are_refused(written):
    X, y, kept = written
    folder = Path(kept.path)
    make = ConvexRegressor(1e-3, n_pieces=9, random_state=0, tol=1e-4, checkpoint=kept)
    (file,) = folder.glob("iteration-*/*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableFileError, match="damaged"):
        clone(make).fit(X, y)
    file.unlink()
    with pytest.raises(UnreadableFileError, match="missing"):
        clone(make).fit(X, y)
    file.write_bytes(whole)
    note = folder / "latest.json"
    wrong = '{"folder": "../elsewhere", "ranks": 1, "finished": false}'
    for text in ("", "{}", '{"folder": "x", "ranks": "y", "finished": false}', "[1]", wrong):
        before = note.read_text()
        note.write_text(text)
        with pytest.raises(UnreadableFileError, match="does not name a checkpoint"):
            clone(make).fit(X, y)
        note.write_text(before)
    note.write_text(note.read_text().replace('"ranks": 1', '"ranks": 2'))
    with pytest.raises(ValueError, match="as many processes as wrote it, got 1 for the 2"):
        clone(make).fit(X, y)


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_fit(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_tensors", full)
    X, y = data("ConvexRegressor", 80)
    kept = Checkpoint(tmp_path, seconds=0)
    with pytest.warns(UserWarning, match=r"could not be written.*No space left"):
        fitted = ConvexRegressor(n_pieces=9, random_state=0, checkpoint=kept).fit(X, y)
    assert list(tmp_path.iterdir()) == []
    assert summary(fitted) == summary(ConvexRegressor(n_pieces=9, random_state=0).fit(X, y))


def test_only_the_latest_checkpoint_is_kept(tmp_path):
    X, y = data("PBDL", 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PBDL(n_pieces=30, max_iter=60, checkpoint=Checkpoint(tmp_path, seconds=0), random_state=0).fit(X, y)
    assert len(list(tmp_path.glob("iteration-*"))) == 1
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("value", [3, Checkpoint("x", seconds=-1), Checkpoint("x", resume="yes"), b"x"])
def test_wrong_checkpoints_are_refused(value):
    with pytest.raises((TypeError, ValueError), match="checkpoint"):
        ConvexRegressor(checkpoint=value).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])


def test_partial_fits_keep_no_checkpoint(tmp_path):
    X, y = data("ConvexRegressor", 80)
    with pytest.raises(ValueError, match="checkpoint must be None for partial_fit"):
        ConvexRegressor(n_pieces=9, checkpoint=tmp_path).partial_fit(X, y)


@quiet
@pytest.mark.parametrize("kind", ["pairs", "triplets"])
def test_pairs_and_triplets_are_resumed_too(kind, tmp_path):
    X, y = data("PBDL", 60)
    rng = np.random.default_rng(0)

    def fitted(**parameters):
        made = PBDL(1e-3, n_pieces=20, tol=1e-3, max_iter=90, random_state=0, **parameters)
        if kind == "pairs":
            return made.fit_pairs(X, pairs, y[pairs[:, 0]] == y[pairs[:, 1]])
        return made.fit_triplets(X, triplets)

    pairs = rng.integers(2, 60, (150, 2))
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    near, far = (rng.permutation(np.flatnonzero(y == label))[:10] for label in (0, 1))
    triplets = np.stack([near[:9], near[1:10], far[:9]], 1)
    expected = summary(fitted())
    kept = Checkpoint(tmp_path, seconds=0)
    with pytest.raises(InterruptedFitError):
        fitted(checkpoint=kept, callback=stops_at(50))
    assert summary(fitted(checkpoint=kept)) == expected


@quiet
def test_fewer_iterations_than_were_done_are_still_certified(tmp_path):
    X, y = data("ConvexRegressor", 80)
    kept = Checkpoint(tmp_path, seconds=0)
    settings = {"n_pieces": 9, "random_state": 0, "tol": 1e-4, "checkpoint": kept}
    with pytest.raises(InterruptedFitError):
        ConvexRegressor(1e-3, **settings, callback=stops_at(25)).fit(X, y)
    for max_iter in (22, 10):
        fitted = ConvexRegressor(1e-3, **settings, max_iter=max_iter).fit(X, y)
        assert fitted.result_.history[-1].iteration == fitted.n_iter_ >= max_iter
        assert fitted.score(X, y) > 0.5


@quiet
def test_a_fit_that_has_ended_gives_way_to_another(tmp_path):
    X, y = data("ConvexRegressor", 80)
    kept = Checkpoint(tmp_path, seconds=0)
    settings = {"n_pieces": 9, "random_state": 0, "tol": 1e-4, "max_iter": 60}
    for alpha, rows in ((1e-3, 80), (1e-2, 80), (1e-2, 79)):
        expected = summary(ConvexRegressor(alpha, **settings).fit(X[:rows], y[:rows]))
        for _ in range(2):  # the second goes on from the end of the first
            fitted = ConvexRegressor(alpha, checkpoint=kept, **settings).fit(X[:rows], y[:rows])
            assert summary(fitted) == expected


def test_a_real_failure_to_write_is_a_warning(tmp_path):
    import resource

    X, y = data("ConvexRegressor", 200)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    make = ConvexRegressor(n_pieces=60, random_state=0, checkpoint=Checkpoint(tmp_path, seconds=0))
    expected = summary(clone(make).set_params(checkpoint=None).fit(X, y))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        with pytest.warns(UserWarning, match=r"could not be written"):
            fitted = make.fit(X, y)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert summary(fitted) == expected
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_checkpoint_that_is_there(written, monkeypatch):
    X, y, kept = written
    before = sorted(str(path) for path in Path(kept.path).rglob("*"))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_tensors", full)
    again = Checkpoint(kept.path, seconds=0, resume=False)
    model = ConvexRegressor(1e-3, n_pieces=9, random_state=0, checkpoint=again, callback=stops_at(25))
    with pytest.warns(UserWarning, match="could not be written"), pytest.raises(InterruptedFitError):
        model.fit(X, y)
    assert sorted(str(path) for path in Path(kept.path).rglob("*")) == before
