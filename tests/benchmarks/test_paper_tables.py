"""The command that sets the paper's tables beside ours: its store, its rule, its baselines and its page."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LassoCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neighbors import NearestCentroid

from benchmarks import baselines, markdown, ours, paper, paper_timing, paper_units
from benchmarks.data import inner_folds
from benchmarks.markdown import page, table_lines
from benchmarks.paper_figures import TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5
from benchmarks.paper_tables import Sheet, sheets
from benchmarks.rows import Outcome, Store, Unit
from bregnet import ConvexRegressor, DCRegressor
from bregnet.datasets import PAPER_SETS, Fold

ROOT = Path(__file__).parents[2]
OUTCOME = Outcome(0.9, 0.5, 2.0, 0.01, {"alpha": 0.01})


def unit(fold=0, table=3, name="concrete", method="ours", **settings):
    return Unit(table, name, 1, fold, method, settings)


def fold_of(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.abs(X[:, 0]) + 0.1 * rng.standard_normal(n)
    half = n // 2
    return Fold(X[:half], y[:half], X[half:], y[half:])


# the store


def test_rows_are_found_again_by_another_process(tmp_path):
    Store(tmp_path / "rows").add(unit(alpha=0.1), OUTCOME, threads=1)
    again = Store(tmp_path / "rows")
    row = again.get(unit(alpha=0.1))
    assert (row["score"], row["seconds_all"], row["gap"], row["extra"]) == (0.9, 2.0, 0.01, {"alpha": 0.01})
    assert row["threads"] == 1
    assert unit(fold=1, alpha=0.1) not in again
    assert unit(alpha=0.2) not in again


def test_settings_are_the_same_in_any_order_and_as_lists_or_tuples(tmp_path):
    store = Store(tmp_path / "rows")
    store.add(unit(depths=(1, 2), cv=5), OUTCOME)
    assert unit(cv=5, depths=[1, 2]) in Store(tmp_path / "rows")


def test_a_line_torn_anywhere_costs_that_row_only(tmp_path):
    path = tmp_path / "rows"
    store = Store(path)
    store.add(unit(0), OUTCOME)
    whole = path.read_bytes()
    store.add(unit(1), OUTCOME)
    line = path.read_bytes()[len(whole) :]
    for kept in range(1, len(line) - 1):
        path.write_bytes(whole + line[:kept])
        torn = Store(path)
        assert (len(torn), torn.n_torn) == (1, 1)
        torn.add(unit(2), OUTCOME)
        again = Store(path)
        assert unit(0) in again
        assert unit(1) not in again
        assert unit(2) in again


def test_only_the_line_end_missing_costs_nothing(tmp_path):
    path = tmp_path / "rows"
    Store(path).add(unit(0), OUTCOME)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    Store(path).add(unit(1), OUTCOME)
    assert len(Store(path)) == 2


def test_forgetting_drops_what_is_named_and_lasts(tmp_path):
    store = Store(tmp_path / "rows")
    kept = [unit(method="forest"), unit(table=4), unit(name="airfoil"), unit(0, quick=True)]
    for each in (unit(0), unit(1), *kept):
        store.add(each, OUTCOME)
    store.forget([unit(0), unit(1), unit(2)])
    for version in (store, Store(tmp_path / "rows")):
        assert len(version) == len(kept)
        assert all(each in version for each in kept)
    store.add(unit(0), OUTCOME)
    assert unit(0) in Store(tmp_path / "rows")


def test_numbers_of_numpy_are_kept_as_plain_ones(tmp_path):
    extra = {"depth": np.int64(3), "rates": np.array([0.1, 0.5])}
    Store(tmp_path / "rows").add(unit(), Outcome(np.float32(0.5), 1.0, 1.0, None, extra))
    row = Store(tmp_path / "rows").get(unit())
    assert (row["score"], row["extra"]) == (0.5, {"depth": 3, "rates": [0.1, 0.5]})


def test_processes_append_at_once(tmp_path):
    code = """
import sys
from pathlib import Path
from benchmarks.rows import Outcome, Store, Unit
store = Store(Path(sys.argv[1]))
for fold in range(200):
    store.add(Unit(3, "concrete", 1, fold, sys.argv[2], {}), Outcome(0.5, 1.0, 1.0, None, {"padding": "x" * 3000}))
