"""Verdicts on made-up results, and the claims that they are about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_inputs import case, result

from advisor_power.inputs.case import InputCase
from advisor_power.inputs.claims import CLAIMS, with_seed
from advisor_power.inputs.sweeps import measured_sweep
from advisor_power.inputs.verdicts import (
    Level,
    Pattern,
    SweepChange,
    change_of,
    level_of,
    quantity_of,
    verdict_of,
)
from advisor_power.operands.words import DTYPES

NAMES = [claim.name for claim in CLAIMS]


def levels(*values: float, error: float = 0.001) -> dict[float, Level]:
    return {float(x): Level(value, error) for x, value in enumerate(values)}


def said(pattern: Pattern, *values: float, error: float = 0.001) -> str:
    return verdict_of(change_of(levels(*values, error=error), pattern), pattern)


@pytest.mark.parametrize(
    ("pattern", "values", "verdict"),
    [
        ("falls", (1, 0.9, 0.7), "confirmed"),
        ("falls", (1, 0.7, 0.985), "open"),  # between 1 and 2 %
        ("falls", (1, 0.7, 0.995), "refuted"),
        ("falls", (1, 0.7, 1.05), "refuted"),
        ("rises", (1,), "open"),
        ("flat", (1, 1.005, 0.995), "confirmed"),
        ("flat", (1, 1.015, 1), "open"),
        ("flat", (1, 1.05, 1), "refuted"),
        ("peaks", (1, 1.2, 1.1), "confirmed"),
        ("peaks", (1, 1.115, 1.1), "open"),
        ("peaks", (1, 1.105, 1.1), "refuted"),
        ("peaks", (1, 0.9, 1.1), "refuted"),
        ("peaks", (1, 1.1), "open"),
    ],
)
def test_verdict_by_pattern(pattern: Pattern, values: tuple[float, ...], verdict: str) -> None:
    assert said(pattern, *values) == verdict


@pytest.mark.parametrize("pattern", ["falls", "rises"])
def test_large_change_with_a_large_error_stays_open(pattern: Pattern) -> None:
    assert said(pattern, 1, 1.03, error=0.02) == "open"
    assert said(pattern, 1, 0.97, error=0.02) == "open"
    assert said("flat", 1, 1.03, error=0.02) == "open"


@pytest.mark.parametrize(
    ("clock", "verdict"), [(-0.06, "open"), (0.06, "confirmed"), (-0.005, "confirmed")]
)
def test_what_the_clock_may_have_done_says_nothing_of_data(clock: float, verdict: str) -> None:
    """Less energy at a lower clock; at a higher one it is less in spite of that."""
    assert verdict_of(SweepChange(-0.086, 0.017, clock), "falls") == verdict
    assert verdict_of(SweepChange(-0.086, 0.017, -0.06), "flat") == "open"
    assert verdict_of(SweepChange(0.004, 0.001, 0.06), "flat") == "confirmed"


@given(st.floats(-0.5, 0.5), st.floats(0, 0.2))
def test_rise_and_fall_are_mirror_images(value: float, error: float) -> None:
    rise = verdict_of(SweepChange(value, error), "rises")
    assert rise == verdict_of(SweepChange(-value, error), "falls")
    if rise == "confirmed":
        assert value >= 0.02
        assert value > 4 * error


def test_error_of_a_level_is_the_larger_of_windows_and_seeds() -> None:
    seeds = [result(with_seed(case(), n), ratio=1 + 0.1 * n) for n in range(3)]
    level = level_of(seeds, "ratio")
    assert level is not None
    assert level.value == pytest.approx(1.1)
    assert level.error == pytest.approx(0.1 / 3**0.5)
    assert level.clock_mhz == 1980
    alone = level_of(seeds[:1], "ratio")
    assert alone is not None
    assert alone.error == pytest.approx(0.001)
    assert level_of([result(case())], "ratio") is None


def test_at_the_power_limit_energy_is_compared() -> None:
    """There the same power does more work, or less."""
    slow, fast = (result(case(), 700, rate=rate) for rate in (1000, 1250))
    assert quantity_of([slow, fast]) == "energy"
    assert quantity_of([result(case(), ratio=1)]) == "ratio"
    assert quantity_of([result(case())]) == "energy"  # no reference was free
    assert quantity_of([result(case())], in_watts=True) == "watts"
    hot = result(case(), throttle_reasons=("hw-slowdown", "hw-thermal"))
    assert quantity_of([result(case()), hot]) == "energy"
    first, last = (level_of([one], "energy") for one in (slow, fast))
    assert first is not None
    assert last is not None
    change = change_of({0: first, 1: last}, "falls")
    assert change is not None
    assert change.value == pytest.approx(-0.2)


def test_level_is_of_results_whose_clock_nothing_held_back() -> None:
    """Though one that was held back is newer; where there is no other, it counts."""
    claim = next(claim for claim in CLAIMS if claim.name == "T12")
    first, *_, last = claim.cases("bf16").values()
    own = [
        result(first, 500, ratio=1.0),
        result(first, 450, at_s=9, throttle_reasons=("sw-thermal",)),
        result(last, 250, ratio=0.5),
    ]
    sweep = measured_sweep(claim, own, "bf16")
    assert (sweep.quantity, sweep.verdict) == ("ratio", "confirmed")
    assert sweep.change is not None
    assert sweep.change.value == pytest.approx(-0.5)
    assert measured_sweep(claim, own[1:], "bf16").quantity == "energy"


# the claims


def test_every_takeaway_has_a_claim() -> None:
    """But T7, which compares types."""
    assert NAMES[:14] == [f"T{n}" for n in range(1, 16) if n != 7]
    assert NAMES[14:] == ["N1", "N2", "N3", "N4 copy"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_claims_have_levels_of_each_type(dtype: str) -> None:
    """Each level another case; those with nothing done share one."""
    for claim in CLAIMS:
        found = claim.cases(dtype)
        assert len(found) >= (3 if claim.pattern == "peaks" else 2), claim.name
        assert list(found) == sorted(found) or claim.name == "N3"
        assert len(set(found.values())) == len(found), claim.name
    first: list[InputCase] = [
        next(iter(claim.cases(dtype).values())) for claim in CLAIMS if claim.name in ("T8", "T14")
    ]
    assert first[0] == first[1]


def test_seed_changes_the_numbers_alone() -> None:
    one = case("normal(0,1)|sort(rows,0.5); align=false")
    assert with_seed(one, 2).operands == one.operands.replace("seed=0", "seed=2")
