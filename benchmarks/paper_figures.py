"""The figures printed in the paper's five tables (Siahkamari et al., ICML 2022), as data.

Its ADMM ran on a V100 GPU, the methods it compares with on 16 CPU cores. n is the number of all rows, or of the
training rows where a set comes with a split of its own (one fold then, five otherwise).
"""

from __future__ import annotations

from typing import NamedTuple


class Synthetic(NamedTuple):
    """A row of table 1 or 2: seconds of the interior-point baseline and of the paper's ADMM."""

    d: int
    baseline: float
    admm: float
    n: int = 1000

    @property
    def key(self) -> str:
        """What `--sets` calls it."""
        return f"d{self.d}"

    @property
    def head(self) -> dict[str, str | int]:
        """What the row is about."""
        return {"n": self.n, "d": self.d}

    @property
    def seconds(self) -> dict[str, float | None]:
        """Printed run times by column."""
        return {"paper baseline": self.baseline, "paper": self.admm}


class Regression(NamedTuple):
    """A row of table 3: R^2 x 100."""

    key: str
    target: int
    label: str
    n: int
    d: int
    n_folds: int
    dc: float
    lasso: float
    forest: float
    xgboost: float

    @property
    def head(self) -> dict[str, str | int]:
        """What the row is about."""
        return {"set": self.label, "n": self.n, "d": self.d}

    @property
    def scores(self) -> dict[str, float | None]:
        """Printed scores by column."""
        return {
            "paper dc": self.dc,
            "paper lasso": self.lasso,
            "paper forest": self.forest,
            "paper xgboost": self.xgboost,
        }

    @property
    def seconds(self) -> dict[str, float | None]:
        """Printed run times by column: none."""
        return {}


class Classification(NamedTuple):
    """A row of table 4: accuracy in percent, and seconds of all fits."""

    key: str
    label: str
    n: int
    d: int
    pbdl: float
    pbdl0: float | None
    forest: float
    xgboost: float
    pbdl_seconds: float
    pbdl0_seconds: float | None
    n_folds: int = 5
    target: int = 1

    @property
    def head(self) -> dict[str, str | int]:
        """What the row is about."""
        return {"set": self.label, "n": self.n, "d": self.d}

    @property
    def scores(self) -> dict[str, float | None]:
        """Printed scores by column."""
        return {
            "paper pbdl": self.pbdl,
            "paper pbdl0": self.pbdl0,
            "paper forest": self.forest,
            "paper xgboost": self.xgboost,
        }

    @property
    def seconds(self) -> dict[str, float | None]:
        """Printed run times of all fits by column."""
        return {"paper pbdl: all": self.pbdl_seconds, "paper pbdl0: all": self.pbdl0_seconds}


class Timing(NamedTuple):
    """A row of table 5: seconds of the paper's ADMM for DC regression at fixed hyperparameters."""

    key: str
    label: str
    n: int
    d: int
    admm: float

    @property
    def head(self) -> dict[str, str | int]:
        """What the row is about."""
        return {"set": self.label, "n": self.n, "d": self.d}

    @property
    def seconds(self) -> dict[str, float | None]:
        """Printed run times by column."""
        return {"paper": self.admm}


TABLE_1 = (
    Synthetic(2, 32.3, 3.63),
    Synthetic(4, 30.8, 3.75),
    Synthetic(8, 54.5, 4.03),
    Synthetic(16, 112.3, 4.12),
    Synthetic(32, 189.3, 4.37),
)

TABLE_2 = (
    Synthetic(2, 140.9, 3.67),
    Synthetic(4, 113.9, 3.79),
    Synthetic(8, 210.3, 4.05),
    Synthetic(16, 351.6, 4.15),
    Synthetic(32, 823.2, 4.42),
)

