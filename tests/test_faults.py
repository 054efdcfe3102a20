"""No argument, however odd, may bring an entry to anything but a right result or an error that says what is wrong."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import bregnet
from bregnet import distributed, metrics
from tests.support import fuzzing
from tests.support.fuzzing import Entry

ENTRIES = fuzzing.entries()
NUMBERED = [pytest.param(entry, id=f"{entry}-{number}") for number, entry in enumerate(ENTRIES)]
WITH_ARRAYS = [case for case, entry in zip(NUMBERED, ENTRIES, strict=True) if entry.arrays]
WITH_OPTIONS = [case for case, entry in zip(NUMBERED, ENTRIES, strict=True) if entry.options]

ELSEWHERE = {  # public names that take no data, or have tests of their own for odd arguments
    "Check": "what a callback is given",
    "Result": "what a fit returns",
    "Generator": "abstract; its subclasses are here",
    "UnreadableFileError": "an error",
    "save": "test_persistence",
    "load": "test_persistence",
    "report": "test_report",
    "Report": "test_report",
    "plotting": "test_plotting",
    "nn": "test_nn",
    "__version__": "a string",
}
OF_SCIKIT_LEARN = ("get_params", "set_params", "get_metadata_routing", "set_output", "_request")


def public_entries() -> set[str]:
    """All functions, classes and methods that are public, by the names of the table."""
    found = set()
    for name in bregnet.__all__:
        if name in ELSEWHERE:
            continue
        thing = getattr(bregnet, name)
        if inspect.ismodule(thing):
            found |= {f"{name}.{each}" for each in _functions(thing)}
        else:
            found.add(name)
        if inspect.isclass(thing):
            found |= {f"{name}.{each}" for each in _methods(thing)}
    return found | {f"metrics.{each}" for each in _functions(metrics)}


def _functions(module: Any) -> list[str]:
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    return [name for name in own if name[0] != "_" and inspect.isfunction(getattr(module, name))]


def _methods(kind: type) -> list[str]:
    names = [name for name in dir(kind) if name[0] != "_" or (name == "__call__" and not issubclass(kind, type))]
    methods = [name for name in names if callable(getattr(kind, name))]
    return [name for name in methods if not name.endswith(OF_SCIKIT_LEARN) and "__call__" in dir(getattr(kind, name))]


def test_every_public_entry_is_in_the_table() -> None:
    covered = {entry.name for entry in ENTRIES}
    assert public_entries() - covered == set()
    assert len(covered) > 120


def test_plain_arguments_give_numbers_without_nan() -> None:
    for entry in ENTRIES:
        if not entry.slow:
            found = fuzzing.outcome(entry, entry.plain())
            assert found.error is None, f"{entry}: {found.error!r}"
            _check_numbers(entry, found)


def _check_numbers(entry: Entry, found: fuzzing.Outcome) -> None:
    """Results may be infinite where they are beyond double precision, but never no number at all."""
    if found.numbers is None:
        assert found.error is not None
        assert fuzzing.names_an_argument(entry, found.error), f"{entry}: {found.error!r}"
    elif not entry.name.startswith("metrics."):  # a query without relevant items has no score, as documented
        for numbers in found.numbers:
            assert numbers.dtype.kind != "f" or not np.isnan(numbers).any(), f"{entry}: NaN in {numbers}"


def check_form(entry: Entry, argument: str, form: str) -> None:
    """The same numbers in another form give the same result."""
    plain = entry.plain()
    odd = {**entry.plain(), argument: fuzzing.odd(fuzzing.FORMS[form], plain[argument])}
    expected, found = fuzzing.outcome(entry, plain), fuzzing.outcome(entry, odd)
    if found.error is not None and form in fuzzing.MAY_REFUSE:
        return
    assert found.error is None, f"{entry}, {argument} as {form}: {found.error!r}"
    rtol = 0.02 if form in fuzzing.COARSE else 1e-12 if form == "long double" else 0.0
    assert found.same(expected, rtol), f"{entry}, {argument} as {form}: another result"


def check_refused(entry: Entry, argument: str, kind: str) -> None:
    """What is no array of numbers is refused, or taken for one rightly."""
    plain = entry.plain()
    odd = {**entry.plain(), argument: fuzzing.odd(fuzzing.REFUSED_FORMS[kind], plain[argument])}
    if not fuzzing.is_quick(argument, odd[argument]):
        return
    found = fuzzing.outcome(entry, odd)
    _check_numbers(entry, found)
    names = entry.arrays[argument].endswith("labels")  # classes may be anything that can be ordered
    if kind in fuzzing.MUST_REFUSE and not names:
        assert found.error is not None, f"{entry}, {argument} as {kind}: taken for numbers"


def check_values(entry: Entry, argument: str, values: np.ndarray) -> None:
    """Numbers of any kind give numbers, or an error, and the same in another layout."""
    _check_numbers(entry, fuzzing.outcome(entry, {**entry.plain(), argument: values}))


def check_option(entry: Entry, argument: str, value: Any) -> None:
    """A parameter of any kind is right or refused by its name."""
    _check_numbers(entry, fuzzing.outcome(entry, {**entry.plain(), argument: value}))


def fuzzed(entry: Entry, strategy: st.SearchStrategy, check: Callable[..., None], max_examples: int) -> None:
    """Run a check on arguments that are the same in every run."""

    @seed(zlib.crc32(entry.name.encode()))
    @settings(
        max_examples=max_examples,
        phases=[Phase.generate],  # a case that fails is small as it is
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(case: tuple) -> None:
        check(entry, *case)

    run()


def odd_values(entry: Entry) -> st.SearchStrategy:
    """An argument and other numbers for it: from the list, or of any shape with any mix of special ones."""
    special = [0.0, -0.0, 0.5, 1.0, -1.0, 5e-324, 1e-300, 1e-20, 1e20, 1e154, 1e300, np.nan, np.inf, -np.inf]

    def made(case: tuple[str, str]) -> tuple[str, np.ndarray]:
        argument, kind = case
        return argument, fuzzing.odd(fuzzing.VALUES[kind], fuzzing.PLAIN[entry.arrays[argument]])

    names = st.sampled_from(list(entry.arrays))
    listed = st.tuples(names, st.sampled_from(list(fuzzing.VALUES))).map(made)
    shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    own = names.flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.one_of(shapes, st.just(fuzzing.PLAIN[entry.arrays[name]].shape)).flatmap(
                lambda shape: arrays.arrays(float, shape, elements=st.sampled_from(special))
            ),
        )
    )
    return st.one_of(listed, own)


def odd_options(entry: Entry) -> st.SearchStrategy:
    """An argument and a value of any type, except for work without end."""
    return st.tuples(st.sampled_from(list(entry.options)), st.sampled_from(fuzzing.BAD_OPTIONS)).filter(
        lambda case: fuzzing.is_quick(*case)
    )


def pairs(names: Any, kinds: Any) -> st.SearchStrategy:
    return st.tuples(st.sampled_from(list(names)), st.sampled_from(list(kinds)))


@pytest.mark.parametrize("entry", WITH_ARRAYS)
def test_odd_arrays(entry: Entry) -> None:
    n_examples = 1 if entry.slow else 2
    fuzzed(entry, pairs(entry.arrays, fuzzing.FORMS), check_form, n_examples)
    fuzzed(entry, pairs(entry.arrays, fuzzing.REFUSED_FORMS), check_refused, n_examples)
    fuzzed(entry, odd_values(entry), check_values, n_examples)


@pytest.mark.parametrize("entry", WITH_OPTIONS)
def test_odd_options(entry: Entry) -> None:
    fuzzed(entry, odd_options(entry), check_option, 1 if entry.slow else 5)


@pytest.mark.slow
@pytest.mark.parametrize("entry", WITH_ARRAYS)
def test_all_odd_arrays(entry: Entry) -> None:
    for argument in entry.arrays:
        for form in fuzzing.FORMS:
            check_form(entry, argument, form)
        for kind in fuzzing.REFUSED_FORMS:
            check_refused(entry, argument, kind)
        for kind in fuzzing.VALUES:
            check_values(entry, argument, fuzzing.odd(fuzzing.VALUES[kind], fuzzing.PLAIN[entry.arrays[argument]]))
    fuzzed(entry, odd_values(entry), check_values, 30 if entry.slow else 300)


@pytest.mark.slow
@pytest.mark.parametrize("entry", WITH_OPTIONS)
def test_all_odd_options(entry: Entry) -> None:
    for argument in entry.options:
        for value in fuzzing.BAD_OPTIONS:
            if fuzzing.is_quick(argument, value):
                check_option(entry, argument, value)


def test_a_process_alone_is_its_own_rank() -> None:
    with distributed.joined() as ranks:
        assert (ranks.rank, ranks.size, ranks.share(5)) == (0, 1, slice(0, 5))
