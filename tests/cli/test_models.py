import csv
import io
import json
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import (
    adjusted_rand_score,
    average_precision_score,
    mean_absolute_error,
    normalized_mutual_info_score,
    r2_score,
    roc_auc_score,
)
from sklearn.neighbors import KNeighborsClassifier

import bregnet
from bregnet import PBDL, BregmanIndex, BregmanKMeans, BregmanKNeighborsClassifier, ConvexRegressor, DCRegressor
from bregnet.cli.search import neighbors as neighbors_of
from bregnet.metrics import purity
from tests.support.cli_runs import LABELS, NAMES, SAME, X, Y, error_of, run, write_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of data, the current one."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = DCRegressor(**SAME).fit(frame, Y)
    bregnet.save(fitted, "model")
    return fitted


@pytest.fixture(scope="module")
def learned():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    return PBDL(**SAME, temperature=0.2).fit(frame, LABELS)


@pytest.fixture
def learner(folder, learned):
    bregnet.save(learned, "learner")
    return learned


def retrieval(measure, divergences, relevant):
    """The mean of a measure of scikit-learn's over queries; infinite divergences do not count."""
    scores = []
    for row, wanted in zip(divergences, relevant, strict=True):
        counted = np.isfinite(row)
        scores.append(measure(wanted[counted], -row[counted]))
    return np.mean(scores)


