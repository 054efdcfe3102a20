"""Transformers of scikit-learn that pipelines in files may have: what each has learned is arrays of numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from bregnet._core.state import Field, numbers, read_labels, real, whole, write_labels
from bregnet.io.fitted import Attributes, Fitted, expect_features
from bregnet.io.preprocessing import read_imputer, write_imputer

SWITCHES = ("with_mean", "with_std", "with_centering", "with_scaling")  # what is off was not learned


def _transformer(
    cls: type, by_feature: tuple[str, ...] = (), rows: tuple[str, ...] = (), **others: Field
) -> tuple[type, Fitted]:
    """A transformer with a number for each feature, matrices with a column for each feature, and other attributes."""
    learned: Attributes = {**dict.fromkeys(by_feature, numbers()), **dict.fromkeys(rows, numbers(2)), **others}
    expect = partial(_expect_shapes, by_feature=by_feature, rows=rows)
    return cls, Fitted(cls, {"n_features_in_": whole(1), **learned}, expect)


def _expect_shapes(value: Any, by_feature: tuple[str, ...], rows: tuple[str, ...]) -> None:
    off = [name for name in SWITCHES if not getattr(value, name, True)]
    if off:
        raise TypeError(f"{' and '.join(off)} of a {type(value).__name__} must be True to be saved, got False")
    expect_features(value, **{name: len(getattr(value, name)) for name in by_feature})
    expect_features(value, **{name: getattr(value, name).shape[1] for name in rows})
    if "scale_" in by_feature and not (value.scale_ > 0).all():
        raise ValueError(f"scale_ must be positive, got {value.scale_.min():g}")


def _expect_discriminants(value: LinearDiscriminantAnalysis) -> None:
    _expect_shapes(value, (), ("means_", "coef_"))
    expect_features(value, scalings_=len(value.scalings_), xbar_=len(getattr(value, "xbar_", value.scalings_)))
    if not len(value.classes_) == len(value.means_) == len(value.priors_):
        raise ValueError(f"means_ and priors_ must be of {len(value.classes_)} classes")
    if not value._n_features_out <= value._max_components <= value.scalings_.shape[1]:
        raise ValueError(f"scalings_ must have {value._max_components} columns, got {value.scalings_.shape[1]}")


seen = whole(1)
_spectrum = dict.fromkeys(("explained_variance_", "explained_variance_ratio_", "singular_values_"), numbers())
TRANSFORMERS: dict[type, Field | Fitted] = dict(
    [
        _transformer(StandardScaler, ("mean_", "var_", "scale_"), n_samples_seen_=seen),
        _transformer(MinMaxScaler, ("min_", "scale_", "data_min_", "data_max_", "data_range_"), n_samples_seen_=seen),
        _transformer(MaxAbsScaler, ("scale_", "max_abs_"), n_samples_seen_=seen),
        _transformer(RobustScaler, ("center_", "scale_")),
        _transformer(Normalizer),
        _transformer(QuantileTransformer, (), ("quantiles_",), references_=numbers(), n_quantiles_=seen),
        _transformer(VarianceThreshold, ("variances_",)),
        _transformer(
            PCA,
            ("mean_",),
            ("components_",),
            n_components_=seen,
            n_samples_=seen,
            noise_variance_=real(),
            **_spectrum,
        ),
        _transformer(TruncatedSVD, (), ("components_",), **_spectrum),
        _transformer(NeighborhoodComponentsAnalysis, (), ("components_",), n_iter_=whole(0)),
        _transformer(
            Nystroem,
            (),
            ("components_",),
            normalization_=numbers(2),
            component_indices_=numbers(kinds="i"),
            _n_features_out=seen,
        ),
    ]
)
_discriminants: Attributes = {
    "n_features_in_": whole(1),
    **dict.fromkeys(("means_", "coef_", "scalings_"), numbers(2)),
    **dict.fromkeys(("intercept_", "priors_"), numbers()),
    "classes_": Field(write_labels, read_labels),
    "_max_components": whole(1),
    "_n_features_out": whole(1),
}
_by_solver = dict.fromkeys(("xbar_", "explained_variance_ratio_"), numbers())
TRANSFORMERS[LinearDiscriminantAnalysis] = Fitted(
    LinearDiscriminantAnalysis, _discriminants, _expect_discriminants, _by_solver
)
TRANSFORMERS[SimpleImputer] = Field(write_imputer, read_imputer)