TABLE_3 = (
    Regression("parkinson_speech", 1, "Parkinson Speech", 702, 52, 1, -3.7, -4.0, -14.8, -20.0),
    Regression("garment_productivity", 1, "Garment Productivity", 905, 37, 1, 25.5, 15.2, 45.9, 44.2),
    Regression("concrete", 1, "Concrete Compressive Strength", 1030, 8, 5, 91.7, 59.9, 91.8, 92.5),
    Regression("music_origin", 1, "Geographical Original of Music-1", 1059, 68, 5, 21.9, 16.6, 25.1, 26.0),
    Regression("music_origin", 2, "Geographical Original of Music-2", 1059, 68, 5, 32.6, 23.8, 31.3, 30.8),
    Regression("solar_flare", 1, "Solar Flare-1", 1066, 23, 5, 3.3, 6.1, -28.0, 6.2),
    Regression("solar_flare", 2, "Solar Flare-2", 1066, 23, 5, -6.1, -2.1, -17.0, 2.1),
    Regression("airfoil", 1, "Airfoil Self-Noise", 1503, 5, 5, 95.2, 51.1, 93.3, 95.0),
    Regression("communities", 1, "Communities and Crime", 1994, 122, 5, 62.1, 64.5, 65.4, 65.8),
    Regression("sml2010", 1, "SML2010-1", 3000, 24, 1, 90.8, 96.0, 93.4, 92.1),
    Regression("sml2010", 2, "SML2010-2", 3000, 24, 1, 77.3, 94.0, 92.4, 90.0),
    Regression("parkinson_telemonitoring", 1, "Parkinson's Telemonitoring-1", 4406, 25, 1, 93.8, 98.4, 92.3, 98.2),
    Regression("parkinson_telemonitoring", 2, "Parkinson's Telemonitoring-2", 4406, 25, 1, 95.5, 98.5, 92.0, 98.0),
    Regression("wine_quality_white", 1, "Wine Quality", 4898, 11, 5, 51.8, 27.2, 52.6, 51.0),
    Regression("bias_correction", 1, "Bias Correction of Temperature-1", 6200, 52, 1, 62.9, 60.8, 64.2, 65.8),
    Regression("bias_correction", 2, "Bias Correction of Temperature-2", 6200, 52, 1, 75.2, 76.5, 76.3, 76.7),
    Regression("seoul_bike", 1, "Seoul Bike Sharing Demand", 6570, 19, 1, 89.7, 80.7, 93.1, 92.3),
    Regression("air_quality", 1, "Air Quality-1", 7110, 21, 1, 87.0, 89.5, 88.2, 89.9),
    Regression("air_quality", 2, "Air Quality-2", 7110, 21, 1, 100.0, 94.7, 99.8, 100.0),
    Regression("air_quality", 3, "Air Quality-3", 7110, 21, 1, 86.6, 86.4, 87.7, 88.5),
    Regression("air_quality", 4, "Air Quality-4", 7110, 21, 1, 81.7, 84.0, 78.1, 80.7),
    Regression("ccpp", 1, "Combined Cycle Power Plant", 9568, 4, 5, 95.5, 92.9, 96.5, 96.7),
)

TABLE_4 = (
    Classification("iris", "Iris", 149, 4, 96.0, 98.7, 96.0, 96.6, 22.1, 46.2),
    Classification("wine", "Wine", 178, 13, 96.0, 96.6, 96.7, 95.5, 23.6, 496.2),
    Classification("transfusion", "Blood Transfusion", 748, 4, 72.6, 74.8, 72.9, 78.4, 46.3, 21514.0),
    Classification("wdbc", "Breast Cancer Wisconsin", 569, 30, 94.4, 96.5, 96.1, 96.0, 114.0, 224407.0),
    Classification("balance_scale", "Balance Scale", 625, 4, 84.6, 93.0, 83.0, 92.2, 150.3, 617.0),
    Classification("abalone", "Abalone", 4177, 10, 22.6, None, 24.9, 26.2, 3688.0, None),
)

TABLE_5 = (
    Timing("parkinson_speech", "Parkinson Speech", 702, 52, 3.4),
    Timing("garment_productivity", "Garment Productivity", 905, 37, 4.12),
    Timing("concrete", "Concrete Compressive Strength", 1030, 8, 3.28),
    Timing("music_origin", "Geographical Original of Music", 1059, 68, 4.44),
    Timing("solar_flare", "Solar Flare", 1066, 23, 3.64),
    Timing("airfoil", "Airfoil Self-Noise", 1503, 5, 4.92),
    Timing("communities", "Communities and Crime", 1994, 122, 12.82),
    Timing("sml2010", "SML2010", 3000, 24, 21.78),
)
