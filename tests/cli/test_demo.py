import json
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bregnet.reporting.numbers import shown
from tests.support.cli_runs import error_of, run


def test_through_the_real_entry_point(tmp_path):
    command = [sys.executable, "-m", "bregnet", "demo", "--data", "iris", "--report", "page.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "mAP" in line)
    rows = {line[:20].strip(): [float(each) for each in line[20:].split()] for line in lines[at + 1 : at + 7]}
    assert list(rows) == ["PBDL", "Euclid", "Euclid, raw features", "LDA", "NCA", "class probabilities"]
    rows = {name: [accuracy, precision] for name, (precision, accuracy, _) in rows.items()}

    X, y = load_iris(return_X_y=True)
    X, X_new, y, y_new = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    euclid = make_pipeline(StandardScaler(), KNeighborsClassifier(5)).fit(X, y)
    assert rows["Euclid"][0] == pytest.approx(euclid.score(X_new, y_new), abs=6e-4)
    nca = make_pipeline(StandardScaler(), NeighborhoodComponentsAnalysis(random_state=0)).fit(X, y)
    items, queries = nca.transform(X), nca.transform(X_new)
    distances = np.square(queries[:, None] - items).sum(2)
    precisions = [average_precision_score(y == own, -row) for own, row in zip(y_new, distances, strict=True)]
    assert rows["NCA"][1] == pytest.approx(np.mean(precisions), abs=6e-4)
    assert rows["PBDL"][1] > rows["Euclid"][1]
    lda = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()).fit(X, y)
    votes = KNeighborsClassifier(5).fit(lda.transform(X), y)
    assert rows["LDA"][0] == pytest.approx(votes.score(lda.transform(X_new), y_new), abs=6e-4)
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
    same = logistic.predict_proba(X_new) @ logistic.predict_proba(X).T
    precisions = [average_precision_score(y == own, row) for own, row in zip(y_new, same, strict=True)]
    assert rows["class probabilities"][1] == pytest.approx(np.mean(precisions), abs=6e-4)

    assert "certified gap" in done.stdout
    assert "bregnet fit table.csv --target COLUMN" in done.stderr
    assert "bregnet search model table.csv" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    page = (tmp_path / "page.html").read_text()
    assert "setosa" in page
    assert "petal length" in page
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!data:|#)[^"']*""", page) == []  # nothing is fetched


def test_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--data", "iris", "--seed", 1, "--json", "--quiet")
    found = json.loads(result.stdout)
    assert result.stderr == ""
    assert (found["data"], found["rows"]) == ("iris", {"known": 105, "held_out": 45})
    page = (tmp_path / found["report"]).read_text()
    for name, scores in found["scores"].items():  # the report has the same figures of the same rivals
        cells = "".join(rf"<td[^>]*>{shown(scores[each])}\b.*?</td>" for each in ("map", "accuracy", "nmi"))
        assert re.search(rf'<th scope="row">{name}</th>{cells}', page)
    assert found["fit"]["gap"] <= found["fit"]["tol"]


def test_the_report_must_have_a_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = error_of("demo", "--report", "no/page.html")
    assert said == "error: --report must lie in a folder that exists, got no/page.html"
