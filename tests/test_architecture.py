"""Imports go downwards only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bregnet

PACKAGE = Path(__file__).parent.parent / "bregnet"
# subpackages may import those above them in this list, never each other on one line
LAYERS = [
    {"_core", "distributed"},
    {"divergences", "solver", "metrics", "datasets"},
    {"clustering"},
    {"retrieval"},
    {"learners"},
    {"selection"},
    {"io", "plotting", "nn"},
    {"reporting"},
    {"_api", "cli"},
]
ENTRIES = {"__init__", "__main__"}  # they may import any
MOST_AT_THE_TOP = 22


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bregnet":
            parts = node.module.split(".")
            yield from (parts[1:2] or [alias.name for alias in node.names])


def test_imports_go_downwards():
    level = {name: depth for depth, names in enumerate(LAYERS) for name in names}
    seen = 0
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if inside in ENTRIES:
            continue
        for other in imported(path):
            seen += 1
            assert level[other] <= level[inside], f"{path.name} imports {other}, which lies above it"
            if level[other] == level[inside]:
                assert other == inside, f"{path.name} imports {other} from its own layer"
    assert seen > 20


def test_the_top_of_the_package_is_a_short_list_of_rooms():
    found = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert found == set.union(ENTRIES, {"py.typed"}, *LAYERS)
    assert len(found) <= MOST_AT_THE_TOP


def test_importing_the_package_does_not_compile_or_draw_anything():
    code = "import sys, bregnet; bregnet.PBDL; sys.exit(bool({'numba', 'matplotlib', 'jinja2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, check=False).returncode == 0


def test_help_on_the_command_line_does_not_wait_for_the_library():
    code = "import sys; from bregnet.cli import main; sys.exit(bool({'torch', 'sklearn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, check=False).returncode == 0


def test_the_package_has_its_names_and_no_others():
    assert all(getattr(bregnet, name) is not None for name in bregnet.__all__)
    assert set(bregnet.__all__) <= set(dir(bregnet))
    with pytest.raises(AttributeError, match="no attribute 'PBLD'"):
        bregnet.PBLD  # noqa: B018