class TestEvaluate:
    def test_a_divergence_leaving_each_row_out(self, learner):
        result = run("evaluate", "learner", "labels.csv", "--target", "kind", "-k", 3, "--json")
        found = json.loads(result.stdout)
        assert (found["kind"], found["rows"], found["k"]) == ("PBDL", 60, 3)
        scaled = X / X.std(0)
        matrices = {
            "Euclid": np.square(scaled[:, None] - scaled).sum(2),
            "PBDL": np.array([learner.divergence_.paired(np.tile(x, (60, 1)), X) for x in X]),
        }
        relevant = LABELS[:, None] == LABELS
        for name, divergences in matrices.items():
            np.fill_diagonal(divergences, np.inf)
            scores = found["scores"][name]
            nearest = relevant[np.arange(60)[:, None], divergences.argsort(1)[:, :3]]
            assert scores["accuracy"] == pytest.approx((nearest.mean(1) > 0.5).mean())
            assert scores["map"] == pytest.approx(retrieval(average_precision_score, divergences, relevant))
            assert scores["auc"] == pytest.approx(retrieval(roc_auc_score, divergences, relevant))
            n_relevant = relevant.sum(1) - 1
            ordered = relevant[np.arange(60)[:, None], divergences.argsort(1)]
            expected = np.mean([row[:n].mean() for row, n in zip(ordered, n_relevant, strict=True)])
            assert scores["r_precision"] == pytest.approx(expected)
            assert 0 <= scores["nmi"] <= 1
        euclid = bregnet.SquaredEuclidean(1 / X.var(0))
        clusters = BregmanKMeans(2, divergence=euclid, n_init=5, tol=0, random_state=0).fit_predict(X)
        assert found["scores"]["Euclid"]["nmi"] == pytest.approx(normalized_mutual_info_score(LABELS, clusters))
        assert found["scores"]["Euclid"]["purity"] == pytest.approx(purity(LABELS, clusters))

    def test_against_known_rows(self, learner):
        frame = pd.read_csv("labels.csv")
        frame[:40].to_csv("known.csv", index=False)
        frame[40:].to_parquet("new.parquet")
        found = json.loads(
            run("evaluate", "learner", "new.parquet", "--target", "kind", "--known", "known.csv", "--json").stdout
        )["scores"]
        divergences = learner.divergence_.pairwise(X[40:], X[:40])
        relevant = LABELS[40:, None] == LABELS[:40]
        assert found["PBDL"]["map"] == pytest.approx(retrieval(average_precision_score, divergences, relevant))
        scale = X[:40].std(0)  # Euclid knows no more than the divergence
        classifier = KNeighborsClassifier(5).fit(X[:40] / scale, LABELS[:40])
        assert found["Euclid"]["accuracy"] == pytest.approx(classifier.score(X[40:] / scale, LABELS[40:]))

    def test_rows_that_find_themselves(self, learner):
        evaluate = ("evaluate", "learner", "labels.csv", "--target", "kind")
        assert "warning" not in run(*evaluate).stderr
        said = run(*evaluate, "--known", "./labels.csv", "--quiet").stderr
        assert said.startswith("warning: labels.csv is searched in itself, so every row finds itself first")

    def test_table_and_report(self, learner, folder):
        result = run("evaluate", "learner", "labels.csv", "--target", "kind", "--report", "out.html")
        head, *rows = [line.split("  ") for line in result.stdout.splitlines()]
        assert [part.strip() for part in head if part] == [
            *("5-NN accuracy", "mAP", "R-precision", "AUC", "NMI", "Rand", "purity")
        ]
        assert [row[0].strip() for row in rows] == ["Euclid", "PBDL"]
        score = learner.score(pd.read_csv("labels.csv")[["a", "b", "c"]], LABELS)
        assert f"{score:.3f}" in [part.strip() for part in rows[1]]
        assert "PBDL in learner: 60 rows of labels.csv, each against the others" in result.stderr
        assert "PBDL on labels.csv" in (folder / "out.html").read_text()

    def test_regressions(self, model):
        found = json.loads(run("evaluate", "model", "numbers.csv", "--target", "y", "--json").stdout)["scores"]
        predicted = model.function_(X)
        expected = {
            "r2": r2_score(Y, predicted),
            "mae": mean_absolute_error(Y, predicted),
            "rmse": np.sqrt(np.square(Y - predicted).mean()),
        }
        assert found == {"DCRegressor": pytest.approx(expected)}
        head, row = run("evaluate", "model", "numbers.csv", "--target", "y").stdout.splitlines()
        assert head.split() == ["R^2", "MAE", "RMSE"]
        assert row.split() == ["DCRegressor", *(f"{value:.3f}" for value in expected.values())]

    def test_generators_and_archives(self, folder):
        bregnet.save(bregnet.SquaredEuclidean(1 / X.var(0)), "plain")
        evaluate = ("evaluate", "plain", "numbers.npz", "--target", "kind", "--json", "--report", "out.html")
        found = json.loads(run(*evaluate).stdout)["scores"]
        assert found["SquaredEuclidean"] == pytest.approx(found["Euclid"])
        assert (folder / "out.html").is_file()

    def test_errors(self, model, learner):
        assert "--target must name a column" in error_of("evaluate", "learner", "labels.csv", code=2)
        known = ("evaluate", "model", "numbers.csv", "--target", "y", "--known", "numbers.csv")
        assert "--known is for divergences, got model, which holds a DCRegressor" in error_of(*known, code=2)
        labels = error_of("evaluate", "model", "labels.csv", "--target", "kind")
        assert labels == "error: a regression is scored by a target of numbers, but 'kind' holds labels"
        assert "Unknown label type" in run("evaluate", "learner", "numbers.csv", "--target", "y", code=1).stderr
        bregnet.save(model.function_, "function")
        said = run("evaluate", "function", "numbers.csv", "--target", "y", "--quiet", code=1).stderr
        needs = "evaluate needs a model with a divergence, got function, which holds a DifferenceOfConvex"
        assert said == f"error: {needs}\n"
        pd.read_csv("labels.csv").assign(kind="one").to_csv("one.csv", index=False)
        said = run("evaluate", "learner", "one.csv", "--target", "kind", "--quiet", code=1).stderr
        assert said == "error: the target 'kind' must hold at least 2 classes, got only 'one'\n"
        chosen = ("evaluate", "learner", "labels.csv", "--target", "kind", "--drop", "a")
        assert "are for models that know no columns; learner: a, b, c" in error_of(*chosen, code=2)


