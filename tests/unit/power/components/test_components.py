"""The parts of a GPU's power: weights, parts that sum to the total, and who lowers the clock."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from reading import some

from advisor.core.records import PairPoint, PointPart, SoloPoint
from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor_power.components import (
    COLUMNS,
    DRAWS,
    PARTS,
    SM_CLASSES,
    TERMS,
    Activity,
    ComponentWeights,
    activity_of,
    at_once,
    at_power,
    at_work,
    causes,
    components,
    fit_components,
    non_negative_least_squares,
)

TRUE_W = np.array([110.0, 150.0, 900.0, 600.0, 200.0, 40.0, 15.0, 450.0])
TOP_MHZ = 1980.0

percents = st.floats(0, 100)


@st.composite
def activities(draw: st.DrawFn) -> Activity:
    return Activity(
        counters={name: draw(percents) for name in COLUMNS},
        units_part=draw(st.floats(0.05, 1)),
        clock_mhz=draw(st.floats(300, TOP_MHZ)),
        temperature_c=draw(st.floats(20, 90)),
    )


def point(job: str, seed: int, **changes: object) -> SoloPoint:
    """A window whose power is exactly that of `TRUE_W`."""
    dice = np.random.default_rng(seed)
    known: dict[str, object] = {name: float(dice.uniform(0, 90)) for name in COLUMNS}
    made = SoloPoint(
        job=job,
        gpu_model="NVIDIA H200",
        gpu_uuid="GPU-1",
        units_total=132,
        units_granted=132,
        share_percent=100.0,
        rate=1.0,
        sm_clock_mhz=float(dice.uniform(1200, TOP_MHZ)) if seed else TOP_MHZ,
        temperature_c=float(dice.uniform(30, 70)),
        window_s=3.0,
        started_at=f"2026-01-01T00:00:{seed % 60:02d}Z",
        run=f"r{seed}",
        **known,  # pyright: ignore[reportArgumentType]
    )
    exact = replace(made, power_w=float(some(activity_of(made)).terms(TOP_MHZ) @ TRUE_W))
    return replace(exact, **changes)  # pyright: ignore[reportArgumentType]


def points(jobs: int = 12) -> list[SoloPoint]:
    return [point(f"job-{n // 2}", n) for n in range(2 * jobs)]


@pytest.fixture(scope="module")
def weights() -> ComponentWeights:
    return fit_components(points())


def true_weights() -> ComponentWeights:
    """Exact ones with draws of a tenth around them, fitted to every activity there is."""
    spread = np.linspace(0.9, 1.1, DRAWS)[:, None]
    corners = np.vstack([np.eye(len(TERMS)), np.zeros(len(TERMS)), np.ones(len(TERMS))])
    corners[:, 0] = 1.0
    return ComponentWeights(
        "NVIDIA H200",
        TOP_MHZ,
        TRUE_W,
        TRUE_W * spread,
        corners,
        dict.fromkeys(COLUMNS, 100.0),
        ("a",),
    )


ACTIVITY = some(activity_of(point("job-1", 3)))

THOUSANDTHS = st.integers(-5000, 5000).map(lambda n: n / 1000)
"""As exact as readings are; numbers of 1e-200 have no coefficient that a float can hold."""


@given(
    arrays(np.float64, (9, 4), elements=THOUSANDTHS),
    arrays(np.float64, 9, elements=THOUSANDTHS),
    st.none() | arrays(np.bool_, 4),
)
def test_least_squares_keep_the_conditions_of_the_best(
    matrix: Floats, values: Floats, begin: npt.NDArray[np.bool_] | None
) -> None:
    """No coefficient is negative, and none can be moved for the better (Karush, Kuhn, Tucker).

    Wherever it begins.
    """
    found = non_negative_least_squares(matrix, values, begin)
    assert (found >= 0).all()
    gradient = matrix.T @ (values - matrix @ found)
    size = 1e-5 * (1 + np.abs(matrix).sum() * (1 + np.abs(values).sum()))
    assert (gradient <= size).all()
    assert (np.abs(gradient * (found > 0)) <= size).all()


def test_weights_are_found_again(weights: ComponentWeights) -> None:
    assert (weights.values, weights.draws.shape) == (
        pytest.approx(TRUE_W, rel=1e-6),
        (DRAWS, len(TERMS)),
    )
    assert np.allclose(weights.draws, TRUE_W, rtol=1e-3)
    assert weights.jobs == tuple(sorted({p.job for p in points()}))


def test_no_weight_is_negative() -> None:
    found = fit_components(
        [
            replace(p, power_w=(p.power_w or 0) + 400 - 4 * (p.integer_active_percent or 0))
            for p in points()
        ]
    )
    assert found.values[list(TERMS).index("integer")] == 0
    assert min(found.values.min(), found.draws.min()) >= 0


def test_doubtful_points_are_left_out() -> None:
    wrong = [replace(p, power_w=50.0, flags=("wrong-results",), job="x") for p in points()[:6]]
    unread = [replace(p, power_w=50.0, flags=("results-unread",), job="y") for p in points()[:6]]
    assert fit_components([*points(), *wrong, *unread]).values == pytest.approx(TRUE_W, rel=1e-6)


def test_too_few_jobs_or_two_gpu_models_are_refused() -> None:
    with pytest.raises(InputError, match="7 jobs with all counters"):
        fit_components(points(7))
    other = replace(points()[0], gpu_model="NVIDIA H100 80GB HBM3")
    with pytest.raises(InputError, match="one GPU model"):
        fit_components([*points(), other])


@pytest.mark.parametrize("lacking", [*COLUMNS, "sm_clock_mhz", "temperature_c"])
def test_a_missing_reading_makes_no_activity(lacking: str) -> None:
    assert activity_of(replace(points()[0], **{lacking: None})) is None


@given(activities(), st.floats(1, 2000), st.none() | st.floats(-10, 3000))
def test_parts_sum_to_the_total(
    activity: Activity, total_w: float, memory_power_w: float | None
) -> None:
    parts = components(true_weights(), activity, total_w, memory_power_w).components_w
    assert tuple(parts) == tuple(PARTS)
    assert sum(part.value for part in parts.values()) == pytest.approx(total_w)
    slack = 1e-9 * total_w
    for part in parts.values():
        bounds = [-slack, part.low, part.value + slack, part.high + 2 * slack, total_w + 3 * slack]
        assert bounds == sorted(bounds)


def test_memory_is_what_its_sensor_says() -> None:
    """Its interval is a point, others share the rest, and the traffic left over is fabric's."""
    estimated = components(true_weights(), ACTIVITY, 600.0)
    measured = components(true_weights(), ACTIVITY, 600.0, 60.0)
    assert (estimated.memory_basis, measured.memory_basis) == ("estimated", "measured")
    assert measured.components_w["memory"].value == measured.components_w["memory"].high == 60.0
    assert estimated.components_w["memory"].value > 60.0
    assert measured.components_w["fabric"].value > estimated.components_w["fabric"].value
    tensor = (found.components_w["tensor"].value for found in (measured, estimated))
    assert len({round(value, 6) for value in tensor}) == 1


