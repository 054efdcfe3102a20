"""Public names, documented paths, and results that must not change when the code behind them is moved."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import bregnet
from tests.support import pinned_results

ROOT = Path(__file__).parent.parent
PUBLIC = {
    "bregnet": """
        PBDL BregmanNCA ConvexRegressor DCRegressor PBDLCV ConvexRegressorCV DCRegressorCV FeatureMap Check Result
        Checkpoint BregmanDivergence MappedDivergence divergence BregmanIndex BregmanNearestNeighbors
        BregmanKNeighborsClassifier BregmanKNeighborsRegressor BregmanRanker BregmanKMeans BregmanMixture Generator
        GeneratorSum MaxAffine DifferenceOfConvex Quadratic SquaredEuclidean KullbackLeibler ItakuraSaito Logistic
        save load to_onnx UnreadableFileError report Report datasets distributed metrics nn plotting __version__
    """,
    "bregnet.metrics": """
        mean_average_precision map_at_r r_precision precision_at_k recall_at_k retrieval_auc purity
    """,
    "bregnet.datasets": "load paper_folds Fold PaperSet PAPER_SETS",
    "bregnet.distributed": "joined current Ranks RankLostError",
    "bregnet.plotting": """
        convergence feature_bounds predictions residuals partial_dependence divergence_matrix
        divergence_map precision_recall neighbors neighbours
    """,
    "bregnet.nn": "BregmanKNN LearnableMaxAffine BregmanDistance",
}
# deep paths that pages, or docstrings of public names, have named for import
DOCUMENTED = [
    "bregnet.cli.main",
    "bregnet.clustering.BregmanKMeans",
    "bregnet.inner_product.InnerProductForm",
    "bregnet.mixture.BregmanMixture",
    "bregnet.neighbors.BregmanKNeighborsClassifier",
    "bregnet.neighbors.BregmanKNeighborsRegressor",
    "bregnet.neighbors.BregmanNearestNeighbors",
    "bregnet.ranking.BregmanRanker",
    "bregnet.solver.admm.Iteration",
    "bregnet.solver.admm.Options",
    "bregnet.solver.bregman.BregmanLearning",
    "bregnet.solver.bregman.Labels",
    "bregnet.solver.bregman.Pairs",
    "bregnet.solver.geometry.Geometry",
    "bregnet.solver.margins.Margins",
    "bregnet.solver.penalty.Penalty",
    "bregnet.solver.problem.Problem",
    "bregnet.solver.result.Result",
    "bregnet.solver.solve.solve",
]


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module):
    found, expected = importlib.import_module(module), PUBLIC[module].split()
    assert all(getattr(found, name) is not None for name in expected)
    if hasattr(found, "__all__"):
        assert set(expected) <= set(found.__all__)  # what is added must be in the reference, which has its own test


@pytest.mark.parametrize("path", DOCUMENTED)
def test_documented_paths_can_be_imported(path):
    module, name = path.rsplit(".", 1)
    assert getattr(importlib.import_module(module), name) is not None
    found = bregnet
    for part in path.split(".")[1:]:
        found = getattr(found, part)
    assert found is getattr(importlib.import_module(module), name)


def paths_in_documents():
    """What the pages, the README, the examples and docstrings name by a dotted path or import, with where they do."""
    pages = [*ROOT.glob("docs/guide/*.md"), *ROOT.glob("docs/*.*"), ROOT / "README.md"]
    for page in [*pages, *ROOT.glob("examples/*.py"), *ROOT.glob("bregnet/**/*.py")]:
        text = page.read_text()
        for path in re.findall(r":(?:class|func|mod|meth):`~?(bregnet\.[\w.]+)`", text):
            yield page.name, path
        for path in re.findall(r"\{(?:class|func|mod|meth)\}`~?(bregnet\.[\w.]+)`", text):
            yield page.name, path
        for module, names in re.findall(r"^(?:\s*>>> )?from (bregnet[\w.]*) import ([\w, ]+)$", text, re.MULTILINE):
            if page.suffix != ".py" or page.parent.name == "examples":
                yield from ((page.name, f"{module}.{name.split()[0]}") for name in names.split(","))


def test_documents_name_what_there_is():
    found = set(paths_in_documents())
    assert len(found) > 60
    for page, path in sorted(found):
        value = bregnet
        for number, part in enumerate(path.split(".")[1:], start=2):
            if not hasattr(value, part):
                importlib.import_module(".".join(path.split(".")[:number]))
            value = getattr(value, part)
        assert value is not None, f"{page} names {path}"


def test_results_are_the_same_every_time(tmp_path, capsys):
    file = str(tmp_path / "results.npz")
    assert pinned_results.main(["--write", file]) == 0
    assert pinned_results.main(["--compare", file]) == 0
    with np.load(file) as stored:
        results = dict(stored)
    assert len(results) > 80
    results["BregmanKMeans centres"] = np.nextafter(results["BregmanKMeans centres"], 1)
    np.savez(file, **results)
    capsys.readouterr()
    assert pinned_results.main(["--compare", file]) == 1
    assert capsys.readouterr().out.startswith("BregmanKMeans centres: 9 of 9 values differ")
