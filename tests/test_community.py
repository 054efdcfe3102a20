"""The files that a public project has say what is so."""

import re
import tomllib
from pathlib import Path

import bregnet

ROOT = Path(__file__).parents[1]


def test_the_citation_has_the_version_and_the_license():
    text = (ROOT / "CITATION.cff").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert re.search(r"^version: (\S+)$", text, re.MULTILINE)[1] == bregnet.__version__
    assert re.search(r"^license: (\S+)$", text, re.MULTILINE)[1] == project["license"]


def test_the_contributing_guide_names_what_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    targets = re.findall(r"^make (\S+)", text, re.MULTILINE)
    rules = (ROOT / "Makefile").read_text()
    assert len(targets) == 4
    assert all(re.search(rf"^{target}:", rules, re.MULTILINE) for target in targets)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) >= 4
    assert all((ROOT / link).exists() for link in links)