@pytest.mark.parametrize("impossible_w", [None, 0.0, -1.0, 600.0, 5000.0, float("nan")])
def test_a_memory_reading_that_cannot_be_is_not_taken(impossible_w: float | None) -> None:
    """Absent, zero, or as much as the whole GPU: the part is estimated, never 0."""
    found = components(true_weights(), ACTIVITY, 600.0, impossible_w)
    assert (found.memory_basis, found) == ("estimated", components(true_weights(), ACTIVITY, 600.0))


def test_memory_that_was_not_read_is_twice_as_unsure() -> None:
    shifted = replace(
        true_weights(), draws=TRUE_W + np.eye(8)[7] * np.linspace(-90, 90, DRAWS)[:, None]
    )
    both = components(shifted, ACTIVITY, 600.0).components_w
    others = sum(part.value - part.low for name, part in both.items() if name != "memory")
    # What memory draws more, all others draw less.
    assert both["memory"].high - both["memory"].value == pytest.approx(2 * others, rel=0.01)


def test_what_was_never_seen_is_extrapolated(weights: ComponentWeights) -> None:
    """Each window of the fit lies inside, and a pipe that no job used does not."""
    inside = some(activity_of(points()[5]))
    assert components(weights, inside, 500.0).others_basis == "estimated"
    idle = dict.fromkeys(COLUMNS, 0.0)
    far = replace(inside, counters={**idle, "tensor_active_percent": 100.0})
    found = components(weights, far, 500.0)
    assert (found.others_basis, found.memory_basis) == ("extrapolated", "extrapolated")
    assert set(found.unlike) <= set(TERMS)
    half = replace(weights, counters={**weights.counters, "fp64_active_percent": 1.0})
    unseen = replace(inside, counters={**inside.counters, "fp64_active_percent": 60.0})
    assert components(half, unseen, 500.0).unlike == ("fp64_active_percent",)


