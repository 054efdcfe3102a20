"""The code of the README runs as it stands, one block after the other."""

from pathlib import Path

from tests.support.markdown_blocks import run_blocks

README = Path(__file__).parents[2] / "README.md"


def test_every_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names, n_blocks = run_blocks(README)
    assert n_blocks >= 3
    assert names["ids"].shape == names["divergences"].shape
    assert set(names["clusters"]) == {0, 1, 2}
    assert "converged: certified gap" in capsys.readouterr().out