"""
    path = tmp_path / "rows"
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name], cwd=ROOT)
        for name in ("lasso", "forest", "ours")
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    store = Store(path)
    assert (len(store), store.n_torn) == (600, 0)


# the paper's figures


def test_figures_are_those_of_the_paper():
    assert [len(table) for table in (TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5)] == [5, 5, 22, 6, 8]
    assert [row.d for row in TABLE_1] == [row.d for row in TABLE_2] == [2, 4, 8, 16, 32]
    assert TABLE_2[-1].seconds == {"paper baseline": 823.2, "paper": 4.42}
    scores = {(row.key, row.target): (row.dc, row.lasso, row.forest, row.xgboost) for row in TABLE_3}
    assert len(scores) == 22
    assert scores["solar_flare", 2] == (-6.1, -2.1, -17.0, 2.1)
    assert scores["air_quality", 4] == (81.7, 84.0, 78.1, 80.7)
    assert TABLE_4[-1].scores["paper pbdl0"] is None
    assert max(row.pbdl0_seconds or 0 for row in TABLE_4) == 224407
    assert sum(row.admm for row in TABLE_5) == pytest.approx(58.4)


@pytest.mark.parametrize(
    ("table", "task"), [(TABLE_3, "regression"), (TABLE_4, "classification"), (TABLE_5, "regression")]
)
def test_every_row_is_of_a_known_set(table, task):
    assert {row.key for row in table} <= {name for name, about in PAPER_SETS.items() if about.task == task}


def test_sizes_agree_between_tables():
    sizes = {row.key: (row.n, row.d) for row in TABLE_3}
    assert all(sizes[row.key] == (row.n, row.d) for row in TABLE_5)


# the stopping rule


def test_rule_stops_when_the_last_n_iterations_gained_too_little():
    rule = paper_timing.StoppingRule(100)
    errors = {25: 0.5, 50: 0.4, 75: 0.3, 125: 0.2, 150: 0.1995, 175: 0.1992, 225: 0.1991}
    assert [rule(iteration, error) for iteration, error in errors.items()] == [False] * 6 + [True]


def test_rule_never_stops_before_n_iterations():
    rule = paper_timing.StoppingRule(1000)
    assert not any(rule(iteration, 0.3) for iteration in range(25, 1000, 25))


def test_rule_stops_after_n_iterations_no_better_than_the_mean():
    rule = paper_timing.StoppingRule(50)
    assert [rule(iteration, 1.2) for iteration in (25, 49, 50)] == [False, False, True]


def test_rule_compares_best_errors_so_that_swings_do_not_count():
    rule = paper_timing.StoppingRule(10)
    assert [rule(iteration, error) for iteration, error in ((5, 0.2), (10, 0.9), (15, 0.5), (20, 0.2))] == [
        False,
        False,
        True,
        True,
    ]
    assert not rule(30, 0.1)


@pytest.mark.parametrize("dc", [False, True])
def test_timed_fit_to_a_gap_is_the_estimators(dc):
    fold = fold_of()
    outcome = paper_timing.timed_fit(fold, dc=dc, stop="gap", max_iter=2000)
    model = (DCRegressor if dc else ConvexRegressor)(0.01, n_pieces=None, max_iter=2000).fit(fold.X, fold.y)
    assert outcome.gap == pytest.approx(model.gap_)
    assert outcome.gap <= 0.01
    assert outcome.extra["objective"] == pytest.approx(model.result_.objective)
    assert outcome.score == pytest.approx(model.score(fold.X_test, fold.y_test))


def test_timed_fit_stops_by_the_rule(monkeypatch):
    asked = []

    class Impatient(paper_timing.StoppingRule):
        def __call__(self, iteration, error):
            asked.append((iteration, error))
            return len(asked) == 2

    monkeypatch.setattr(paper_timing, "StoppingRule", Impatient)
    monkeypatch.setitem(paper_timing.SETTINGS, "finest_gap", 1e-9)
    outcome = paper_timing.timed_fit(fold_of(), dc=True, stop="rule", max_iter=2000)
    assert outcome.extra["iterations"] == asked[-1][0]
    assert outcome.score == pytest.approx(1 - asked[-1][1])
    assert "stopped" in outcome.extra["status"]


# the baselines


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 10, 23, 68, 122])
def test_features_of_the_forest_lie_in_the_papers_interval(d):
    counts = baselines.feature_counts(d, 5)
    assert counts == sorted(set(counts))
    assert 1 <= len(counts) <= 5
    assert counts[0] == math.ceil(d**0.25)
    assert counts[-1] <= max(counts[0], d**0.75)
    if d**0.75 - d**0.25 > 5:
        assert len(counts) == 5
        assert counts[-1] == math.floor(d**0.75)


def test_grid_of_xgboost_is_the_papers():
    chosen = baselines.settings("xgboost", quick=False)
    assert len(chosen["depths"]) * len(chosen["rates"]) == 30
    assert (min(chosen["depths"]), max(chosen["depths"])) == (1, 10)
    assert chosen["rates"] == [0.05, 0.1, 0.5]


def test_lasso_is_scikit_learns():
    fold = fold_of()
    outcome = baselines.lasso(fold, KFold(5), quick=False)
    expected = LassoCV(cv=5).fit(fold.X, fold.y)
    assert outcome.score == pytest.approx(expected.score(fold.X_test, fold.y_test))
    assert outcome.extra["penalty"] == pytest.approx(expected.alpha_)


def test_forest_chooses_inside_the_training_part():
    fold = fold_of(d=10)
    outcome = baselines.forest(fold, KFold(5), quick=True)
    blind = baselines.forest(fold._replace(y_test=fold.y_test[::-1]), KFold(5), quick=True)
    assert outcome.extra["max_features"] in baselines.feature_counts(10, 2)
    assert outcome.extra["max_features"] == blind.extra["max_features"]
    assert 0 < outcome.seconds_per_fit < outcome.seconds_all


class CodedCentroid:
    """Stands in for XGBoost's classifier, and is as strict about classes."""

    def __init__(self, max_depth, learning_rate, n_jobs):
        self.model = NearestCentroid()

    def fit(self, X, y):
        assert np.array_equal(np.unique(y), np.arange(y.max() + 1))
        self.model.fit(X, y)

    def predict(self, X):
        return self.model.predict(X)