def neighbours(text):
    """Lines of CSV, as numbers where they are."""
    head, *lines = csv.reader(io.StringIO(text))
    assert head == ["query", "rank", "id", "divergence"]
    return [(query, int(rank), found, float(value)) for query, rank, found, value in lines]


class TestSearch:
    @pytest.mark.parametrize("side", ["right", "left"])
    def test_items_do_not_find_themselves(self, learner, side):
        found = neighbours(run("search", "learner", "labels.csv", "-k", 4, "--side", side).stdout)
        matrix = learner.divergence_.pairwise(X)  # D(row, column)
        divergences = matrix if side == "right" else matrix.T.copy()
        np.fill_diagonal(divergences, np.inf)
        assert [(query, rank) for query, rank, _, _ in found] == [(str(q), r) for q in range(60) for r in range(1, 5)]
        values = np.array([value for *_, value in found]).reshape(60, 4)
        np.testing.assert_allclose(values, np.sort(divergences, 1)[:, :4], atol=1e-9)
        ids = np.array([int(each) for _, _, each, _ in found]).reshape(60, 4)
        np.testing.assert_allclose(divergences[np.arange(60)[:, None], ids], values, atol=1e-9)

    @pytest.mark.parametrize("alone", [True, False])
    def test_queries_are_searched_for_in_blocks(self, learned, alone):
        index = BregmanIndex(learned.divergence_)
        index.add(X)
        blocks, whole = (list(neighbors_of(index, X, 4, alone=alone, quiet=True, at_once=each)) for each in (7, 60))
        assert len(whole) == 240
        assert blocks == whole

    def test_duplicates_hide_no_neighbour(self, folder):
        bregnet.save(bregnet.divergence("sqeuclidean"), "plain")
        np.save("same.npy", np.zeros((5, 2)))
        found = neighbours(run("search", "plain", "same.npy", "-k", 2).stdout)
        assert [(query, each) for query, _, each, _ in found if query == each] == []
        assert len(found) == 10

    def test_queries_names_and_files(self, learner, folder):
        pd.read_csv("named.csv")[:5].assign(name=[f"new {each}" for each in range(5)]).to_csv("new.csv", index=False)
        search = ("search", "learner", "named.csv", "--queries", "new.csv", "--id", "name", "-k", 2)
        result = run(*search, "-o", "out.csv")
        assert (result.stdout, result.stderr) == ("", "10 neighbors written to out.csv\n")
        found = neighbours((folder / "out.csv").read_text())
        assert [query for query, rank, _, _ in found if rank == 1] == [f"new {each}" for each in range(5)]
        assert {each for _, _, each, _ in found} <= set(NAMES)
        divergences = learner.divergence_.pairwise(X[:5], X)
        nearest = [value for _, rank, _, value in found if rank == 1]
        np.testing.assert_allclose(nearest, divergences.min(1), atol=1e-9)
        run(*search, "-o", "out.jsonl", "--quiet")
        lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
        assert [tuple(line.values()) for line in lines] == found
        assert list(lines[0]) == ["query", "rank", "id", "divergence"]
        assert run(*search, "--format", "jsonl").stdout == (folder / "out.jsonl").read_text()
        pd.read_csv("labels.csv").assign(code=range(100, 160)).to_csv("codes.csv", index=False)
        coded = run("search", "learner", "codes.csv", "--id", "code", "-k", 1, "--format", "jsonl").stdout
        assert [json.loads(line)["query"] for line in coded.splitlines()] == list(range(100, 160))  # numbers

    def test_ten_or_all(self, folder):
        bregnet.save(bregnet.divergence("sqeuclidean"), "plain")
        assert len(neighbours(run("search", "plain", "X.npy").stdout)) == 600
        np.save("few.npy", X[:4])
        assert len(neighbours(run("search", "plain", "few.npy").stdout)) == 12
        said = "error: -k must be at most 3, as many items as a query can find, got 4"
        assert error_of("search", "plain", "few.npy", "-k", 4) == said
        np.save("one.npy", X[:1])
        assert "beside the query itself, got none" in error_of("search", "plain", "one.npy")

    def test_saved_indexes_and_estimators(self, folder):
        index = BregmanIndex("sqeuclidean")
        index.add(X, ids=np.arange(100, 160))
        index.save("items")
        np.save("new.npy", X[:3] + 0.01)
        found = neighbours(run("search", "items", "--queries", "new.npy", "-k", 1).stdout)
        assert [(query, each) for query, _, each, _ in found] == [("0", "100"), ("1", "101"), ("2", "102")]
        bregnet.save(BregmanKNeighborsClassifier("sqeuclidean").fit(X, LABELS), "classifier")
        found = neighbours(run("search", "classifier", "--queries", "new.npy", "-k", 1).stdout)
        assert [each for _, _, each, _ in found] == ["0", "1", "2"]
        assert "--queries must be given" in error_of("search", "items", code=2)
        side = ("search", "items", "--queries", "new.npy", "--side", "left")
        assert "--side must be right, that of the items of items, got left" in error_of(*side, code=2)

    def test_errors(self, model, learner, folder):
        assert "ITEMS must be given to search with learner" in error_of("search", "learner", code=2)
        said = "error: search needs a model with a divergence, got model, which holds a DCRegressor"
        assert error_of("search", "model", "X.npy") == said
        bregnet.save(bregnet.divergence("kl"), "kl")
        assert error_of("search", "kl", "X.npy", "-o", "out.csv").startswith("error: ")
        assert "folder that exists" in error_of("search", "learner", "X.npy", "-o", "no/out.csv")
        assert not list(folder.glob("out*"))


