"""Every example of the gallery runs, and what its text says is so."""

import runpy
from pathlib import Path

import matplotlib as mpl
import pytest
import torch

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("plot_*.py"))


def learned_divergence(names):
    assert names["model"].result_.converged
    assert names["precision"]["learned"] > names["precision"]["Euclid"] + 0.1
    assert (names["model"].feature_bounds_ < 1e-3).any()  # some are switched off


def certificate(names):
    result = names["model"].result_
    assert result.gap <= 1e-6
    assert result.n_interior > 0
    assert all(check.dual_bound <= result.objective * (1 + 1e-9) for check in result.history)
    assert names["gaps"][0] > 10 * names["gaps"][-1]
    assert max(names["precisions"]) - min(names["precisions"]) < 0.01  # retrieval had settled


def choosing(names):
    search = names["search"]
    assert search.alpha_ in names["alphas"]
    assert search.n_fits_ == 3 * len(names["alphas"])
    assert names["unseen"] > 0.95


def asymmetric_search(names):
    assert all(share < 0.95 for share in names["shared"].values())  # different questions
    assert names["largest_error"] < 1e-12
    assert names["recalls"][1] < names["recalls"][4] <= names["recalls"][8]
    assert names["recalls"][8] > 0.99


def regression(names):
    assert names["convex"].result_.converged
    assert 2 <= len(names["pieces"]) < 60  # few of the 120 are needed
    assert names["r2_of_waves"] > 0.98
    assert names["slopes_of_second"].min() > -1e-6  # monotone


def clusters(names):
    rand = names["rand"]
    assert rand["kl"] > rand["sqeuclidean"] + 0.5
    assert rand["learned"] > rand["Euclid"]


def fine_tuning(names):
    euclid, start, tuned = names["precision"].values()
    assert euclid < start < tuned
    assert names["losses"][-1] < names["losses"][0]


def report(names):
    made = names["report"]
    assert made.numbers["map"] > made.numbers["baseline_map"]
    assert "Wines by grower" in made.html
    assert "http://" not in made.html.replace("http://www.w3.org", "")


CHECKS = {
    check.__name__: check
    for check in (
        learned_divergence,
        certificate,
        choosing,
        asymmetric_search,
        regression,
        clusters,
        fine_tuning,
        report,
    )
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    with mpl.rc_context(), torch.random.fork_rng():
        plt.switch_backend("agg")
        names = runpy.run_path(str(path))
        plt.close("all")
    CHECKS[path.stem.split("_", 2)[2]](names)
    assert capsys.readouterr().out  # it says what it found
