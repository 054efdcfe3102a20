"""Learnable functions and distances for deep metric learning."""

import copy
import importlib
import inspect
import math
import pickle
import re
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.distances import BaseDistance, LpDistance
from pytorch_metric_learning.testers import GlobalEmbeddingSpaceTester
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN, InferenceModel, MatchFinder
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, train_test_split
from torch.func import functional_call

import bregnet
import bregnet.nn
from bregnet import (
    PBDL,
    BregmanDivergence,
    BregmanIndex,
    BregmanRanker,
    ConvexRegressor,
    ItakuraSaito,
    KullbackLeibler,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
)
from bregnet.learners.soft_neighbors import soft_neighbor_loss
from bregnet.metrics import mean_average_precision
from bregnet.nn import BregmanDistance, BregmanKNN, LearnableMaxAffine

RNG = np.random.default_rng(0)
SLOPES, INTERCEPTS = 2 * RNG.standard_normal((6, 3)), RNG.standard_normal(6)
FACTOR = RNG.standard_normal((3, 2))
SMOOTH = MaxAffine(SLOPES, INTERCEPTS, temperature=0.3)
SOURCES = {
    "plain": MaxAffine(SLOPES, INTERCEPTS),
    "smooth": SMOOTH,
    "strict": MaxAffine(SLOPES, INTERCEPTS, temperature=0.3, strictness=[0.1, 0.0, 2.0]),
    "scaled": 0.25 * SMOOTH,
    "with a metric": SMOOTH + 3.0 * Quadratic(FACTOR @ FACTOR.T),
    "with all quadratics": 2.0 * MaxAffine(SLOPES, INTERCEPTS, temperature=0.3, strictness=0.5)
    + 0.5 * SquaredEuclidean()
    + SquaredEuclidean([1.0, 2.0, 3.0])
    + Quadratic(FACTOR @ FACTOR.T),
    "with what is not learned": SMOOTH + 2.0 * KullbackLeibler(),
}
X, Y = RNG.uniform(0.1, 3, (7, 3)), RNG.uniform(0.1, 3, (5, 3))


def tensors(*arrays, **kwargs):
    return [torch.as_tensor(array, **kwargs) for array in arrays]