class TestCluster:
    def test_clusters(self, learner, folder):
        command = ("cluster", "learner", "named.csv", "-k", 2, "--target", "kind", "--id", "name", "--seed", 3)
        result = run(*command, "--save", "clusters")
        head, *lines = csv.reader(io.StringIO(result.stdout))
        assert head == ["name", "cluster"]
        assert [name for name, _ in lines] == NAMES.tolist()
        found = np.array([int(number) for _, number in lines])
        expected = BregmanKMeans(2, divergence=learner.divergence_, n_init=5, random_state=3).fit(X)
        np.testing.assert_array_equal(found, expected.labels_)
        sizes = ", ".join(map(str, np.bincount(found)))
        mutual, rand = normalized_mutual_info_score(LABELS, found), adjusted_rand_score(LABELS, found)
        assert result.stderr.splitlines() == [
            f"2 clusters of {sizes} rows, inertia {expected.inertia_:.6g}",
            f"agreement with 'kind': NMI {mutual:.3f}, adjusted Rand {rand:.3f}, purity {purity(LABELS, found):.3f}",
        ]
        again = run("predict", "clusters", "labels.csv").stdout.splitlines()[1:]
        assert again == [str(number) for number in found]
        run(*command, "-o", "out.csv", "--quiet")
        assert (folder / "out.csv").read_text() == result.stdout

    def test_rows_have_numbers(self, folder):
        bregnet.save(bregnet.divergence("sqeuclidean"), "plain")
        head, *lines = run("cluster", "plain", "X.npy", "-k", 3, "--quiet").stdout.splitlines()
        assert head == "row,cluster"
        assert [line.split(",")[0] for line in lines] == [str(number) for number in range(60)]

    def test_errors(self, model, learner):
        assert (
            error_of("cluster", "learner", "X.npy", "-k", 61)
            == "error: -k must be at most the 60 rows of X.npy, got 61"
        )
        said = "error: cluster needs a model with a divergence, got model, which holds a DCRegressor"
        assert error_of("cluster", "model", "X.npy", "-k", 2) == said


