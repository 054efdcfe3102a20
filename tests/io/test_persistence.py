import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold

import bregnet
from bregnet import (
    PBDL,
    PBDLCV,
    BregmanDivergence,
    BregmanIndex,
    ConvexRegressor,
    ConvexRegressorCV,
    DCRegressor,
    DCRegressorCV,
    DifferenceOfConvex,
    Generator,
    ItakuraSaito,
    KullbackLeibler,
    Logistic,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
    UnreadableFileError,
)
from bregnet._core.files import digest, write_tensors
from bregnet.io import kinds, model_files

RNG = np.random.default_rng(0)
X = RNG.uniform(0.1, 0.9, (40, 3))
Y = np.square(X).sum(1) + 0.1 * RNG.standard_normal(40)
LABELS = np.where(X[:, 0] > 0.5, "high", "low")
PLAIN = [KullbackLeibler(), ItakuraSaito(), Logistic(), SquaredEuclidean(), KullbackLeibler().to(torch.float32)]


def again(obj, folder):
    """What is left of an object after a file."""
    path = folder / "saved.bregnet"
    bregnet.save(obj, path)
    assert [each.name for each in folder.iterdir()] == [path.name]
    found = bregnet.load(path)
    assert type(found) is type(obj)
    return found


def random_generator(seed, depth=0):
    rng = np.random.default_rng(seed)
    kind = rng.integers(5 if depth else 6)
    dtype = np.float32 if rng.random() < 0.3 else np.float64
    if kind <= 1:
        slopes = rng.standard_normal((rng.integers(1, 6), 3)).astype(dtype)
        strictness = [0.0, 0.5, rng.random(3)][rng.integers(3)]
        temperature = float(rng.choice([0.0, 0.3]))
        return MaxAffine(
            slopes, rng.standard_normal(len(slopes)).astype(dtype), temperature=temperature, strictness=strictness
        )
    if kind == 2:
        root = rng.standard_normal((3, 3)).astype(dtype)
        return Quadratic(root @ root.T)
    if kind == 3:
        return SquaredEuclidean(rng.random(3).astype(dtype))
    if kind == 4:
        return PLAIN[rng.integers(len(PLAIN))]
    parts = [float(rng.random()) * random_generator([seed, number], 1) for number in range(rng.integers(1, 4))]
    return sum(parts)


def assert_same_function(found, expected):
    assert repr(found) == repr(expected)
    for points in (X, X.astype(np.float32)):
        got, wanted = found(points), expected(points)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(found.gradient(points), expected.gradient(points))


def assert_same_estimator(found, model):
    learned = {name for name in vars(model) if name.endswith("_")}
    assert {name for name in vars(found) if name.endswith("_")} == learned
    assert found.get_params().keys() == model.get_params().keys()
    assert_same_function(found.function_, model.function_)
    np.testing.assert_array_equal(found.feature_bounds_, model.feature_bounds_)
    for name in learned & {"result_", "gap_", "n_iter_", "n_features_in_", "threshold_", "target_range_"}:
        assert getattr(found, name) == getattr(model, name)
    for name in learned & {"classes_", "feature_names_in_"}:
        np.testing.assert_array_equal(getattr(found, name), getattr(model, name))
        assert getattr(found, name).dtype.kind == getattr(model, name).dtype.kind
    if "divergence_" in learned:
        np.testing.assert_array_equal(found.divergence_.pairwise(X), model.divergence_.pairwise(X))
    else:
        np.testing.assert_array_equal(found.predict(X), model.predict(X))


def same_parameters(found, model, *, but=()):
    kept = set(model.get_params(deep=False)) - set(but)
    for name in kept:
        np.testing.assert_equal(found.get_params(deep=False)[name], model.get_params(deep=False)[name])
    return True