class TestLearnableMaxAffine:
    @pytest.mark.parametrize("name", SOURCES)
    def test_starts_as_its_source(self, name):
        source = SOURCES[name]
        f, D = LearnableMaxAffine.from_generator(source), BregmanDivergence(source)
        x, y = tensors(X, Y)
        np.testing.assert_allclose(f(x).detach(), source(X), rtol=1e-12)
        np.testing.assert_allclose(f.divergence(x[:5], y).detach(), D.paired(X[:5], Y), rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(f.pairwise(x, y).detach(), D.pairwise(X, Y), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(f.pairwise(x).detach(), D.pairwise(X), rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("name", SOURCES)
    def test_gives_the_generator_back(self, name):
        back = LearnableMaxAffine.from_generator(SOURCES[name]).to_generator()
        np.testing.assert_allclose(back(X), SOURCES[name](X), rtol=1e-12)
        expected = BregmanDivergence(SOURCES[name]).pairwise(X, Y)
        np.testing.assert_allclose(BregmanDivergence(back).pairwise(X, Y), expected, rtol=1e-9, atol=1e-12)
        assert isinstance(back, MaxAffine) == (name in ("plain", "smooth", "strict", "scaled"))

    @pytest.mark.parametrize("learn_temperature", [False, True])
    @pytest.mark.parametrize("name", [name for name in SOURCES if name != "plain"])
    def test_gradients_reach_points_and_parameters(self, name, learn_temperature):
        f = LearnableMaxAffine.from_generator(SOURCES[name], learn_temperature=learn_temperature)
        names, values = zip(*f.named_parameters(), strict=True)
        assert ("log_temperature" in names) == learn_temperature

        class Everything(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.f = f

            def forward(self, x, y):
                return self.f(x), self.f.divergence(x, y), self.f.pairwise(x, y), self.f.pairwise(x)

        def evaluated(x, y, *parameters):
            given = {f"f.{key}": value for key, value in zip(names, parameters, strict=True)}
            return functional_call(Everything(), given, (x, y))

        inputs = [*(part[:3] for part in tensors(X, Y)), *(value.detach() for value in values)]
        assert torch.autograd.gradcheck(evaluated, [part.requires_grad_() for part in inputs], fast_mode=True)

    def test_gradients_of_a_plain_maximum(self):
        """Away from its edges: they reach all but the tangent points."""
        f = LearnableMaxAffine.from_generator(SOURCES["plain"])
        x, y = (part[:4].requires_grad_() for part in tensors(X, Y))
        assert torch.autograd.gradcheck(lambda x: f.divergence(x, y.detach()), (x,))
        loss = f.pairwise(x, y).sum()
        assert torch.autograd.grad(loss, y, allow_unused=True)[0] is None
        active = SOURCES["plain"].active(np.concatenate([X[:4], Y[:4]]))
        reached = torch.autograd.grad(f.pairwise(x, y).sum(), f.slopes)[0].any(1)
        assert set(reached.nonzero()[:, 0].tolist()) <= set(active.tolist())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("distance", [1e-3, 1e-5, 0.0])
    def test_no_digits_are_lost_between_near_points(self, distance, dtype):
        """Against the leading term of D, half the second derivative: (tau / 2) times the variance of the slopes."""
        source = MaxAffine(SLOPES, INTERCEPTS, temperature=1.0)
        f = LearnableMaxAffine.from_generator(source, dtype=dtype)
        y = torch.as_tensor(X).to(dtype)
        x = y + distance * torch.ones_like(y)
        moved = (x.double() - y.double()) @ torch.as_tensor(SLOPES).T
        shares = torch.softmax(torch.as_tensor(X @ SLOPES.T + INTERCEPTS), dim=1)
        expected = (shares * (moved - (shares * moved).sum(1, keepdim=True)).square()).sum(1) / 2
        for found in (f.divergence(x, y), f.pairwise(x, y).diagonal()):
            assert found.dtype == dtype
            torch.testing.assert_close(found.detach().double(), expected, rtol=5e-3, atol=0)

    @pytest.mark.parametrize("offset", [0.0, 30.0])
    def test_two_digits_in_single_precision_at_every_scale(self, offset):
        """Points from very near to far, against double precision on the same numbers."""
        f = LearnableMaxAffine.from_generator(MaxAffine(SLOPES, INTERCEPTS, temperature=2.0), dtype=torch.float32)
        x = torch.as_tensor(offset + 0.5 ** np.arange(30)[:, None] * RNG.standard_normal((30, 3)), dtype=torch.float32)
        found, paired = f.pairwise(x), f.divergence(x, x.roll(1, 0))
        expected = BregmanDivergence(f.double().to_generator())
        rows, columns = np.divmod(np.arange(900), 30)
        exact = expected.paired(x[rows], x[columns]).reshape(30, 30)
        torch.testing.assert_close(found.double(), exact, rtol=0.02, atol=0)
        torch.testing.assert_close(paired.double(), expected.paired(x, x.roll(1, 0)), rtol=1e-3, atol=0)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("name", SOURCES)
    def test_zero_between_equal_points(self, name, dtype):
        f = LearnableMaxAffine.from_generator(SOURCES[name], dtype=dtype)
        x = torch.as_tensor(RNG.uniform(0.1, 30, (40, 3))).to(dtype)
        for block in (f.pairwise(x), f.pairwise(x, x.clone()), f.pairwise(x, x.flip(0)).fliplr()):
            assert (block >= 0).all()
            assert not block.diagonal().any()
        assert not f.divergence(x, x.clone()).any()

    @given(st.integers(0, 2**32), st.sampled_from([0.0, 1e-3, 0.5, 20.0]), st.sampled_from([0.0, 0.3]))
    @settings(max_examples=40, deadline=None)
    def test_convex_whatever_the_parameters(self, seed, temperature, strictness):
        draw = torch.Generator().manual_seed(seed)
        f = LearnableMaxAffine(4, 9, temperature=temperature, strictness=strictness, dtype=torch.float64)
        with torch.no_grad():
            for parameter in f.parameters():
                parameter.copy_(10 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
            x, y = 5 * torch.randn(2, 30, 4, generator=draw, dtype=torch.float64)
            rise = (f(x) + f(y)) / 2 - f((x + y) / 2)
            assert (rise >= -1e-9 * (f(x).abs() + f(y).abs())).all()
            assert (f.divergence(x, y) >= 0).all()
            assert (f.pairwise(x, y) >= 0).all()
            expected = BregmanDivergence(f.to_generator()).paired(x, y)
            torch.testing.assert_close(f.pairwise(x, y).diagonal(), expected, rtol=1e-7, atol=1e-7)

    def test_starts_near_half_the_squared_distance(self):
        f = LearnableMaxAffine(1, 3000, temperature=1e-3, random_state=0, dtype=torch.float64)
        x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
        torch.testing.assert_close(f.pairwise(x).detach(), (x - x.T).square() / 2, rtol=0.05, atol=0.01)

    def test_draws(self):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        first, again = (LearnableMaxAffine(3, 5, random_state=7) for _ in range(2))
        torch.testing.assert_close(first.slopes, again.slopes, rtol=0, atol=0)
        same = LearnableMaxAffine(3, 5, random_state=torch.Generator().manual_seed(7), dtype=torch.float64)
        torch.testing.assert_close(same.slopes.float(), first.slopes)
        assert torch.equal(torch.get_rng_state(), before)
        other = LearnableMaxAffine(3, 5)  # from torch's own generator
        torch.manual_seed(0)
        torch.testing.assert_close(LearnableMaxAffine(3, 5).slopes, other.slopes, rtol=0, atol=0)
        assert first.slopes.dtype == torch.get_default_dtype()

    def test_state_dict(self):
        source = LearnableMaxAffine(3, 5, temperature=0.25, strictness=0.5, random_state=0)
        other = LearnableMaxAffine(3, 5, temperature=1.0, strictness=2.0, random_state=1)
        assert set(source.state_dict()) == {"slopes", "intercepts", "factor", "fixed_temperature"}
        other.load_state_dict(source.state_dict())
        x, y = tensors(X[:5], Y)
        torch.testing.assert_close(other.divergence(x, y), source.divergence(x, y), rtol=0, atol=0)
        assert other.temperature.item() == 0.25
        learned = LearnableMaxAffine(3, 5, temperature=0.25, learn_temperature=True)
        assert set(learned.state_dict()) == {"slopes", "intercepts", "log_temperature"}

    def test_state_dict_says_what_is_not_learned(self, tmp_path):
        """The same parameters with another fixed part are another function."""
        source = LearnableMaxAffine.from_generator(SMOOTH + 2.0 * KullbackLeibler())
        torch.save(torch.nn.Sequential(source).state_dict(), tmp_path / "state.pt")
        state = torch.load(tmp_path / "state.pt", weights_only=True)
        same = LearnableMaxAffine.from_generator(SOURCES["plain"] + 2.0 * KullbackLeibler(), dtype=torch.float32)
        torch.nn.Sequential(same).load_state_dict(state)
        x, y = tensors(X[:5], Y, dtype=torch.float32)
        torch.testing.assert_close(same.divergence(x, y), source.float().divergence(x, y))
        for other in (SMOOTH, SMOOTH + KullbackLeibler(), SMOOTH + 2.0 * ItakuraSaito()):
            with pytest.raises(RuntimeError, match=r"others must be as in the state, 2 \* KullbackLeibler"):
                torch.nn.Sequential(LearnableMaxAffine.from_generator(other)).load_state_dict(state, strict=False)
        with pytest.raises(RuntimeError, match="Missing key"):
            same.load_state_dict(LearnableMaxAffine.from_generator(SMOOTH).state_dict())

    def test_shown_without_data(self):
        assert "temperature=unknown" in repr(LearnableMaxAffine(3, 5, device="meta"))

    @pytest.mark.parametrize("copied", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
    def test_copies(self, copied):
        f = LearnableMaxAffine.from_generator(SOURCES["with what is not learned"], learn_temperature=True)
        x, y = tensors(X[:5], Y)
        torch.testing.assert_close(copied(f).divergence(x, y), f.divergence(x, y), rtol=0, atol=0)

    def test_precision_of_all_parts_changes(self):
        f = LearnableMaxAffine.from_generator(SOURCES["with what is not learned"])
        x, y = tensors(X[:5], Y)
        double = f.divergence(x, y)
        single = f.float().divergence(x, y)  # points are converted, not the parameters
        assert (double.dtype, single.dtype) == (torch.float64, torch.float32)
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)
        half = f.divergence(x.half(), y.bfloat16())
        assert half.dtype == torch.float32
        torch.testing.assert_close(half.double(), double, rtol=0.05, atol=0.05)

    def test_half_precision_parameters_compute_in_single(self):
        f = LearnableMaxAffine.from_generator(SMOOTH).bfloat16()
        out = f.pairwise(torch.as_tensor(X))
        assert out.dtype == torch.float32
        out.sum().backward()
        assert f.slopes.grad.dtype == torch.bfloat16

    def test_the_generator_is_a_copy(self, tmp_path):
        f = LearnableMaxAffine.from_generator(SMOOTH)
        generator = f.to_generator()
        before = generator(X)
        with torch.no_grad():
            f.slopes.mul_(2)
        np.testing.assert_array_equal(generator(X), before)
        index = BregmanIndex(generator)
        index.add(X)
        np.testing.assert_array_equal(index.search(Y, 3)[1], BregmanDivergence(SMOOTH).pairwise(Y, X).argsort(1)[:, :3])
        bregnet.save(generator, tmp_path / "tuned")
        np.testing.assert_array_equal(bregnet.load(tmp_path / "tuned")(X), before)

    def test_temperature_is_learned(self):
        f = LearnableMaxAffine.from_generator(SMOOTH, temperature=0.5, learn_temperature=True)
        optimizer = torch.optim.SGD([f.log_temperature], lr=1.0)
        f(torch.as_tensor(X)).mean().backward()  # f rises with its temperature
        optimizer.step()
        assert 0 < f.temperature.item() < 0.5
        assert f.to_generator().temperature == f.temperature.item()

    def test_starts_from_estimators(self):
        points = RNG.standard_normal((40, 3))
        labels = (points[:, 0] > 0).astype(int)
        learner = PBDL(temperature=0.2, n_pieces=4, tol=0.9, companion="within", random_state=0)
        search = GridSearchCV(learner, {"alpha": [0.01]}, cv=2).fit(points, labels)
        fitted = search.best_estimator_
        for source in (search, fitted, fitted.divergence_):
            f = LearnableMaxAffine.from_generator(source)
            expected = fitted.divergence_.pairwise(points)
            np.testing.assert_allclose(f.pairwise(torch.as_tensor(points)).detach(), expected, rtol=1e-8, atol=1e-10)
        assert f.factor.shape == (3, 3)  # of the companion
        regression = ConvexRegressor(n_pieces=3, tol=0.9, random_state=0).fit(points, points[:, 0])
        f = LearnableMaxAffine.from_generator(regression, temperature=0.1)
        assert f.temperature.item() == 0.1
        np.testing.assert_array_equal(f.slopes.detach(), regression.function_.slopes)

    @pytest.mark.parametrize(
        ("source", "error", "message"),
        [
            (PBDL(), NotFittedError, "PBDL instance is not fitted"),
            ("kl", TypeError, "source must be a MaxAffine.*got 'kl'"),
            (SquaredEuclidean(), ValueError, "one MaxAffine among its parts, got 0"),
            (SMOOTH + SMOOTH, ValueError, "one MaxAffine among its parts, got 2"),
            (0.0 * SMOOTH, ValueError, "one MaxAffine among its parts, got 0"),
        ],
    )
    def test_other_sources_are_refused(self, source, error, message):
        with pytest.raises(error, match=message):
            LearnableMaxAffine.from_generator(source)

    @pytest.mark.parametrize(
        ("parameters", "error", "message"),
        [
            ({"n_pieces": 0}, ValueError, "n_pieces must be at least 1, got 0"),
            ({"n_features": 2.0}, TypeError, "n_features must be an integer"),
            ({"temperature": -1.0}, ValueError, "temperature must be at least 0"),
            ({"strictness": math.nan}, ValueError, "strictness must be at least 0 and finite"),
            ({"temperature": 0.0, "learn_temperature": True}, ValueError, "temperature must be positive where it is"),
            ({"learn_temperature": 1}, TypeError, "learn_temperature must be True or False"),
            ({"dtype": torch.float16}, ValueError, "dtype must be torch.float32 or torch.float64, got torch.float16"),
            ({"random_state": "0"}, TypeError, "random_state must be an integer"),
        ],
    )
    def test_bad_parameters_are_refused(self, parameters, error, message):
        with pytest.raises(error, match=message):
            LearnableMaxAffine(**{"n_features": 2, "n_pieces": 3, **parameters})

    def test_bad_points_and_spoilt_parameters_are_refused(self):
        f = LearnableMaxAffine(3, 5, random_state=0)
        with pytest.raises(ValueError, match=r"X must have shape \(n_points, 3\), got \(4, 2\)"):
            f(torch.zeros(4, 2))
        with pytest.raises(ValueError, match="Y must be finite, got nan in row 0"):
            f.pairwise(torch.zeros(1, 3), torch.full((1, 3), torch.nan))
        with pytest.raises(ValueError, match="X and Y must have as many rows as each other, got 2 and 1"):
            f.divergence(torch.zeros(2, 3), torch.zeros(1, 3))
        with pytest.raises(ValueError, match="X must be at least 0 for KullbackLeibler"):
            LearnableMaxAffine.from_generator(SMOOTH + KullbackLeibler())(torch.full((1, 3), -1.0))
        assert f.pairwise(torch.zeros(0, 3), torch.zeros(2, 3)).shape == (0, 2)
        with torch.no_grad():
            f.slopes[2] = torch.nan
        with pytest.raises(ValueError, match="slopes must be finite, got nan in row 2"):
            f(torch.zeros(1, 3))

    def test_repr(self):
        f = LearnableMaxAffine.from_generator(SOURCES["with what is not learned"], learn_temperature=True)
        expected = "6 pieces, 3 features, temperature=0.3 (learned), others=2 * KullbackLeibler()"
        assert repr(f) == f"LearnableMaxAffine({expected})"


POINTS = torch.as_tensor(np.concatenate([RNG.standard_normal((8, 3)) + 2 * k for k in range(3)]), dtype=torch.float32)
LABELS = torch.arange(3).repeat_interleave(8)
LOSSES = [
    losses.TripletMarginLoss(margin=20.0),
    losses.TripletMarginLoss(margin=20.0, swap=True, smooth_loss=True),
    losses.ContrastiveLoss(neg_margin=20.0),
    losses.NTXentLoss(temperature=5.0),
    losses.SupConLoss(temperature=5.0),
    losses.MultiSimilarityLoss(alpha=0.1, beta=0.1, base=5.0),
    losses.MarginLoss(beta=8.0),
    losses.LiftedStructureLoss(pos_margin=0, neg_margin=20),
    losses.IntraPairVarianceLoss(),
    losses.NCALoss(softmax_scale=0.1),
]
MINERS = [
    miners.TripletMarginMiner(margin=5.0),
    miners.TripletMarginMiner(margin=5.0, type_of_triplets="semihard"),
    miners.BatchHardMiner(),
    miners.BatchEasyHardMiner(),
    miners.MultiSimilarityMiner(epsilon=5.0),
    miners.PairMarginMiner(pos_margin=3.0, neg_margin=8.0),
]


def with_distance(thing, distance):
    changed = copy.deepcopy(thing)
    changed.distance = distance
    return changed


def named(things):
    return {"argvalues": things, "ids": [type(thing).__name__ for thing in things]}


class TestBregmanDistance:
    def test_is_one_of_the_packages_distances(self):
        distance = BregmanDistance(SMOOTH)
        assert isinstance(distance, BaseDistance)
        assert bregnet.nn.BregmanDistance is BregmanDistance
        assert set(bregnet.nn.__all__) <= set(dir(bregnet.nn))
        assert not distance.is_inverted
        assert not distance.normalize_embeddings
        with pytest.raises(AttributeError, match="has no attribute 'Bregman'"):
            _ = bregnet.nn.Bregman

    def test_without_the_package(self, monkeypatch):
        """Only the distance needs it, and says so."""
        monkeypatch.setattr(bregnet, "nn", bregnet.nn)  # put back afterwards
        for name in list(sys.modules):
            if name.split(".")[0] == "pytorch_metric_learning":
                monkeypatch.setitem(sys.modules, name, None)
            elif name.startswith("bregnet.nn"):
                monkeypatch.delitem(sys.modules, name)
        alone = importlib.import_module("bregnet.nn")
        assert alone.LearnableMaxAffine is not LearnableMaxAffine  # imported anew
        message = "BregmanDistance needs the package pytorch-metric-learning: pip install 'bregnet[losses]'"
        with pytest.raises(ModuleNotFoundError, match=re.escape(message)):
            _ = alone.BregmanDistance
        assert set(alone.__all__) == {"BregmanKNN", "LearnableMaxAffine"}
        assert "BregmanDistance" not in dict(inspect.getmembers(alone))

    @pytest.mark.parametrize("side", ["right", "left"])
    @pytest.mark.parametrize("learnable", [False, True])
    def test_order_of_queries_and_references(self, learnable, side):
        """The reference is the tangent point, unless the side is left."""
        distance = BregmanDistance(LearnableMaxAffine.from_generator(SMOOTH) if learnable else SMOOTH, side=side)
        right = side == "right"
        D = BregmanDivergence(SMOOTH)
        expected = D.pairwise(X, Y) if right else D.pairwise(Y, X).T
        x, y = tensors(X, Y)
        np.testing.assert_allclose(distance(x, y).detach(), expected, rtol=1e-9, atol=1e-12)
        paired = D.paired(X[:5], Y) if right else D.paired(Y, X[:5])
        np.testing.assert_allclose(distance.pairwise_distance(x[:5], y).detach(), paired, rtol=1e-9)
        alone = D.pairwise(X) if right else D.pairwise(X).T
        np.testing.assert_allclose(distance(x).detach(), alone, rtol=1e-9, atol=1e-12)
        assert not np.allclose(alone, alone.T, rtol=0.1)  # there is something to tell apart
        loss = losses.TripletMarginLoss(margin=0.5, distance=distance)
        triplets = torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([4, 5])
        anchor, positive, negative = (part.tolist() for part in triplets)
        violations = np.maximum(alone[anchor, positive] - alone[anchor, negative] + 0.5, 0)
        found = loss(x, indices_tuple=triplets)
        assert found.item() == pytest.approx(violations[violations > 0].mean())

    @pytest.mark.parametrize("loss", **named(LOSSES))
    def test_losses_with_squared_distances_are_those_of_the_packages_own(self, loss):
        found = []
        for distance in (BregmanDistance("sqeuclidean"), LpDistance(p=2, power=2, normalize_embeddings=False)):
            points = POINTS.double().requires_grad_()
            value = with_distance(loss, distance)(points, LABELS)
            value.backward()
            assert value > 0
            found += [(value.detach(), points.grad)]
        torch.testing.assert_close(found[0], found[1])

    @pytest.mark.parametrize("miner", **named(MINERS))
    def test_miners_with_squared_distances_are_the_packages_own(self, miner):
        mined = [
            with_distance(miner, distance)(POINTS.double(), LABELS)
            for distance in (BregmanDistance("sqeuclidean"), LpDistance(p=2, power=2, normalize_embeddings=False))
        ]
        assert len(mined[0][0])
        for ours, theirs in zip(*mined, strict=True):
            assert torch.equal(ours, theirs)

    @pytest.mark.parametrize("loss", **named(LOSSES))
    def test_losses_reach_a_learnable_divergence(self, loss):
        distance = BregmanDistance(LearnableMaxAffine(3, 10, strictness=0.1, random_state=0))
        points = POINTS.clone().requires_grad_()
        whole = with_distance(loss, distance)
        whole(points, LABELS, miners.MultiSimilarityMiner(epsilon=50.0, distance=distance)(points, LABELS)).backward()
        own = {name for name, _ in whole.named_parameters() if name.startswith("distance.")}
        assert own == {f"distance.divergence.{name}" for name in ("slopes", "intercepts", "factor")}
        for reached in (points, *distance.parameters()):
            assert torch.isfinite(reached.grad).all()
            assert reached.grad.any()

    def test_a_fixed_divergence_has_no_parameters(self):
        labels = LABELS.numpy()
        model = PBDL(n_pieces=4, tol=0.9, temperature=0.2, random_state=0).fit(POINTS.numpy(), labels)
        distance = BregmanDistance(model)
        assert not list(distance.parameters())
        points = POINTS.clone().requires_grad_()
        out = distance(points)
        assert out.dtype == torch.float32  # that of the embeddings, for the losses
        torch.testing.assert_close(
            out.double(), torch.as_tensor(model.divergence_.pairwise(POINTS)), atol=1e-6, rtol=1e-6
        )
        losses.NTXentLoss(distance=distance)(points, LABELS).backward()
        assert points.grad.any()

    def test_precision_is_that_of_the_embeddings(self):
        for divergences in (SMOOTH, LearnableMaxAffine.from_generator(SMOOTH)):
            distance = BregmanDistance(divergences)
            for dtype, expected in {"float64": "float64", "float32": "float32", "bfloat16": "float32"}.items():
                assert distance(POINTS.to(getattr(torch, dtype))).dtype == getattr(torch, expected)

    def test_options_of_the_package(self):
        distance = BregmanDistance("sqeuclidean", normalize_embeddings=True, power=2)
        unit = torch.nn.functional.normalize(POINTS)
        torch.testing.assert_close(distance(POINTS), torch.cdist(unit, unit) ** 4, atol=1e-5, rtol=1e-4)
        with pytest.raises(ValueError, match="is_inverted must be False"):
            BregmanDistance("sqeuclidean", is_inverted=True)
        with pytest.raises(ValueError, match="side must be one of 'right', 'left', got 'both'"):
            BregmanDistance("sqeuclidean", side="both")
        with pytest.raises(
            TypeError, match=r"divergence must be a BregmanDivergence, .* a LearnableMaxAffine .* got 3"
        ):
            BregmanDistance(3)
        with pytest.raises(ValueError, match="divergence must be one of"):
            BregmanDistance("cosine")

    @pytest.mark.parametrize("divergences", [SMOOTH, LearnableMaxAffine.from_generator(SMOOTH)])
    def test_copies_and_repr(self, divergences):
        loss = losses.TripletMarginLoss(distance=BregmanDistance(divergences, side="left"))
        assert "side='left'" in repr(loss)
        assert "6 pieces, 3 features" in repr(loss)
        for copied in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
            assert isinstance(copied.distance, BregmanDistance)
            torch.testing.assert_close(copied.distance(POINTS), loss.distance(POINTS))


class TestBregmanKNN:
    def test_accuracies_are_those_of_a_ranking(self):
        """The package's calculator, with our neighbors and with its own by our distance, and our metrics."""
        D = BregmanDivergence(SMOOTH + 0.1 * SquaredEuclidean())  # without divergences that round to 0
        queries, items, wanted, labels = POINTS[::3], POINTS[1::3], LABELS[::3], LABELS[1::3]
        relevant = wanted[:, None] == labels
        expected = mean_average_precision(D.pairwise(queries.double(), items.double()), relevant)
        for knn in (BregmanKNN(D), BregmanKNN(LearnableMaxAffine.from_generator(D)), CustomKNN(BregmanDistance(D))):
            measure = AccuracyCalculator(include=("mean_average_precision",), knn_func=knn, device=torch.device("cpu"))
            found = measure.get_accuracy(queries, wanted, items, labels)
            assert found["mean_average_precision"] == pytest.approx(expected)

    @pytest.mark.parametrize("side", ["right", "left"])
    def test_queries_among_the_references(self, side):
        D = BregmanDivergence(SMOOTH).pairwise(POINTS.double())
        D = D if side == "right" else D.T
        knn, own = BregmanKNN(SMOOTH, side=side), BregmanDistance(SMOOTH, side=side)
        divergences, ids = knn(POINTS, 4, POINTS, ref_includes_query=True)
        masked = D.clone().fill_diagonal_(torch.inf)
        torch.testing.assert_close(divergences, masked.sort(1).values[:, :4], rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(ids, CustomKNN(own)(POINTS.double(), 4, POINTS.double(), ref_includes_query=True)[1])
        assert not (ids == torch.arange(len(POINTS))[:, None]).any()

    def test_duplicates_of_a_query(self):
        """More of them than neighbors: no row is its own neighbor, and all neighbors are at 0."""
        points = torch.zeros(5, 2)
        divergences, ids = BregmanKNN("sqeuclidean")(points, 2, points, ref_includes_query=True)
        assert not divergences.any()
        assert not (ids == torch.arange(5)[:, None]).any()

    def test_a_learnable_divergence_is_asked_anew(self):
        f = LearnableMaxAffine.from_generator(SMOOTH)
        knn = BregmanKNN(f)
        before, _ = knn(POINTS, 3, POINTS)
        with torch.no_grad():
            for parameter in f.parameters():
                parameter.mul_(2)
            f.fixed_temperature.mul_(2)
        after, _ = knn(POINTS, 3, POINTS)
        torch.testing.assert_close(after, 2 * before)

    def test_testers(self):
        knn = BregmanKNN("sqeuclidean")
        measure = AccuracyCalculator(include=("precision_at_1",), knn_func=knn, device=torch.device("cpu"))
        tester = GlobalEmbeddingSpaceTester(
            accuracy_calculator=measure, normalize_embeddings=False, dataloader_num_workers=0, data_device="cpu"
        )
        data = {"val": torch.utils.data.TensorDataset(POINTS, LABELS)}
        found = tester.test(data, epoch=0, trunk_model=torch.nn.Identity())
        distances = torch.cdist(POINTS, POINTS).fill_diagonal_(torch.inf)
        expected = (LABELS[distances.argmin(1)] == LABELS).double().mean().item()
        assert found["val"]["precision_at_1_level0"] == pytest.approx(expected)

    def test_inference(self, tmp_path):
        finder = MatchFinder(BregmanDistance("sqeuclidean"), threshold=1.0)
        options = {"knn_func": BregmanKNN("sqeuclidean"), "normalize_embeddings": False, "match_finder": finder}
        model = InferenceModel(torch.nn.Identity(), data_device="cpu", **options)
        model.train_knn(POINTS[:10])
        model.add_to_knn(POINTS[10:])
        _, ids = model.get_nearest_neighbors(POINTS, 1)
        assert ids[:, 0].tolist() == list(range(len(POINTS)))
        model.save_knn_func(tmp_path / "items")
        model.load_knn_func(tmp_path / "items")
        assert torch.equal(model.get_nearest_neighbors(POINTS, 1)[1], ids)
        expected = (torch.cdist(POINTS, POINTS) <= 1.0).numpy()
        np.testing.assert_array_equal(model.get_matches(POINTS), expected)
        assert model.is_match(POINTS[:1], POINTS[:1])

    def test_misuse(self):
        knn = BregmanKNN("sqeuclidean")
        with pytest.raises(ValueError, match="reference must be given, or train called before, got neither"):
            knn(POINTS, 1)
        with pytest.raises(ValueError, match="nothing to save: call train first"):
            knn.save("nowhere")
        with pytest.raises(ValueError, match="kind must be one of 'flat', 'ivf', got 'hnsw'"):
            BregmanKNN("sqeuclidean", kind="hnsw")
        with pytest.raises(TypeError, match="divergence must be a BregmanDivergence"):
            BregmanKNN(None)
        knn.add(POINTS)
        assert len(knn.index) == len(POINTS)
        assert repr(knn).startswith("BregmanKNN(BregmanDivergence(SquaredEuclidean()), side='right'")


@pytest.fixture(scope="module")
def wine():
    points, labels = load_wine(return_X_y=True)
    points = (points - points.mean(0)) / points.std(0)
    return train_test_split(points, labels, train_size=90, random_state=0, stratify=labels)


def test_fine_tuning_a_fit(wine):
    """The loss falls, and unseen queries are ranked as well as before (measured: 0.982 before, 0.990 after)."""
    known, queries, labels, wanted = wine
    fit = PBDL(alpha=0.03, temperature=0.3, n_pieces=20, tol=0.5, random_state=0).fit(known, labels)
    f = LearnableMaxAffine.from_generator(fit)
    loss = losses.TripletMarginLoss(margin=4.0, distance=BregmanDistance(f))
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-2)
    values = []
    for _ in range(30):
        optimizer.zero_grad()
        value = loss(torch.as_tensor(known), torch.as_tensor(labels))
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.95 * values[0]
    before, after = (
        BregmanRanker(D).fit(known, labels).score(queries, wanted) for D in (fit.divergence_, f.to_generator())
    )
    assert after > before - 0.01
    assert after > BregmanRanker().fit(known, labels).score(queries, wanted) + 0.1  # Euclid


def test_a_network_and_its_divergence_learn_together(wine):
    """An embedding in 3 dimensions: both parts move, and unseen queries are ranked better than before."""
    known, queries, labels, wanted = wine
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(13, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    f = LearnableMaxAffine(3, 12, strictness=0.2, learn_temperature=True, random_state=0)
    distance = BregmanDistance(f)
    loss, miner = losses.TripletMarginLoss(margin=1.0, distance=distance), miners.BatchHardMiner(distance=distance)
    parts = {"network": network, "divergence": f}
    start = {name: [p.detach().clone() for p in part.parameters()] for name, part in parts.items()}
    optimizer = torch.optim.Adam([*network.parameters(), *loss.parameters()], lr=1e-2)
    inputs, classes = torch.as_tensor(known, dtype=torch.float32), torch.as_tensor(labels)

    def precision():
        with torch.no_grad():
            items, asked = network(inputs), network(torch.as_tensor(queries, dtype=torch.float32))
        return BregmanRanker(f.to_generator()).fit(items, labels).score(asked, wanted)

    before = precision()
    for _ in range(60):
        optimizer.zero_grad()
        embedded = network(inputs)
        loss(embedded, classes, miner(embedded, classes)).backward()
        optimizer.step()
    for name, part in parts.items():
        for old, new in zip(start[name], part.parameters(), strict=True):
            assert new.grad.any()
            assert not torch.equal(old, new)
    assert precision() > max(0.9, before + 0.1)


@pytest.mark.parametrize("n_features", [2, 64])
def test_first_pieces_share_the_points_and_divergences_start_near_one(n_features):
    f = LearnableMaxAffine(n_features, 50, temperature=0.3, random_state=0)
    points = torch.randn(200, n_features, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        shares = torch.softmax((points @ f.slopes.T + f.intercepts) / 0.3, dim=1)
        typical = f.pairwise(points).median()
    assert (1 / shares.square().sum(1)).median() > 2  # several pieces have a share, so that gradients reach them
    assert 0.3 < typical < 3


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_hardest_triplets_do_not_collapse_from_scratch(wine, temperature):
    X, X_new, y, y_new = (torch.as_tensor(each) for each in wine)
    X, X_new = X.float(), X_new.float()
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    head = LearnableMaxAffine.from_points(network(X), 30, temperature=temperature)
    distance = BregmanDistance(head)
    loss, miner = losses.TripletMarginLoss(margin=1.0, distance=distance), miners.BatchHardMiner(distance=distance)
    optimizer = torch.optim.Adam([*network.parameters(), *loss.parameters()], lr=0.003)
    for _ in range(60):
        points = network(X)
        value = loss(points, y, miner(points, y))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    with torch.no_grad():
        known, new = network(X), network(X_new)
    assert head.pairwise(known).mean() > 1  # a collapse takes all divergences to 0
    assert BregmanRanker(head.to_generator()).fit(known, y).score(new, y_new) > 0.9


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_first_values_suit_the_scale_of_the_points(scale):
    points = scale * (5 + torch.randn(200, 16, generator=torch.Generator().manual_seed(0)))
    for temperature in (0.0, 0.1, 1.0):
        found = LearnableMaxAffine.from_points(points, 30, temperature=temperature, random_state=0)
        same = LearnableMaxAffine.from_points(points / scale, 30, temperature=temperature, random_state=0)
        divergences = found.pairwise(points)
        torch.testing.assert_close(divergences, same.pairwise(points / scale), rtol=1e-2, atol=1e-3)
        assert 1 < divergences.mean() < 3
    with pytest.raises(ValueError, match="X must have two different rows of finite numbers, got a variance of 0"):
        LearnableMaxAffine.from_points(torch.ones(3, 2), 5)


def test_nca_loss_under_a_divergence_is_the_loss_of_soft_neighbors():
    X, y = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(30) % 3
    f = LearnableMaxAffine(4, 6, strictness=0.2, random_state=0, dtype=torch.float64)
    theirs = losses.NCALoss(softmax_scale=1, distance=BregmanDistance(f))(X, y)
    ours = soft_neighbor_loss(-f.pairwise(X), y, y, torch.arange(30))
    assert theirs.item() == pytest.approx(ours.item(), rel=1e-6)
