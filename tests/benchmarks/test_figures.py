"""The stored results, the command that measures what is missing, and the pages that are written from them."""

import json

import numpy as np
import pytest

from benchmarks import figures, render, rows
from benchmarks.figures import JOBS, PAPER, Work, earlier, wanted
from benchmarks.metric_learning import COUNTS, summary
from benchmarks.render import FIGURES, Figure, pivot, table
from benchmarks.rows import ROOT, WITHOUT, Store, code_hash

MEASURED = ("bregnet/solver",)


def test_results_are_found_again_and_replaced(tmp_path):
    store = Store("search", tmp_path)
    store.add({"d": 16}, [{"recall": np.float64(0.5)}], MEASURED)
    store.add({"d": 64}, [{"recall": 1.0}], MEASURED)
    Store("search", tmp_path).add({"d": 16}, [{"recall": np.array([0.75, 1.0])}], MEASURED, date="2020-01-01")
    again = Store("search", tmp_path)
    assert [record["parameters"]["d"] for record in again] == [16, 64]
    found = again.get({"d": 16})
    assert found["rows"] == [{"recall": [0.75, 1.0]}]
    assert (found["job"], found["date"], found["code"]) == ("search", "2020-01-01", code_hash(*MEASURED))
    assert {"cpu", "cores"} <= found["machine"].keys()
    assert {"python", "torch", "numpy", "scikit-learn", "faiss-cpu"} <= found["versions"].keys()
    assert again.get({"d": 32}) is None
    assert [file.name for file in tmp_path.iterdir()] == ["search.jsonl"]


def test_what_another_run_has_stored_meanwhile_is_kept(tmp_path):
    one, other = Store("search", tmp_path), Store("search", tmp_path)
    one.add({"d": 16}, [], MEASURED)
    other.add({"d": 64}, [], MEASURED)
    assert len(Store("search", tmp_path)) == 2


def test_the_hash_is_of_statements_in_all_named_files(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "ROOT", tmp_path)
    (tmp_path / "room").mkdir()

    def found(text, *measured):
        (tmp_path / "room" / "a.py").write_text(text)
        (tmp_path / "b.py").write_text("b = 1")
        rows.code_hash.cache_clear()
        rows._statements.cache_clear()
        return rows.code_hash(*measured)

    plain = found("def f(x):\n    return x", "room")
    assert plain == found('"""A module."""\n\ndef f(x):  # why\n    """What."""\n    return x', "room")
    assert plain != found("def f(x):\n    return -x", "room")
    assert plain != found("def f(x):\n    return x", "room", "b.py")
    assert plain != found("", "room", f"{WITHOUT}room/a.py")
    assert found("a = 1", "room", f"{WITHOUT}room/a.py") == found("a = 2", "room", f"{WITHOUT}room/a.py")
    with pytest.raises(FileNotFoundError, match="none"):
        found("", "none.py")
    rows.code_hash.cache_clear()
    rows._statements.cache_clear()


@pytest.mark.parametrize("job", [*JOBS, PAPER])
def test_jobs_measure_code_that_is_there_and_tell_their_work_apart(job):
    pieces = list(wanted(job, False))
    assert len({json.dumps(parameters) for parameters, _ in pieces}) == len(pieces)
    for path in {path for _, measured in pieces for path in measured}:
        assert (ROOT / path.removeprefix(WITHOUT)).exists(), path
    for parameters, measured in pieces:
        assert figures.measured_by(job, parameters) == measured


@pytest.fixture
def fake(monkeypatch):
    """A job of two commands, which count how often they are run; those in `failing` fail."""
    state = {"ran": [], "failing": set()}

    def run(command, **options):
        option, out = command[3], command[-1]
        state["ran"].append(option)
        if option not in state["failing"]:
            content = {"machine": {"cpu": "a", "cores": 1}, "versions": {}, "tables": {"sizes": [{"n": option}]}}
            with open(out, "w") as file:
                json.dump(content, file)
        return type("Done", (), {"returncode": int(option in state["failing"])})

    monkeypatch.setattr(figures.subprocess, "run", run)
    monkeypatch.setattr(rows, "commit", lambda measured: "abc")
    monkeypatch.setitem(JOBS, "sizes", [Work(("sizes", option), MEASURED) for option in ("one", "two")])
    return state