@pytest.fixture(scope="module")
def regressor():
    return ConvexRegressor(0.05, n_pieces=5, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def learner():
    return PBDL(0.05, n_pieces=6, temperature=0.1, random_state=0).fit(X, LABELS)


@pytest.fixture(scope="module")
def search():
    return DCRegressorCV([0.1, 0.01], cv=2, refinements=0, n_pieces=5, random_state=0).fit(X, Y)


class TestFunctions:
    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 2**32 - 1))
    def test_generators(self, tmp_path_factory, seed):
        generator = random_generator(seed)
        assert_same_function(again(generator, tmp_path_factory.mktemp("saved")), generator)

    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 2**32 - 1))
    def test_divergences(self, tmp_path_factory, seed):
        divergence = BregmanDivergence(random_generator(seed))
        found = again(divergence, tmp_path_factory.mktemp("saved"))
        np.testing.assert_array_equal(found.pairwise(X), divergence.pairwise(X))
        np.testing.assert_array_equal(found.paired(X, X[::-1]), divergence.paired(X, X[::-1]))

    def test_differences(self, tmp_path):
        convex, concave = MaxAffine(X, Y), 2.0 * MaxAffine(X[:4], Y[:4], temperature=0.1) + SquaredEuclidean()
        difference = DifferenceOfConvex(convex + SquaredEuclidean([1.0, 2.0, 3.0]), concave)
        found = again(difference, tmp_path)
        np.testing.assert_array_equal(found(X), difference(X))

    def test_parts_of_one_tensor(self, tmp_path):
        slopes = torch.as_tensor(RNG.standard_normal((2, 4, 3)), dtype=torch.float64).requires_grad_()
        intercepts = torch.zeros(4, dtype=torch.float64)
        difference = DifferenceOfConvex(MaxAffine(slopes[0], intercepts), MaxAffine(slopes[1], intercepts))
        np.testing.assert_array_equal(again(difference, tmp_path)(X), difference(X))

    def test_a_tensor_that_is_used_twice_is_written_once(self, tmp_path):
        big = MaxAffine(RNG.standard_normal((2000, 3)), np.zeros(2000))
        bregnet.save(big, tmp_path / "one")
        bregnet.save(DifferenceOfConvex(big, big), tmp_path / "two")
        assert os.path.getsize(tmp_path / "two") < 1.1 * os.path.getsize(tmp_path / "one")
        np.testing.assert_array_equal(bregnet.load(tmp_path / "two")(X), np.zeros(len(X)))


