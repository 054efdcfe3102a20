import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch

from bregnet import PBDL, ConvexRegressor, distributed
from tests.learners.test_checkpoints import ROOT, run
from tests.support.scale_jobs import data
from tests.support.selecting import some_slow

SLOW = pytest.mark.slow  # each starts several processes, seconds for one of which go by until it works


@pytest.mark.parametrize("learner", some_slow(["PBDL", "ConvexRegressor", "DCRegressor"], always=["PBDL"]))
def test_two_processes_fit_as_one(learner, tmp_path):
    assert run(learner, tmp_path / "one").returncode == 0
    assert run(learner, tmp_path / "two", n_processes=2).returncode == 0
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("one", "two"))
    assert two["objective"] == pytest.approx(one["objective"], rel=1e-5)
    for here, there in zip(one["history"], two["history"], strict=True):
        assert here[0] == there[0]
        assert there[1:] == pytest.approx(here[1:], rel=1e-4)


@SLOW
def test_a_rank_that_dies_ends_the_job_which_can_be_resumed(tmp_path):
    assert run("PBDL", tmp_path / "expected", n_processes=2).returncode == 0
    kept = ("--checkpoint", tmp_path / "kept")
    killed = run("PBDL", tmp_path / "out", *kept, "--die-at", 75, n_processes=2)
    assert killed.returncode not in (0, None)
    # whichever is first to notice
    assert "RankLostError" in killed.stderr or "Signal 9 (SIGKILL)" in killed.stderr
    assert not (tmp_path / "out").exists()
    assert run("PBDL", tmp_path / "out", *kept, n_processes=2).returncode == 0
    assert (tmp_path / "out").read_text() == (tmp_path / "expected").read_text()


def test_the_ranks_that_are_left_say_so(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = [sys.executable, "-m", "tests.support.scale_jobs", "ConvexRegressor", str(tmp_path / "out"), "--die-at", "25"]
    processes = []
    for rank in "01":  # without a launcher, which might be the first to notice
        there = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": rank}
        environment = {**os.environ, **there, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"}
        processes.append(subprocess.Popen(job, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True))
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [1, -signal.SIGKILL]
    assert "RankLostError: rank 0 of 2 lost another rank: start all of them again" in errors[0]


@SLOW
def test_a_rank_without_tight_points_has_its_part_in_polishing(tmp_path):
    done = run("apart", tmp_path / "two", "--few", n_processes=2)
    assert done.returncode == 0, done.stderr[-2000:]


@SLOW
def test_ranks_that_differ_are_told(tmp_path):
    done = run("ConvexRegressor", tmp_path / "out", "--differ", n_processes=2)
    assert done.returncode != 0
    assert "X, y and parameters must be the same on every process" in done.stderr


@SLOW
def test_without_a_seed_ranks_end_with_the_same_estimator(tmp_path):
    done = run("PBDL", tmp_path / "out", "--no-seed", n_processes=2)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if "threshold" in line]
    assert len(lines) == 2
    assert lines[0] == lines[1]


@SLOW
def test_a_checkpoint_of_other_data_is_refused_by_all(tmp_path):
    kept = ("--checkpoint", tmp_path / "kept")
    assert run("PBDL", tmp_path / "out", *kept, "--die-at", 75, n_processes=2).returncode != 0
    refused = run("apart", tmp_path / "out", *kept, n_processes=2)
    assert refused.returncode != 0
    assert "checkpoint must be for the same data and parameters" in refused.stderr


class Two(distributed.Ranks):
    """Rank 0 of two as long as nobody talks."""

    size = 2


@pytest.fixture
def shared():
    token = distributed._current.set(Two())
    yield
    distributed._current.reset(token)


@pytest.mark.usefixtures("shared")
def test_what_cannot_be_shared_is_refused():
    X, y = data("PBDL", 40)
    with pytest.raises(ValueError, match="n_pieces must be a number below that of the distinct points, 39"):
        PBDL().fit(X, y)
    with pytest.raises(ValueError, match="pairs and triplets must be learned by one process"):
        PBDL(n_pieces=5).fit_triplets(X, [[0, 2, 3]])
    with pytest.raises(ValueError, match="partial_fit must run in one process"):
        PBDL(n_pieces=5).partial_fit(X, y)


def test_shares_cover_all_points_once():
    for n in (0, 1, 7, 100):
        for size in (1, 2, 3, 8):
            found = []
            for rank in range(size):
                ranks = distributed.Ranks()
                ranks.rank, ranks.size = rank, size
                found.append(ranks.share(n))
            assert [i for share in found for i in range(n)[share]] == list(range(n))
            sizes = [share.stop - share.start for share in found]
            assert max(sizes) - min(sizes) <= 1


def test_alone_there_is_nothing_to_exchange():
    with distributed.joined() as ranks:
        assert (ranks.rank, ranks.size) == (0, 1)
        assert ranks is distributed.current()
        values = torch.arange(3.0)
        for exchange in (ranks.sum, ranks.largest, ranks.smallest, ranks.first):
            assert exchange(values) is values
        assert ranks.agreed(1.0, 2.0) == (1.0, 2.0)
        assert ranks.any(True)
        assert not ranks.any(False)


def test_a_group_of_one_gives_the_same_numbers(tmp_path):
    import torch.distributed as dist

    X, y = data("ConvexRegressor", 60)
    make = ConvexRegressor(n_pieces=6, random_state=0)
    expected = make.fit(X, y).function_.slopes
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        with distributed.joined() as ranks:
            assert ranks.size == 1
            found = make.fit(X, y).function_.slopes
            assert ranks.n_exchanges > 50
            assert ranks.seconds > 0
        assert dist.is_initialized()  # it was there before
    finally:
        dist.destroy_process_group()
    np.testing.assert_array_equal(found, expected)
