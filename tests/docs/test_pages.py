"""The code on the pages of the documentation runs, and the pages leave nothing public out."""

import importlib
import re
from pathlib import Path

import pytest

from tests.support.markdown_blocks import run_blocks

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "guide").glob("*.md"))
WITHOUT_CODE = {"compared", "index", "measured", "networks"}  # the blocks of the last run alone, below
MODULES = ["bregnet", "bregnet.metrics", "bregnet.datasets", "bregnet.distributed", "bregnet.plotting", "bregnet.nn"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in WITHOUT_CODE], ids=lambda page: page.stem)
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_blocks(page)[1] >= 2


def test_blocks_about_networks_run_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n.*?^```$", (DOCS / "guide" / "networks.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        alone = tmp_path / f"block{number}.md"
        alone.write_text(block)
        run_blocks(alone)


def test_every_page_is_in_the_guide():
    listed = re.search(r"```\{toctree\}.*?\n\n(.*?)```", (DOCS / "guide" / "index.md").read_text(), re.DOTALL)
    assert sorted(listed[1].split()) == [page.stem for page in PAGES if page.stem != "index"]


def test_modules_that_pages_name_exist():
    root, seen = DOCS.parent, 0
    for page in PAGES:
        for path in re.findall(r"`((?:\w+/)*\w+\.py)`", page.read_text()):
            places = [root, root / "bregnet"] if "/" in path else [root / "bregnet", *(root / "bregnet").iterdir()]
            seen += 1
            assert any((place / path).is_file() for place in places), f"{page.name} names {path}"
    assert seen > 60


def named_in_reference():
    """The names under each module of the reference."""
    module, names = "", {}
    for line in (DOCS / "reference.rst").read_text().splitlines():
        if line.startswith(".. module:: "):
            module = line.removeprefix(".. module:: ")
        elif re.fullmatch(r" {3}[\w.]+", line):
            names.setdefault(module, set()).add(line.strip())
    return names


@pytest.mark.parametrize("name", MODULES)
def test_the_reference_has_everything_public(name):
    module, listed = importlib.import_module(name), named_in_reference()[name]
    for each in listed:
        found = module
        for part in each.split("."):
            found = getattr(found, part)
        assert found.__doc__
    if not hasattr(module, "__all__"):
        return
    public = set(module.__all__) - {"__version__"} - {each.split(".")[1] for each in MODULES[1:]}
    assert public <= listed


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, DOCS / "index.md"]:
        for target in re.findall(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`", page.read_text()):
            there = (page.parent / target).resolve()
            if there.parent.name == "gallery":  # made from the examples
                there = DOCS.parent / "examples" / there.name
                assert there.with_suffix(".py").exists(), f"{page.name} links to {target}"
            else:
                assert there.with_suffix(".md").exists(), f"{page.name} links to {target}"