class TestEstimators:
    @pytest.mark.parametrize(
        "model",
        [
            ConvexRegressor(0.05, monotone=np.array([1, 0, 0]), n_pieces=5, random_state=0),
            ConvexRegressor(np.float64(0.05), monotone=[1, 0, -1], n_pieces=np.int64(5), clip=True),
            ConvexRegressor(0.05, device=torch.device("cpu"), temperature=0.2, warm_start=True, standardize=False),
            DCRegressor(0.05, n_pieces=None, clip=True, tol=0.1),
            DCRegressor(0.05, n_pieces=5, temperature=0.1, random_state=3),
        ],
    )
    def test_regressors(self, tmp_path, model):
        model.fit(X, Y)
        found = again(model, tmp_path)
        assert_same_estimator(found, model)
        assert same_parameters(found, model)
        assert found.result_.history == model.result_.history
        assert found.score(X, Y) == model.score(X, Y)

    @pytest.mark.parametrize("companion", [None, "within", SquaredEuclidean([1.0, 2.0, 3.0]), 0.5 * SquaredEuclidean()])
    def test_learner(self, tmp_path, companion):
        model = PBDL(0.05, n_pieces=6, temperature=0.1, strictness=0.1, companion=companion, random_state=0)
        model.fit(X, LABELS)
        found = again(model, tmp_path)
        assert_same_estimator(found, model)
        assert same_parameters(found, model, but=["companion"])
        assert repr(found.companion) == repr(model.companion)
        np.testing.assert_array_equal(found.is_similar(X, X[::-1]), model.is_similar(X, X[::-1]))
        assert found.score(X, LABELS) == model.score(X, LABELS)

    @pytest.mark.parametrize(
        "labels",
        [
            LABELS.astype(object),
            LABELS == "low",
            (LABELS == "low").astype(np.int16),
            (LABELS == "low") + 0.0,
            np.where(LABELS == "low", "niedrig ü", "\ud800"),
        ],
    )
    def test_labels(self, tmp_path, labels):
        model = PBDL(0.05, n_pieces=6, tol=0.5, random_state=0).fit(X, labels)
        found = again(model, tmp_path)
        assert_same_estimator(found, model)
        assert found.classes_.tolist() == model.classes_.tolist()

    def test_a_learner_without_classes(self, tmp_path):
        model = PBDL(0.05, tol=0.5).fit_pairs(X, [[0, 1], [2, 3], [0, 2]], [True, False, True])
        assert_same_estimator(again(model, tmp_path), model)

    def test_everything_is_similar(self, tmp_path, learner):
        model = pickle.loads(pickle.dumps(learner)).calibrate(X, X[::-1], LABELS[::-1] == LABELS)
        model.threshold_ = np.inf
        assert again(model, tmp_path).threshold_ == np.inf

    def test_feature_names(self, tmp_path):
        frame = pd.DataFrame(X, columns=["a", "b", "ü"])
        model = ConvexRegressor(0.05, n_pieces=5, random_state=0).fit(frame, Y)
        found = again(model, tmp_path)
        assert_same_function(found.function_, model.function_)
        np.testing.assert_array_equal(found.predict(frame), model.predict(frame))
        with pytest.raises(ValueError, match="feature names should match"):
            found.predict(frame[["b", "a", "ü"]])

    def test_a_callback_is_not_saved(self, tmp_path):
        model = DCRegressor(0.05, n_pieces=5, callback=lambda check: True, random_state=np.random.RandomState(0))
        found = again(model.fit(X, Y), tmp_path)
        assert found.result_.stopped
        assert (found.callback, found.random_state) == (None, None)

    def test_a_loaded_estimator_fits_again(self, tmp_path, regressor):
        found = again(regressor, tmp_path).fit(X, Y)
        np.testing.assert_array_equal(found.predict(X), regressor.predict(X))

    @pytest.mark.parametrize("ensemble", [False, True])
    @pytest.mark.parametrize("kind", [ConvexRegressorCV, DCRegressorCV])
    def test_searches_for_regressors(self, tmp_path, kind, ensemble):
        model = kind([0.1, 0.01], cv=KFold(2), refinements=0, ensemble=ensemble, n_pieces=5, random_state=0).fit(X, Y)
        self.check_search(model, again(model, tmp_path))

    def test_search_for_a_divergence(self, tmp_path):
        model = PBDLCV((0.1, 0.01), cv=2, refinements=0, feature_map=None, n_pieces=5, random_state=0).fit(X, LABELS)
        found = again(model, tmp_path)
        self.check_search(model, found)
        assert found.alphas == (0.1, 0.01)
        assert found.cv == 2

    def test_choices_of_a_search_that_are_numbers_of_numpy(self, tmp_path):
        options = {"cv": 2, "refinements": 0, "random_state": 0}
        model = ConvexRegressorCV([0.1], n_pieces=[None, np.int64(1)], **options).fit(X, Y)
        found = again(model, tmp_path)
        assert found.best_params_ == model.best_params_
        assert found.cv_results_["params"] == model.cv_results_["params"]
        assert {each["n_pieces"] for each in found.cv_results_["params"]} == {None, 1}

    @staticmethod
    def check_search(model, found):
        assert_same_estimator(found, model)
        assert same_parameters(found, model, but=["cv"])
        assert_same_estimator(found.best_estimator_, model.best_estimator_)
        np.testing.assert_equal(found.cv_results_, model.cv_results_)
        assert list(found.cv_results_) == list(model.cv_results_)
        for name in ("alpha_", "temperature_", "best_score_", "best_index_", "n_splits_", "n_fits_"):
            assert getattr(found, name) == getattr(model, name)


class TestWhatCannotBeSaved:
    @pytest.mark.parametrize("model", [ConvexRegressor(), DCRegressor(), PBDL(), PBDLCV(), ConvexRegressorCV()])
    def test_not_fitted(self, tmp_path, model):
        with pytest.raises(NotFittedError):
            bregnet.save(model, tmp_path / "saved")
        assert not list(tmp_path.iterdir())

    def test_other_objects(self, tmp_path, regressor):
        class Mine(ConvexRegressor):
            pass

        for obj in ({"a": 1}, None, ConvexRegressor, Mine().fit(X, Y)):
            with pytest.raises(
                TypeError, match="only generators and these types can be saved: BregmanDivergence, Bregman"
            ):
                bregnet.save(obj, tmp_path / "saved")
        assert not list(tmp_path.iterdir())

    def test_generators_whose_parameters_are_unknown(self, tmp_path):
        class Forgetful(Exponential):
            def __init__(self, rate, *, type=None):
                self._rates = 2 * torch.as_tensor(rate)

        class Callable(Exponential):
            def __init__(self, rate):
                self.rate = rate

        class Typed(Exponential):
            def __init__(self, type=1):
                self.type = type

        for generator, message in (
            (Forgetful(1.0), "Forgetful must have an attribute 'rate'"),
            (Callable(print), "object.rate cannot be saved"),
            (Typed(), "must have another name than 'type'"),
        ):
            with pytest.raises(TypeError, match=message):
                bregnet.save(generator, tmp_path / "saved")
        assert not list(tmp_path.iterdir())


