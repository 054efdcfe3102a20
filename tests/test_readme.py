"""The code of the README runs as it stands, one block after the other."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_every_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 4
    names = {}
    for number, block in enumerate(blocks):
        try:
            exec(compile(block, f"README block {number}", "exec"), names)
        except Exception as error:
            pytest.fail(f"block {number} of the README: {error!r}\n{block}")
    assert names["ids"].shape == names["divergences"].shape
    assert set(names["clusters"]) == {0, 1, 2}
    assert "converged: certified gap" in capsys.readouterr().out
