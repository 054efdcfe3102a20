"""What is said about compiling, and when."""

import importlib.util
import logging

import numba
import pytest
from numba.core import event

from bregnet._core.compiling import Notice
from bregnet.cli.logs import log_as_lines


def imported_anew(path, name="bregnet.made_up"):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def module(tmp_path):
    """A module with a function that was not compiled yet, after the notice of this process itself."""
    paths = tmp_path / "spent.py", tmp_path / "made_up.py"
    for path in paths:
        path.write_text("from bregnet._core.compiling import compiled\n\n@compiled\ndef twice(x):\n    return 2 * x\n")
    imported_anew(paths[0]).twice(1)
    return paths[1]


def test_a_function_that_is_compiled_is_announced_once_and_one_of_the_cache_is_not(module, caplog):
    caplog.set_level(logging.INFO, "bregnet")
    with event.install_listener("numba:compile", Notice()):
        first = imported_anew(module)
        assert (first.twice(2), first.twice(0.5)) == (4, 1.0)
    assert [record.name for record in caplog.records if "once after an installation" in record.message] == ["bregnet"]
    caplog.clear()
    with event.install_listener("numba:compile", Notice()):
        assert imported_anew(module).twice(3) == 6
    assert not caplog.records


def test_functions_of_others_are_not_announced(module, caplog):
    caplog.set_level(logging.INFO, "bregnet")
    with event.install_listener("numba:compile", Notice()):
        assert imported_anew(module, "others.made_up").twice(2) == 4
    assert not caplog.records


def test_functions_without_a_module_are_compiled_as_ever():
    names = {}
    exec("def twice(x): return 2 * x", names)  # as numba makes the constructors of its classes
    with event.install_listener("numba:compile", Notice()):
        assert numba.njit(names["twice"])(2) == 4


def test_without_a_cache_every_run_compiles(module, caplog):
    caplog.set_level(logging.INFO, "bregnet")
    module.write_text(module.read_text().replace("import compiled", "import compiled\nimport numba"))
    module.write_text(module.read_text().replace("@compiled", "@numba.njit"))
    with event.install_listener("numba:compile", Notice()):
        imported_anew(module).twice(2)
    assert "in every run, since no cache can be written" in caplog.text


@pytest.mark.parametrize("quiet", [False, True])
def test_commands_print_what_is_logged_unless_quiet(quiet, capsys):
    logger = logging.getLogger("bregnet")
    before = logger.level, list(logger.handlers)
    with log_as_lines(quiet=quiet):
        logger.info("compiling")
    assert capsys.readouterr() == ("", "" if quiet else "compiling\n")
    assert (logger.level, logger.handlers) == before