class Exponential(Generator):
    """f(x) = sum_l w_l exp(r x_l), with a parameter of each sort."""

    def __init__(self, rate=1.0, weights=None, *, label="plain", centre=None, bounds=(0.0, np.inf), added=None):
        self.rate, self.label, self.bounds, self.added = rate, label, bounds, added
        self.centre = None if centre is None else np.asarray(centre)
        if weights is not None:
            self._n_features = len(weights)
        self._weights = None if weights is None else torch.as_tensor(weights)

    def __repr__(self):
        return f"Exponential({self.rate}, {self.label!r}, {self.bounds}, {self.added})"

    def _scaled(self, x):
        return (self.rate * x).exp() * (1.0 if self._weights is None else self._weights)

    def _values(self, x):
        return self._scaled(x).sum(1) + (0.0 if self.added is None else self.added._values(x))

    def _gradients(self, x):
        return self.rate * self._scaled(x) + (0.0 if self.added is None else self.added._gradients(x))


class Cubed(Generator, saved_as="cube"):
    """f(x) = sum_l x_l^3 for positive x, which keeps its exponent elsewhere."""

    def __init__(self, power):
        self._exponents = [power]

    def _saved_parameters(self):
        return {"power": self._exponents[0]}

    def _values(self, x):
        return (x ** self._exponents[0]).sum(1)

    def _gradients(self, x):
        return self._exponents[0] * x ** (self._exponents[0] - 1)


class TestGeneratorsOfOnesOwn:
    @pytest.mark.parametrize(
        "generator",
        [
            Exponential(),
            Exponential(0.5, np.array([1.0, 2.0, 3.0]), label="weighed", bounds=[1, None, "two"]),
            Exponential(
                added=Exponential(2.0, np.ones(3), centre=np.arange(6).reshape(2, 3))
                + 2.0 * SquaredEuclidean(np.ones(3))
            ),
            Exponential().to(torch.float32),
            Cubed(3),
            Cubed(2) + 0.5 * Exponential(2.0) + KullbackLeibler(),
        ],
        ids=repr,
    )
    def test_come_back(self, tmp_path, generator):
        found = again(generator, tmp_path)
        assert repr(found) == repr(generator)
        assert_same_function(found, generator)
        assert_same_function(again(BregmanDivergence(generator), tmp_path).generator, generator)
        difference = again(DifferenceOfConvex(generator, generator), tmp_path)
        assert_same_function(difference.concave, generator)

    def test_arrays_come_back_as_they_were(self, tmp_path):
        found = again(Exponential(weights=np.ones(3), centre=np.arange(3)), tmp_path)
        assert found.centre.dtype == int
        np.testing.assert_array_equal(found.centre, [0, 1, 2])

    def test_in_models_and_indexes(self, tmp_path):
        model = PBDL(0.05, n_pieces=5, tol=0.5, companion=Cubed(2)).fit(X, LABELS)
        assert repr(again(model, tmp_path).divergence_) == repr(model.divergence_)
        index = BregmanIndex(Cubed(2), kind="ivf", random_state=0)
        index.add(X)
        found = again(index, tmp_path)
        index.save(tmp_path / "folder")
        for each in (found, BregmanIndex.load(tmp_path / "folder", mmap=True)):
            np.testing.assert_array_equal(each.search(X, 3)[1], index.search(X, 3)[1])

    def test_must_have_been_imported(self, tmp_path):
        bregnet.save(Cubed(3), tmp_path / "saved")
        index = BregmanIndex(Cubed(2))
        index.add(X)
        index.save(tmp_path / "folder")
        code = "import sys, bregnet; (bregnet.BregmanIndex if sys.argv[2] else bregnet).load(sys.argv[1])"
        for name, is_index in (("saved", ""), ("folder", "yes")):
            command = [sys.executable, "-c", code, str(tmp_path / name), is_index]
            errors = subprocess.run(command, capture_output=True, text=True, check=False).stderr
            assert f"{name} cannot be read: it holds a 'cube', which is unknown here" in errors
            assert "import the module that defines it first" in errors

    def test_one_name_is_for_one_class(self):
        with pytest.raises(ValueError, match="saved_as must be a name of its own, got 'MaxAffine'"):

            class Impostor(Exponential, saved_as="MaxAffine"):
                pass