class TestPredict:
    def test_values(self, model, folder):
        result = run("predict", "model", "numbers.csv", "-o", "out.csv")
        assert (result.stdout, result.stderr) == ("", "60 predictions written to out.csv\n")
        expected = model.function_(X)
        first, *others = (folder / "out.csv").read_text().splitlines()
        assert first == "prediction"
        np.testing.assert_array_equal([float(each) for each in others], expected)
        run("predict", "model", "X.npy", "-o", "out.npy")
        np.testing.assert_array_equal(np.load("out.npy"), expected)
        run("predict", "model", "numbers.npz", "-o", "out.npy")
        np.testing.assert_array_equal(np.load("out.npy"), expected)

    @pytest.mark.parametrize("output", [[], ["-o", "-"]])
    def test_standard_input_and_output(self, model, folder, output):
        result = run("predict", "model", "-", *output, given=(folder / "numbers.csv").read_bytes())
        first, *others = result.stdout.splitlines()
        assert (first, result.stderr) == ("prediction", "")
        np.testing.assert_array_equal([float(each) for each in others], model.function_(X))

    def test_labels(self, folder):
        classifier = BregmanKNeighborsClassifier("sqeuclidean").fit(pd.read_csv("labels.csv")[["a", "b", "c"]], LABELS)
        bregnet.save(classifier, "classifier")
        expected = KNeighborsClassifier().fit(X, LABELS).predict(X)
        assert run("predict", "classifier", "labels.csv").stdout.splitlines()[1:] == expected.tolist()
        run("predict", "classifier", "labels.csv", "-o", "out.npy")
        np.testing.assert_array_equal(np.load("out.npy"), expected)

    def test_columns_are_found_by_name(self, model):
        pd.read_csv("numbers.csv")[["c", "y", "b", "a"]].to_csv("mixed.csv", index=False)
        run("predict", "model", "mixed.csv", "-o", "out.npy")
        np.testing.assert_array_equal(np.load("out.npy"), model.function_(X))

    def test_a_model_without_names(self, folder):
        bregnet.save(ConvexRegressor(**SAME).fit(X, Y), "model")
        pd.DataFrame(X).to_csv("plain.csv", index=False)
        run("predict", "model", "plain.csv", "-o", "out.npy")
        np.testing.assert_array_equal(np.load("out.npy"), bregnet.load("model").predict(X))
        assert "must have the 3 features of the model, got 4" in error_of(
            "predict", "model", "numbers.csv", "-o", "out.npy"
        )

    def test_errors(self, model, folder):
        pd.DataFrame(X[:, :2], columns=["a", "d"]).to_csv("other.csv", index=False)
        said = "error: other.csv must have the columns of the model, got none named 'b', 'c'"
        assert error_of("predict", "model", "other.csv", "-o", "out.csv") == said
        np.save("narrow.npy", X[:, :2])
        assert "3 features of the model, got 2" in error_of("predict", "model", "narrow.npy", "-o", "out.csv")
        np.save("nan.npy", X * np.nan)
        assert error_of("predict", "model", "nan.npy", "-o", "out.csv") == "error: Input X contains NaN."
        assert "none" in error_of("predict", "none", "X.npy", "-o", "out.csv")
        assert "is not a model of bregnet" in error_of("predict", "X.npy", "X.npy", "-o", "out.csv")
        bregnet.save(PBDL(**SAME).fit(X, LABELS), "learner")
        said = "error: predict needs rows with labels for learner, which holds a PBDL without rows; give --known TABLE"
        assert error_of("predict", "learner", "X.npy", "-o", "out.csv").startswith(said)
        bregnet.save(bregnet.DifferenceOfConvex(*[bregnet.MaxAffine([[1.0]], [0.0])] * 2), "difference")
        said = "error: predict needs a regression, a classifier or clusters, got difference: a DifferenceOfConvex"
        assert error_of("predict", "difference", "X.npy", "-o", "out.csv") == said
        assert "--output must end in .csv or .npy" in error_of("predict", "model", "X.npy", "-o", "out.txt", code=2)
        assert not list(folder.glob("out*"))


