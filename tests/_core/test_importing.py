import gc
import sys

import pytest

from bregnet._core.importing import imported


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Modules that say whether garbage was collected while they were imported."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "module_that_looks.py").write_text("import gc\ncollected = gc.isenabled()\n")
    (tmp_path / "module_that_fails.py").write_text("raise ValueError\n")
    yield
    gc.enable()
    sys.modules.pop("module_that_looks", None)


@pytest.mark.parametrize("collects", [True, False])
def test_collections_pause_and_are_then_as_before(folder, collects):
    if not collects:
        gc.disable()
    assert not imported("module_that_looks").collected
    assert gc.isenabled() is collects
    with pytest.raises(ValueError):  # noqa: PT011 - that of the module
        imported("module_that_fails")
    assert gc.isenabled() is collects