class TestWriting:
    def test_a_file_that_is_there_is_replaced(self, tmp_path):
        again(KullbackLeibler(), tmp_path)
        assert_same_function(again(Logistic(), tmp_path), Logistic())

    def test_others_may_read_it_as_any_new_file(self, tmp_path):
        (tmp_path / "plain").touch()
        bregnet.save(KullbackLeibler(), tmp_path / "saved")
        assert (tmp_path / "saved").stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_through_a_link(self, tmp_path):
        (tmp_path / "link").symlink_to(tmp_path / "saved")
        bregnet.save(KullbackLeibler(), str(tmp_path / "link"))
        assert (tmp_path / "link").is_symlink()
        assert repr(bregnet.load(str(tmp_path / "saved"))) == "KullbackLeibler()"

    @pytest.mark.parametrize("step", ["bregnet._core.files.save_file", "os.fsync", "os.replace"])
    @pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
    def test_a_save_that_fails_leaves_what_was_there(self, tmp_path, monkeypatch, step, error):
        bregnet.save(KullbackLeibler(), tmp_path / "saved")

        def fail(*_, **__):
            raise error

        monkeypatch.setattr(step, fail)
        for path in (tmp_path / "saved", tmp_path / "new"):
            with pytest.raises(type(error)):
                bregnet.save(Logistic(), path)
        monkeypatch.undo()
        assert [each.name for each in tmp_path.iterdir()] == ["saved"]
        assert repr(bregnet.load(tmp_path / "saved")) == "KullbackLeibler()"

    def test_a_process_that_dies_before_the_file_takes_its_place(self, tmp_path, monkeypatch):
        bregnet.save(KullbackLeibler(), tmp_path / "saved")
        synced = []
        fsync = os.fsync
        monkeypatch.setattr("os.fsync", lambda number: synced.append(number) or fsync(number))
        monkeypatch.setattr("os.replace", lambda made, path: synced.append((made.read_bytes(), path)))
        bregnet.save(Logistic(), tmp_path / "saved")
        assert isinstance(synced[0], int)  # on the disk before it gets its name
        written, path = synced[1]
        assert repr(bregnet.load(tmp_path / "saved")) == "KullbackLeibler()"
        path.write_bytes(written)
        assert repr(bregnet.load(tmp_path / "saved")) == "Logistic()"

    def test_bad_places(self, tmp_path):
        with pytest.raises(IsADirectoryError, match="path must be a file"):
            bregnet.save(KullbackLeibler(), tmp_path)
        with pytest.raises(FileNotFoundError, match="path must lie in a folder that exists"):
            bregnet.save(KullbackLeibler(), tmp_path / "no" / "such")


def edited(whole, change):
    """The bytes of a file with another header of ours, checksum included where `change` keeps it right."""
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    about = json.loads(header["__metadata__"]["bregnet"])
    change(about)
    text = json.dumps({**header, "__metadata__": {"bregnet": json.dumps(about)}}).encode()
    return len(text).to_bytes(8, "little") + text + whole[8 + length :]


