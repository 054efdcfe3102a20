"""What somebody who tries the command line for the first time has stumbled over."""

import pandas as pd
import pytest

import bregnet
from bregnet import PBDLCV, BregmanKNeighborsClassifier
from tests.support.cli_runs import LABELS, SAME, X, error_of, run, write_files

FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


def test_a_search_that_chose_no_number_of_neighbors_predicts_by_five():
    search = PBDLCV([0.1], cv=2, feature_map=None, companion=None, temperatures=[0.2], **SAME).fit(FRAME, LABELS)
    assert search.n_neighbors_ is None
    bregnet.save(search, "model")
    said = run("predict", "model", "labels.csv", "--known", "labels.csv", "--target", "kind").stdout
    expected = BregmanKNeighborsClassifier(search.divergence_, 5).fit(X, LABELS).predict(X)
    assert said.splitlines()[1:] == expected.astype(str).tolist()


def test_what_was_chosen_is_named():
    fast = ("-o", "model", "--cv", "2", "--tol", "0.3")
    said = run("fit", "numbers.csv", "--target", "y", *fast).stdout
    assert f", n_pieces {bregnet.load('model').n_pieces_} (score" in said
    assert "seconds of the last fit" in said
    said = run("fit", "labels.csv", "--target", "kind", *fast).stdout
    chosen = bregnet.load("model").best_params_["feature_map"]
    assert (", feature map" in said) == (chosen is not None)


@pytest.mark.parametrize("command", [("search", "labels.csv"), ("cluster", "labels.csv", "-k", "2")])
def test_results_of_text_are_not_written_under_another_ending(command, folder):
    bregnet.save(PBDLCV([0.1], cv=2, feature_map=None, companion=None, **SAME).fit(FRAME, LABELS), "model")
    name, data, *options = command
    assert "--output must be a file of text, such as .csv" in error_of(
        name, "model", data, *options, "-o", "out.parquet", code=2
    )
    assert not list(folder.glob("out*"))
    run(name, "model", data, *options, "-o", "out.txt")


def test_numbers_of_neighbors_are_named_by_their_option():
    bregnet.save(PBDLCV([0.1], cv=2, feature_map=None, companion=None, **SAME).fit(FRAME, LABELS), "model")
    said = run("evaluate", "model", "labels.csv", "--target", "kind", "-k", "5000", code=1).stderr
    assert f"-k must be at most {len(X) - 1}, as many rows as a query can find, got 5000" in said


def test_names_of_rows_are_not_the_target_and_columns_have_names_of_their_own(folder):
    said = error_of("fit", "labels.csv", "--target", "kind", "--id", "kind", "-o", "model", code=2)
    assert "--id must not be the target, got 'kind' for both" in said
    (folder / "twice.csv").write_text("a,a,kind\n1,2,x\n3,4,y\n")
    said = error_of("fit", "twice.csv", "--target", "kind", "-o", "model")
    assert "must have a name of its own for every column, got 'a' more than once" in said


def test_items_of_the_model_are_not_named_by_a_column_of_the_queries():
    run("fit", "named.csv", "--target", "kind", "--id", "name", "--keep-rows", "-o", "model", "--tol", "0.3")
    done = run("search", "model", "--queries", "named.csv", "--id", "name", "-k", "1")
    assert "note: items are called as in model, by their row numbers or ids" in done.stderr


def test_a_report_that_cannot_be_written_is_called_by_its_option():
    said = error_of("fit", "labels.csv", "--target", "kind", "-o", "model", "--report", "none/r.html")
    assert "--report must lie in a folder that exists" in said
