"""What is missing without the extras is said, with the extra that has it; the core does without."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
WITHOUT = """\
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder


class Others(PathFinder):
    @classmethod
    def find_spec(cls, name, *more):
        return None if name.split(".")[0] in {packages} else super().find_spec(name, *more)


sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Others]
"""
# what no part of the core may import
EXTRAS = (
    "click",
    "jinja2",
    "markupsafe",
    "matplotlib",
    "pandas",
    "pyarrow",
    "lancedb",
    "duckdb",
    "qdrant_client",
    "onnx",
    "pytorch_metric_learning",
)


def without(packages, code, cwd, *arguments):
    """Code in a process that cannot import some packages."""
    program = WITHOUT.format(packages=packages) + code
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(cwd)},
        capture_output=True,
        text=True,
        check=False,
    )


def command(packages, cwd, *arguments):
    """The program `bregnet` without some packages."""
    return without(packages, "from bregnet.__main__ import main\nmain()", cwd, *arguments)


def test_the_five_lines_of_the_readme_need_no_extra(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    show = "\nprint(model._repr_html_()[:4], index._repr_html_()[:4])\n"
    done = without(EXTRAS, "\n".join(blocks[:2]) + show, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "converged: certified gap" in done.stdout
    assert done.stdout.splitlines()[-1] == "<div <div"


@pytest.mark.parametrize(
    ("missing", "call", "message"),
    [
        (
            "matplotlib",
            "bregnet.plotting.divergence_map('sqeuclidean', [[0.0], [1.0]])",
            "bregnet.plotting needs the package matplotlib: pip install 'bregnet[report]'",
        ),
        (
            "matplotlib",
            "bregnet.report('sqeuclidean', [[0.0], [1.0]], [0, 1])",
            "bregnet.report needs the package matplotlib: pip install 'bregnet[report]'",
        ),
        (
            "jinja2",
            "bregnet.report('sqeuclidean', [[0.0], [1.0]], [0, 1])",
            "bregnet.report needs the package jinja2: pip install 'bregnet[report]'",
        ),
        (
            "onnx",
            "bregnet.to_onnx(bregnet.MaxAffine([[1.0]], [0.0]))",
            "bregnet.to_onnx needs the package onnx: pip install 'bregnet[onnx]'",
        ),
    ],
)
def test_functions_name_the_extra(tmp_path, missing, call, message):
    done = without([missing], f"import bregnet\n{call}", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {message}"


def test_the_program_names_the_extra(tmp_path):
    done = command(["click"], tmp_path, "demo")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: the command line needs the package click: pip install 'bregnet[cli]'\n"
    (tmp_path / "rows.csv").write_text("a,kind\n1,x\n2,y\n")
    done = command(["pandas"], tmp_path, "fit", "rows.csv", "--target", "kind", "-o", "model")
    assert done.returncode == 1
    assert done.stderr == "error: reading rows.csv needs the package pandas: pip install 'bregnet[cli]'\n"


def test_a_report_that_cannot_be_made_is_refused_before_the_fit(tmp_path):
    np.savez(tmp_path / "rows.npz", X=np.eye(4), y=np.arange(4.0))
    fit = ("fit", "rows.npz", "-o", "model", "--report", "page.html")
    done = command(["matplotlib"], tmp_path, *fit)
    assert done.returncode == 1
    assert done.stderr == "error: a report needs the package matplotlib: pip install 'bregnet[report]'\n"
    assert not (tmp_path / "model").exists()
    done = command(["matplotlib", "jinja2", "pandas"], tmp_path, *fit[:-2], "--quiet")  # arrays need no tables
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model").is_file()


def test_all_has_what_the_other_extras_have():
    """The extras that users choose among; those of developers hold all of them."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def held(name):
        found = set()
        for requirement in extras[name]:
            inner = re.fullmatch(r"bregnet\[(.*)\]", requirement)
            found |= set.union(*map(held, inner[1].split(","))) if inner else {requirement}
        return found

    assert held("all") == set.union(
        *(held(name) for name in ("report", "cli", "excel", "tables", "losses", "onnx", "stores"))
    )
    assert held("report") < held("cli")
    assert held("all") < held("dev")
    assert held("all") < held("docs")