@given(activities(), activities())
def test_causes_are_parts_of_one_and_swap_with_the_jobs(a: Activity, b: Activity) -> None:
    there, back = causes(true_weights(), (a, b)), causes(true_weights(), (b, a))
    assert (sum(part.value for part in there), [p.value for p in there]) == (
        pytest.approx(1),
        pytest.approx([p.value for p in back[::-1]]),
    )
    assert all(0 <= part.low <= part.value <= part.high <= 1 + 1e-9 for part in there)


def test_the_same_work_at_less_power_runs_slower() -> None:
    """The clock at which it draws the power is found, and the work in a second is the same."""
    known = true_weights()
    activity = Activity(
        counters={**dict.fromkeys(COLUMNS, 0.0), "tensor_active_percent": 50.0,
                  "sm_active_percent": 50.0},
        units_part=1.0,
        clock_mhz=TOP_MHZ,
        temperature_c=50.0,
    )  # fmt: skip
    asked_w = float(activity.terms(TOP_MHZ) @ known.values) - 60
    slower = at_power(activity, known, asked_w)
    assert slower.terms(TOP_MHZ) @ known.values == pytest.approx(asked_w, rel=0.02)
    done = slower.counters["tensor_active_percent"] * slower.clock_mhz
    assert done == pytest.approx(50.0 * TOP_MHZ)
    assert at_power(activity, known, 900.0).clock_mhz == TOP_MHZ


def test_jobs_side_by_side_add_up_to_what_there_is() -> None:
    one = some(activity_of(replace(points()[2], units_granted=66, dram_active_percent=80.0)))
    both = at_once((one, one))
    assert both.units_part == 1.0
    assert both.counters["dram_active_percent"] < 100
    for column in SM_CLASSES.values():
        assert both.counters[column] == min(100.0, 2 * one.counters[column])
    assert at_work(one, 0.5, one.clock_mhz).counters["dram_active_percent"] == pytest.approx(40.0)


def test_units_of_a_pair_are_those_of_both_jobs() -> None:
    """Under limits the rest of the SMs is nobody's; without, all are everybody's."""
    solo = points()[2]
    part = PointPart(job="a", share_percent=50.0, units=66, rate=1.0)
    known = {name: getattr(solo, name) for name in (*COLUMNS, "sm_clock_mhz", "temperature_c")}
    pair = PairPoint(
        parts=(replace(part, units=12), replace(part, job="b")),
        gpu_model=solo.gpu_model,
        gpu_uuid="GPU-1",
        units_total=132,
        window_s=3.0,
        started_at="2026-01-01T00:00:00Z",
        run="r",
        **known,
    )
    both = (some(activity_of(one)) for one in (pair, replace(pair, mode="uncapped")))
    assert [one.units_part for one in both] == pytest.approx([78 / 132, 1])