class TestInfo:
    def test_text(self, model):
        lines = run("info", "model").stdout.splitlines()
        found = {line[:15].strip(): line[15:] for line in lines}
        assert found == {
            "kind": "DCRegressor",
            "generator": repr(model.function_),
            "features": "3",
            "feature names": "a, b, c",
            "pieces": str(sum(each.n_pieces for each in (model.function_.convex, model.function_.concave))),
            "alpha": f"{model.alpha_:.6g}",
            "gap": f"{model.gap_:.6g}",
            "temperature": "0",
            "status": model.result_.status,
            "written by": f"bregnet {bregnet.__version__}",
            "format": "1",
            "read by": found["read by"],
        }
        for name in ("bregnet", "torch", "numpy", "scikit-learn"):
            assert f"{name} {version(name)}" in found["read by"]

    def test_json(self, folder):
        fitted = PBDL(**SAME, companion=bregnet.SquaredEuclidean()).fit(X, LABELS)
        fitted.threshold_ = np.inf
        bregnet.save(fitted, "model")
        found = json.loads(run("info", "model", "--json").stdout)
        assert found["kind"] == "PBDL"
        assert found["generator"] == repr(fitted.divergence_.generator)
        assert found["pieces"] == fitted.function_.n_pieces
        assert found["classes"] == ["high", "low"]
        assert found["threshold"] == "inf"
        assert found["gap"] == fitted.gap_

    def test_many_names_are_cut_short(self, folder):
        many = pd.DataFrame(
            np.tile(X, 10), columns=[f"a feature of which there are very many: {each}" for each in range(30)]
        )
        labels = np.where(X[:, 0] > 0, "a class with a name that is hardly ever written in full", "low")
        bregnet.save(PBDL(**SAME).fit(many, labels), "model")
        said = run("info", "model").stdout
        assert f"{sorted(set(labels))[0][:37]}..., low" in said
        assert f"..., {many.columns[0][:37]}... and 10 more\n" in said
        assert json.loads(run("info", "model", "--json").stdout)["classes"] == sorted(set(labels))

    def test_generators(self, folder):
        bregnet.save(bregnet.divergence("kl"), "model")
        found = json.loads(run("info", "model", "--json").stdout)
        assert found == {
            "kind": "BregmanDivergence",
            "generator": "KullbackLeibler()",
            "written_by": f"bregnet {bregnet.__version__}",
            "format": 1,
            "read_by": found["read_by"],
        }

    def test_a_classifier_and_what_it_learned(self, folder):
        fitted = BregmanKNeighborsClassifier(PBDL(**SAME, alpha=0.02), 3).fit(X, LABELS)
        bregnet.save(fitted, "model")
        found = json.loads(run("info", "model", "--json").stdout)
        assert (found["kind"], found["learner"], found["alpha"]) == ("BregmanKNeighborsClassifier", "PBDL", 0.02)
        assert (found["items"], found["n_neighbors"], found["features"]) == (60, 3, 3)
        assert (found["gap"], found["status"]) == (fitted.learner_.gap_, fitted.learner_.result_.status)

    def test_clusters_and_indexes(self, folder):
        bregnet.save(BregmanKMeans(4, random_state=0).fit(X), "model")
        found = json.loads(run("info", "model", "--json").stdout)
        assert (found["kind"], found["n_clusters"], found["features"]) == ("BregmanKMeans", 4, 3)
        index = BregmanIndex("kl", side="left")
        index.add(np.abs(X))
        index.save("items")
        found = json.loads(run("info", "items", "--json").stdout)
        assert (found["kind"], found["items"], found["side"]) == ("BregmanIndex", 60, "left")
        assert (found["generator"], found["searched_by"]) == ("KullbackLeibler()", "inner products")

    def test_what_is_not_a_number_is_a_word(self, folder):
        fitted = PBDL(**SAME).fit(X, LABELS)
        fitted.threshold_ = np.inf
        bregnet.save(fitted, "model")
        found = json.loads(run("info", "model", "--json").stdout, parse_constant=pytest.fail)
        assert found["threshold"] == "inf"

    def test_errors(self, folder):
        assert error_of("info", "none") == "error: no such file: none"
        assert "is not a model of bregnet" in error_of("info", "X.npy")
        assert "must be a folder written by save" in error_of("info", ".")