def test_figures_goes_on_where_it_was_and_runs_again_what_has_changed(fake, tmp_path, monkeypatch, capsys):
    arguments = ["--only", "sizes", "--folder", str(tmp_path)]
    fake["failing"] = {"two"}
    assert figures.main(arguments) == 1
    output = capsys.readouterr()
    assert "FAILED: python -m benchmarks.sizes two" in output.err
    assert "sizes: 1 of 2 of the present code, 1 missing" in output.out
    fake["failing"] = set()
    assert figures.main(arguments) == 0
    assert figures.main(arguments) == 0
    assert fake["ran"] == ["one", "two", "two"]
    store = Store("sizes", tmp_path)
    assert store.get({"command": "python -m benchmarks.sizes one"})["rows"] == [{"table": "sizes", "n": "one"}]
    monkeypatch.setitem(JOBS, "sizes", [Work(("sizes", "one"), ("bregnet/nn",)), JOBS["sizes"][1]])
    assert earlier(store) == [{"command": "python -m benchmarks.sizes one"}]
    assert figures.main([*arguments, "--list"]) == 0
    assert "sizes: 1 of 2 of the present code, 1 of earlier code" in capsys.readouterr().out
    figures.main(arguments)
    assert fake["ran"][3:] == ["one"]


def test_unknown_jobs_are_named(capsys):
    with pytest.raises(SystemExit):
        figures.main(["--only", "nothing"])
    assert "--only got nothing; valid: solver" in capsys.readouterr().err


# the pages


def test_tables_have_formats_dashes_and_only_columns_that_are_there():
    found = table(
        [{"method": "PBDL()", "n": 3, "gap": 0.0123}, {"method": "LDA", "n": 4}],
        {"method": "", "n": "d", "x": "g", "gap": ".1%"},
    )
    assert found == ["| method | n | gap |", "| --- | ---: | ---: |", "| `PBDL()` | 3 | 1.2% |", "| LDA | 4 | - |"]
    rows = [{"set": "a", "method": "x", "mAP": 1.0, "accuracy": 2.0}, {"set": "b", "method": "y", "mAP": 3.0}]
    cells = pivot(rows, ("method",), "set", {"mAP": ".1f", "accuracy": ".1f"})
    assert cells[0] == "| method | a | b |"
    assert cells[2:] == ["| x | 1.0 / 2.0 | - |", "| y | - | 3.0 / - |"]


def test_means_count_sets_above_every_metric_and_near_the_ceiling():
    methods = {"LDA": ("metric", 50.0, 60.0), "SVC (ceiling)": ("ceiling", 70.0, 90.0), "PBDL()": ("ours", 68.0, 59.0)}
    rows = [
        {"protocol": "unseen", "set": name, "method": method, "kind": kind, "mAP": scores[number], "accuracy": 1.0}
        for method, (kind, *scores) in methods.items()
        for number, name in enumerate("ab")
    ]
    found = summary(rows)[-1]
    assert found["method"] == "PBDL()"
    assert (found["mAP"], found["accuracy"], found["sets"]) == (63.5, 1.0, 2)
    assert [found[name] for name, (score, *_) in COUNTS.items() if score == "mAP"] == [1, 1]
    assert [found[name] for name, (score, *_) in COUNTS.items() if score == "accuracy"] == [2, 2]


def test_a_table_says_where_its_rows_come_from_and_what_is_of_earlier_code(fake, tmp_path, monkeypatch):
    figure = Figure("sizes", "sizes", lambda rows: [f"{len(rows)} rows"])
    assert figure.lines(Store("sizes", tmp_path)) == [
        "*Not measured yet: `python -m benchmarks.figures --only sizes`.*"
    ]
    figures.main(["--only", "sizes", "--folder", str(tmp_path)])
    shown, _, origin = figure.lines(Store("sizes", tmp_path))
    assert shown == "2 rows"
    assert origin.startswith("*Rows of commit abc (")
    assert origin.endswith(") on a, 1 cores.*")
    monkeypatch.setitem(JOBS, "sizes", [Work(("sizes", "one"), ("bregnet/nn",)), JOBS["sizes"][1]])
    assert figure.lines(Store("sizes", tmp_path))[-1] == origin[:-1] + f" {render.EARLIER} for 1 of 2 parts.*"
    assert render.REMARK.sub("", figure.lines(Store("sizes", tmp_path))[-1]) == origin


def test_pages_are_what_their_rows_render_to():
    """`python -m benchmarks.render` writes them."""
    print("\n".join(render.earlier_lines()))  # shown where this fails
    assert [page.name for page in render.differing()] == []
    used = {name for page in render.PAGES for name in render.PLACE.findall(page.read_text())}
    assert {name for name, _ in used} == set(FIGURES)


def test_a_marker_of_an_unknown_figure_is_refused():
    with pytest.raises(ValueError, match="got nothing"):
        render.rendered("<!-- figures: nothing -->\n<!-- end -->")
