"""Parameters of which only some are for every run of the tests."""

import pytest


def some_slow(values, always):
    """All values for a parametrised test; those that are not in `always` are marked as slow."""
    return [value if value in always else pytest.param(value, marks=pytest.mark.slow) for value in values]