def test_xgboost_gets_classes_coded_anew_in_every_fold(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", SimpleNamespace(XGBClassifier=CodedCentroid, XGBRegressor=None))
    y = np.repeat([3, 7, 29, 12], [20, 20, 20, 1])  # the last class misses from one inner training part
    X = np.column_stack([y, -y]) + 0.1 * np.random.default_rng(0).standard_normal((len(y), 2))
    test = np.array([[7.0, -7.0], [29.0, -29.0], [50.0, -50.0]])
    shuffled = KFold(5, shuffle=True, random_state=0)
    outcome = baselines.xgboost(Fold(X, y, test, np.array([7, 29, 50])), shuffled, quick=True, classify=True)
    assert outcome.score == pytest.approx(2 / 3)  # a class never seen counts as an error
    assert outcome.extra["max_depth"] in baselines.QUICK.depths


@pytest.mark.parametrize(
    ("y", "classify", "kind", "shuffled"),
    [
        (np.repeat([0, 1], 5), True, StratifiedKFold, True),
        (np.repeat([0, 1], [9, 1]), True, KFold, True),
        (np.linspace(0, 1, 10), False, KFold, False),
    ],
)
def test_inner_folds_suit_the_task(y, classify, kind, shuffled):
    folds = inner_folds(y, classify=classify)
    assert type(folds) is kind
    assert folds.shuffle == shuffled


# the tables and the page


def test_best_is_bold_ties_as_printed_included_and_what_is_missing_is_a_dash():
    rows = [{"set": "a", "x": 1.04, "y": 0.96, "z": 0.5}, {"set": "b", "x": -2.0, "z": -3.0}, {"set": "c"}]
    sheet = Sheet("t", {"set": "3", "x": ".1f", "y": ".1f", "z": ".1f"}, rows, ("x", "y"), max, ("x best: 1 of 1",))
    lines = table_lines(sheet)
    assert lines[2:5] == ["| a | **1.0** | **1.0** | 0.5 |", "| b | **-2.0** | - | -3.0 |", "| c | - | - | - |"]
    assert "x best: 1 of 1." in lines
    smallest = Sheet("t", sheet.columns, [{"x": 3.0, "y": 2.0, "z": 1.0}], ("x", "y"), min)
    assert table_lines(smallest)[2] == "| - | 3.0 | **2.0** | 1.0 |"


def concrete_store(path, methods):
    """A store with all folds of concrete finished, at the given score by method."""
    store, (row,) = Store(path), paper_units.chosen_rows(3, False, ["concrete"])
    for method, score in methods.items():
        for index, each in enumerate(paper_units.row_units(3, row, [method], False)):
            store.add(each, Outcome(score + 0.01 * (index - 2), 1.0, 10.0, 0.02, {"alpha": 10.0**-index}))
    return store, [row]


def test_a_cell_is_the_mean_over_all_folds_or_a_dash(tmp_path):
    store, rows = concrete_store(tmp_path / "rows", {"ours": 0.93, "forest": 0.91, "xgboost": 0.92})
    scores, seconds = sheets(store, 3, rows, False)
    (cells,) = scores.rows
    assert (cells["ours"], cells["paper dc"], cells["gap"]) == pytest.approx((93.0, 91.7, 0.02))
    assert cells["alpha"] == "0.0001 to 1"
    assert "lasso" not in cells
    assert scores.counts == ("ours at least paper dc: 1 of 1", "ours above both forest and xgboost here: 1 of 1")
    assert (seconds.rows[0]["ours: fit"], seconds.rows[0]["ours: all"]) == pytest.approx((1.0, 50.0))
    lines = (tmp_path / "rows").read_bytes().splitlines(keepends=True)
    (tmp_path / "rows").write_bytes(b"".join(lines[1:]))  # one fold of ours is not finished
    incomplete = sheets(Store(tmp_path / "rows"), 3, rows, False)[0]
    assert "ours" not in incomplete.rows[0]
    assert incomplete.counts[0] == "ours at least paper dc: 0 of 0"


def test_a_fit_that_ran_out_of_iterations_is_told_and_never_counts_as_faster(tmp_path):
    store, (row,) = Store(tmp_path / "rows"), paper_units.chosen_rows(5, False, ["concrete"])
    for stop, seconds, reached in (("rule", 1.0, False), ("gap", 2.0, True)):
        extra = {"iterations": 10, "objective": 0.5, "reached": reached, "n": 824}
        store.add(paper_units.timing_unit(5, row, stop, False), Outcome(0.9, seconds, seconds, 0.02, extra))
    (sheet,) = sheets(store, 5, [row], False)
    line = "| Concrete Compressive Strength | 1030 | 8 | 824 | 3.28 | > 1.00 | 10 | 0.50000 | 2.00% | **2.00** | 10 |"
    assert table_lines(sheet)[2].startswith(line)
    by_rule, to_gap = sheet.counts
    assert by_rule.endswith("0 of 1")
    assert to_gap.endswith("1 of 1")


def test_counts_compare_figures_as_printed(tmp_path):
    store, rows = concrete_store(tmp_path / "rows", {"ours": 0.9166, "forest": 0.9164, "xgboost": 0.5})
    counts = sheets(store, 3, rows, False)[0].counts
    assert counts == ("ours at least paper dc: 1 of 1", "ours above both forest and xgboost here: 1 of 1")
    store, rows = concrete_store(tmp_path / "more", {"ours": 0.9166, "forest": 0.9170, "xgboost": 0.5})
    counts = sheets(store, 3, rows, False)[0].counts
    assert counts == ("ours at least paper dc: 1 of 1", "ours above both forest and xgboost here: 0 of 1")


def test_page_of_an_empty_store_has_the_papers_figures_and_dashes_only(tmp_path):
    store = Store(tmp_path / "rows")
    shown = [s for t in range(1, 6) for s in sheets(store, t, paper_units.chosen_rows(t, False), False)]
    text = page(shown, command="command", about=["nothing is finished"])
    for table in range(1, 6):
        assert f"## Table {table}: " in text
    airfoil = next(line for line in text.splitlines() if line.startswith("| Airfoil") and "95.2" in line)
    assert airfoil == "| Airfoil Self-Noise | 1503 | 5 | **95.2** | 51.1 | 93.3 | 95.0 |" + " - |" * 7
    assert "| 1000 | 32 | - | 823.20 | **4.42** |" + " - |" * 8 in text
    assert text.count("0 of 0") == 2 * 3 + 2 + 2 * (3 + 2)  # two methods in table 4
    assert "- nothing is finished" in text
    assert "scikit-learn" in text


def test_kept_rows_are_a_store_again(tmp_path):
    store, units = Store(tmp_path / "rows"), [unit(fold) for fold in range(3)]
    for each in units[:2]:
        store.add(each, OUTCOME, threads=1)
    store.add(unit(alpha=0.1), OUTCOME, threads=1)  # of other settings
    store.write(tmp_path / "kept", units)
    again = Store(tmp_path / "kept")
    assert len(again) == 2
    assert [again.get(each) for each in units] == [store.get(each) for each in units]


def test_what_is_behind_the_paper_is_listed_with_what_is_known_of_it(monkeypatch):
    monkeypatch.setattr(markdown, "REASONS", {"Airfoil": "Noise."})
    columns = {"set": "9", "paper dc": ".1f", "paper forest": ".1f", "ours": ".1f"}
    rows = [
        {"set": "Airfoil", "paper dc": 95.2, "paper forest": 93.3, "ours": 95.12},
        {"set": "Concrete", "paper dc": 91.7, "paper forest": 91.8, "ours": 91.66},  # as printed it is level
        {"set": "Solar", "paper dc": 3.3, "paper forest": -28.0},
    ]
    regression = Sheet("Table 3: regression, R^2 x 100", columns, rows, (), max)
    classes = {"set": "Iris", "paper pbdl": 96.0, "paper pbdl0": 98.7, "paper xgboost": 96.6, "ours": 96.2}
    figures = dict.fromkeys(list(classes)[1:], ".1f")
    classification = Sheet("Table 4: classification", {"set": "9", **figures}, [classes], (), max)
    assert markdown.behind_lines([regression, classification]) == [
        "- Table 3, Airfoil: 95.1; paper dc 95.2. Noise.",
        "- Table 4, Iris: 96.2; paper pbdl0 98.7, paper xgboost 96.6.",
    ]
    assert "## Behind the paper" in page([regression], command="command")
    assert "## Behind the paper" not in page([], command="command")


# the command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "6"], "--table got 6; valid: 1, 2, 3, 4, 5"),
        (["--table", "4", "--sets", "iris,ccpp"], "--sets got ccpp; valid: iris, wine"),
        (["--table", "1", "--sets", "iris"], "--sets got iris; valid: d2, d4, d8, d16, d32"),
        (["--methods", "ridge"], "--methods got ridge; valid: ours, PBDLCV, BregmanNCA, lasso, forest, xgboost"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_name_the_valid_ones(arguments, message, capsys):
    with pytest.raises(SystemExit):
        paper.parse(arguments)
    assert message in capsys.readouterr().err


def test_tables_may_be_given_in_two_ways_and_the_page_is_for_all_five():
    assert paper.parse(["--table", "3,1", "--table", "5"]).table == [1, 3, 5]
    everything = paper.parse([])
    assert everything.table == [1, 2, 3, 4, 5]
    assert everything.markdown == paper.PAGE
    assert paper.parse(["--quick"]).markdown is None
    assert paper.parse(["--table", "3"]).markdown is None


def test_full_run_has_all_units(monkeypatch):
    monkeypatch.setattr(paper, "HAS_XGBOOST", True)
    units = paper.chosen_units(paper.parse([]))
    by_table = [sum(each.table == table for each in units) for table in range(1, 6)]
    assert by_table == [10, 10, 4 * (13 + 9 * 5), 4 * 6 * 5, 16]
    assert len({each.key for each in units}) == len(units)
    monkeypatch.setattr(paper, "HAS_XGBOOST", False)
    assert not any(each.method == "xgboost" for each in paper.chosen_units(paper.parse([])))


@pytest.fixture
def fake(monkeypatch):
    """Folds without data, and a method of ours that counts its calls; from the third on it is interrupted."""
    calls = []

    def regression(fold, inner, quick):
        if len(calls) == fake.limit:
            raise fake.trouble
        calls.append(quick)
        return Outcome(0.5 + 0.1 * len(calls), 1.0, 3.0, 0.01, {"alpha": 0.1, "one_fit": 0.45})

    fake = SimpleNamespace(calls=calls, limit=None, trouble=KeyboardInterrupt())
    monkeypatch.setattr(paper_units, "paper_folds", lambda name, target=0: [fold_of()] * 5)
    monkeypatch.setattr(ours, "regression", regression)
    paper_units._folds.cache_clear()
    yield fake
    paper_units._folds.cache_clear()


def arguments(tmp_path, *more):
    chosen = ["--table", "3", "--sets", "concrete", "--methods", "ours", "--rows", str(tmp_path / "rows")]
    return [*chosen, "--markdown", str(tmp_path / "page.md"), "--json", str(tmp_path / "page.json"), *more]


def test_interrupted_run_goes_on_where_it_was(fake, tmp_path, capsys):
    fake.limit = 2
    with pytest.raises(KeyboardInterrupt):
        paper.main(arguments(tmp_path))
    assert len(Store(tmp_path / "rows")) == 2
    fake.limit = None
    assert paper.main(arguments(tmp_path)) == 0
    assert len(fake.calls) == 5
    out = capsys.readouterr().out
    assert "5 units of work, 2 of them stored already" in out
    assert "[3/5] table 3 concrete fold 3 ours: score 80.0" in out
    assert "**80.0**" not in (tmp_path / "page.md").read_text()  # the paper's 91.8 and 92.5 are above
    assert (
        "| 91.7 | 59.9 | 91.8 | **92.5** | 80.0 | 45.0 | - | - | - | 1.0% | 0.1 |" in (tmp_path / "page.md").read_text()
    )
    tables = json.loads((tmp_path / "page.json").read_text())["tables"]
    assert tables["Table 3: regression, R^2 x 100"][0]["ours"] == pytest.approx(80.0)


def test_nothing_is_done_twice_unless_fresh_or_settings_changed(fake, tmp_path, monkeypatch):
    for expected, more in ((5, ()), (5, ()), (5, ("--no-run",)), (10, ("--fresh",)), (10, ())):
        assert paper.main(arguments(tmp_path, *more)) == 0
        assert len(fake.calls) == expected
    monkeypatch.setattr(ours, "SETTINGS", {"alpha": "another"})
    paper.main(arguments(tmp_path, "--no-run"))
    assert "| 91.7 | 59.9 | 91.8 | **92.5** | - | - |" in (tmp_path / "page.md").read_text()
    paper.main(arguments(tmp_path))
    assert len(fake.calls) == 15


def test_quick_says_so_and_its_rows_are_not_taken_for_full_ones(fake, tmp_path, capsys):
    paper.main(arguments(tmp_path, "--quick"))
    assert fake.calls == [True]
    assert "QUICK" in capsys.readouterr().out
    assert "QUICK" in (tmp_path / "page.md").read_text()
    paper.main(arguments(tmp_path))
    assert fake.calls == [True] + 5 * [False]
    assert "QUICK" not in (tmp_path / "page.md").read_text()


def test_a_unit_that_fails_is_told_and_does_not_end_the_run(fake, tmp_path, capsys):
    fake.limit, fake.trouble = 3, FloatingPointError("too steep")
    assert paper.main(arguments(tmp_path)) == 1
    assert len(Store(tmp_path / "rows")) == 3
    told = capsys.readouterr()
    assert told.out.count("FAILED") == 2
    assert "too steep" in told.err


@pytest.mark.slow
def test_processes_give_the_same_rows_and_leave_the_environment_as_it_was(tmp_path, monkeypatch):
    monkeypatch.delenv("BREGNET_DATA", raising=False)  # iris comes with scikit-learn
    before = dict(os.environ)
    chosen = ["--table", "4", "--sets", "iris", "--methods", "forest", "--quick", "--rows", str(tmp_path / "rows")]
    assert paper.main([*chosen, "--jobs", "2"]) == 0
    assert dict(os.environ) == before
    (row,) = paper_units.chosen_rows(4, True, ["iris"])
    (each,) = paper_units.row_units(4, row, ["forest"], True)
    found, here = Store(tmp_path / "rows").get(each), paper_units.compute(each, True)
    assert found["threads"] == 1
    assert found["score"] == pytest.approx(here.score)
    assert found["extra"]["max_features"] == here.extra["max_features"]