class TestReading:
    def test_no_such_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            bregnet.load(tmp_path / "none")

    def test_cut_short(self, tmp_path, learner):
        bregnet.save(learner, tmp_path / "saved")
        whole = (tmp_path / "saved").read_bytes()
        for size in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
            (tmp_path / "saved").write_bytes(whole[:size])
            with pytest.raises(UnreadableFileError, match="is not a model of bregnet, or was damaged"):
                bregnet.load(tmp_path / "saved")

    @settings(max_examples=150, deadline=None)
    @given(place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
    def test_any_byte_altered(self, tmp_path_factory, learner, place, mask):
        path = tmp_path_factory.mktemp("saved") / "saved"
        bregnet.save(learner, path)
        whole = bytearray(path.read_bytes())
        whole[int(place * len(whole))] ^= mask
        path.write_bytes(whole)
        try:
            found = bregnet.load(path)
        except UnreadableFileError:
            return
        assert_same_estimator(found, learner)  # spaces, or the version that wrote it

    def test_something_else(self, tmp_path):
        contents = [b"hello", pickle.dumps(KullbackLeibler()), b"\x00" * 1000, b"\xff" * 1000]
        for content in contents:
            (tmp_path / "saved").write_bytes(content)
            with pytest.raises(UnreadableFileError, match="is not a model of bregnet, or was damaged"):
                bregnet.load(tmp_path / "saved")
        with pytest.raises(UnreadableFileError, match=r"opened by BregmanIndex\.load"):
            bregnet.load(tmp_path)

    def test_another_kind(self, tmp_path):
        index = BregmanIndex("kl")
        index.add(X)
        index.save(tmp_path / "index")
        with pytest.raises(UnreadableFileError, match="must hold a model, got a 'BregmanIndex'"):
            bregnet.load(tmp_path / "index" / "index.safetensors")

    def test_a_later_version(self, tmp_path):
        bregnet.save(KullbackLeibler(), tmp_path / "saved")
        whole = (tmp_path / "saved").read_bytes()
        (tmp_path / "saved").write_bytes(edited(whole, lambda about: about.update(version=99, bregnet="9.0")))
        with pytest.raises(UnreadableFileError, match=r"has version 99 of its format \(bregnet 9\.0\)"):
            bregnet.load(tmp_path / "saved")

    @pytest.mark.parametrize("text", ["[]", "3", '"a"', "[" * 100_000, "1" * 5000, "{", '{"holds": "model"}'])
    def test_headers_that_are_none(self, tmp_path, text):
        bregnet.save(KullbackLeibler(), tmp_path / "saved")
        header = json.dumps({"__metadata__": {"bregnet": text}}).encode()
        (tmp_path / "saved").write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(UnreadableFileError, match="is not a model of bregnet, or was damaged"):
            bregnet.load(tmp_path / "saved")


def forge(path, obj, change):
    """Write a file with a right checksum and a wrong content."""
    tensors = model_files.Tensors()
    content = {"state": kinds.write_any("object", obj, tensors), "same": tensors.same}
    stored = dict(tensors.stored)
    change(content, stored)
    header = {**content, "digest": digest(content, stored)}
    write_tensors(path, "model", model_files.VERSION, header, stored)


def at(*keys, value):
    """A change of one value in the state of an object."""

    def change(content, stored):
        inner = content["state"]
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


def tensor(name, value):
    def change(content, stored):
        content["same"].pop(f"object.{name}", None)
        stored[f"object.{name}"] = value

    return change


DEEP = {"type": "GeneratorSum", "weights": [1.0], "generators": []}
for _ in range(100):
    DEEP = {"type": "GeneratorSum", "weights": [1.0], "generators": [DEEP]}


class TestHostileFiles:
    def test_the_forger_writes_what_save_writes(self, tmp_path, learner):
        forge(tmp_path / "saved", learner, lambda content, stored: None)
        assert_same_estimator(bregnet.load(tmp_path / "saved"), learner)

    @pytest.mark.parametrize(
        "change",
        [
            at("type", value="os.system"),
            at("type", value="ConvexRegressor"),
            at("type", value="MaxAffine"),
            at("type", value=["PBDL"]),
            at("parameters", value=[]),
            at("parameters", "alpha", value={"pickle": "gASV"}),
            at("parameters", "alpha", value={}),
            at("parameters", "alpha", value=float("nan")),
            at("parameters", "callback", value="print"),
            at("parameters", "__class__", value="x"),
            at("parameters", "device", value={"device": "; import os"}),
            at("parameters", "companion", value={"generator": {"type": "Cubed"}}),
            at("parameters", "n_pieces", value={"array": 10**9}),
            at("fitted", value=None),
            at("fitted", "score", value=1.0),
            at("fitted", "target_range_", value=[0.0, 1.0]),
            at("fitted", "n_features_in_", value=4),
            at("fitted", "n_features_in_", value=True),
            at("fitted", "n_features_in_", value="3"),
            at("fitted", "n_iter_", value=-1),
            at("fitted", "n_iter_", value=1.5),
            at("fitted", "threshold_", value="1.0"),
            at("fitted", "threshold_", value=[]),
            at("fitted", "threshold_", value=10**400),
            at("fitted", "gap_", value=None),
            at("fitted", "feature_names_in_", value=["a", "b"]),
            at("fitted", "feature_names_in_", value=[1, 2, 3]),
            at("fitted", "classes_", value={"text": [1, 2], "object": False}),
            at("fitted", "classes_", value={"text": "ab", "object": False}),
            at("fitted", "classes_", value="array"),
            at("fitted", "function_", "type", value="Quadratic"),
            at("fitted", "function_", "type", value="DifferenceOfConvex"),
            at("fitted", "function_", value=DEEP),
            at("fitted", "function_", "temperature", value="0.1"),
            at("fitted", "function_", "temperature", value=-1.0),
            at("fitted", "function_", "temperature", value=float("inf")),
            at("fitted", "function_", value={"type": "KullbackLeibler"}),
            at("fitted", "divergence_", value={"generator": {"type": "KullbackLeibler"}}),
            at("fitted", "divergence_", value={}),
            at("fitted", "result_", "status", value=3),
            at("fitted", "result_", "converged", value="yes"),
            at("fitted", "result_", "n_iter", value=-3),
            at("fitted", "result_", value={}),
            tensor("function_.slopes", torch.full((6, 3), torch.nan, dtype=torch.float64)),
            tensor("function_.slopes", torch.zeros(6, 2, dtype=torch.float64)),
            tensor("function_.slopes", torch.zeros(6, 3, dtype=torch.bfloat16)),
            tensor("function_.intercepts", torch.zeros(50, dtype=torch.float64)),
            tensor("function_.temperature", torch.zeros(())),
            tensor("function_.more", torch.zeros(3)),
            tensor("feature_bounds_", torch.zeros(2, dtype=torch.float64)),
            tensor("feature_bounds_", torch.full((3,), torch.inf, dtype=torch.float64)),
            tensor("feature_bounds_", torch.zeros(3, dtype=torch.int64)),
            tensor("result_.history", torch.zeros(2, 7, dtype=torch.float64)),
            tensor("result_.history", torch.full((2, 4), torch.nan, dtype=torch.float64)),
            lambda content, stored: stored.pop("object.function_.slopes"),
            lambda content, stored: content["same"].update({"object.function_.slopes": "nowhere"}),
            lambda content, stored: content.update(same=[]),
            lambda content, stored: content.update(same={"object.function_.slopes": []}),
            lambda content, stored: content.update(state="PBDL"),
        ],
    )
    def test_are_refused(self, tmp_path, learner, change):
        forge(tmp_path / "saved", learner, change)
        with pytest.raises(
            UnreadableFileError, match=r"is not a model of bregnet, or was damaged|which is unknown here"
        ):
            bregnet.load(tmp_path / "saved")

    @pytest.mark.parametrize("value", [[1.0, 0.0], [0.0], "ab", [0.0, "inf"], 3, None])
    def test_ranges(self, tmp_path, regressor, value):
        forge(tmp_path / "saved", regressor, at("fitted", "target_range_", value=value))
        with pytest.raises(UnreadableFileError, match="was damaged"):
            bregnet.load(tmp_path / "saved")

    @pytest.mark.parametrize(
        "change",
        [
            at("fitted", "best_estimator_", "type", value="PBDL"),
            at("fitted", "best_estimator_", "type", value="KullbackLeibler"),
            at("fitted", "best_estimator_", "fitted", "n_features_in_", value=2),
            at("fitted", "cv_results_", value=["param_alpha"]),
            at("fitted", "cv_results_", value=["../x"]),
            at("fitted", "cv_results_", value={}),
            at("fitted", "alpha_", value="inf"),
            tensor("cv_results_.param_alpha", torch.zeros(1, dtype=torch.float64)),
        ],
    )
    def test_searches(self, tmp_path, search, change):
        forge(tmp_path / "saved", search, change)
        with pytest.raises(UnreadableFileError, match="was damaged"):
            bregnet.load(tmp_path / "saved")
