"""Code in markdown files, run as it stands."""

import doctest
import re
import shlex
import textwrap

import pytest
from click.testing import CliRunner

from bregnet.cli import main

BLOCK = re.compile(r"^ *```(python|pycon|console)\n(.*?)^ *```", flags=re.DOTALL | re.MULTILINE)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_blocks(path):
    """Run the blocks of a file, one after the other.

    Of ``pycon`` blocks what they say is printed is checked; of ``console`` blocks the lines that begin with
    ``$ bregnet`` are run, and must end well. Returns the names they leave behind, and how many there were.
    """
    names = {"__name__": path.stem}
    blocks = BLOCK.findall(path.read_text(encoding="utf-8"))
    for number, (kind, block) in enumerate(blocks):
        where, block = f"block {number} of {path.name}", textwrap.dedent(block)
        if kind == "pycon":
            _check_session(block, names, where)
            continue
        if kind == "console":
            _run_commands(block, where)
            continue
        try:
            exec(compile(block, where, "exec"), names)
        except Exception as error:
            pytest.fail(f"{where}: {error!r}\n{block}")
    return names, len(blocks)


def _check_session(block, names, where):
    found = []
    test = doctest.DocTestParser().get_doctest(block, names, where, None, 0)
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=found.append, clear_globs=False)
    names.update(test.globs)
    if found:
        pytest.fail(f"{where}:\n{''.join(found)}")


def _run_commands(block, where):
    for line in re.findall(r"^\$ bregnet (.*)", block.replace("\\\n", " "), flags=re.MULTILINE):
        result = CliRunner().invoke(main, shlex.split(line))
        if result.exit_code != 0:
            pytest.fail(f"{where}: bregnet {line} ended with {result.exit_code}\n{result.output}")
