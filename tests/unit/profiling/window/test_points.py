import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from scripted import GPU

from advisor.core.gpu import Share
from advisor.core.job import NOTHING, InputData, Job
from advisor.core.records import FLAGS, HEAT, Counters, PairPoint, SoloPoint
from advisor.formats.rows import from_row, to_row
from advisor_power.data.of_job import with_fingerprint
from advisor_profiling.window import (
    MeanEstimate,
    MeasuredWindow,
    RunConditions,
    Target,
    WindowResult,
    WindowRules,
    failed_point,
    flags_of,
    pair,
    part_of,
    solo,
    to_point,
)

COUNTERS = Counters(
    sm_active_percent=48,
    sm_occupancy_percent=20,
    fp32_active_percent=5,
    dram_active_percent=30,
    pcie_tx_mib_per_s=1,
    pcie_rx_mib_per_s=1,
)
WINDOW = MeasuredWindow(
    started_at="2026-11-21T00:00:00.000000Z",
    window_s=2.0,
    settle_s=1.5,
    settled=True,
    rates=(MeanEstimate(100, 0.5),),
    latencies=((None, None),),
    power=MeanEstimate(300, 1.0),
    counter_power_w=303.0,
    counters=COUNTERS,
    sm_clock_mhz=1980.0,
    memory_clock_mhz=3201.0,
    temperature_c=50.0,
    power_limit_w=700.0,
    throttle_reasons=(),
)
JOB = Job(name="x", command=("x",))
OTHER = Job(name="other", command=("y",))


def taken(target: Target, *measured: dict[str, Any]) -> WindowResult:
    """A window of the target, with what was measured of each of its jobs."""
    usual = {"units": 66, "rate": 100, "rate_stderr": 0.5, "memory_used_mib": 500}
    usual |= {"cpu_percent": 100, "latency_p50_ms": 4.0, "latency_p99_ms": 9.0}
    parts = zip(target.specs, measured or [{}], strict=True)
    return WindowResult(
        target=target,
        parts=tuple(part_of(spec, **(usual | own)) for spec, own in parts),
        reported=(NOTHING,) * len(target.specs),
        window=WINDOW,
        cpu_steal_percent=0.1,
    )


TAKEN = taken(solo(JOB, Share(50)))
SIDES = (
    {"units": 38, "rate": 7, "rate_stderr": 0.01, "cpu_percent": 80},
    {"units": 92, "cpu_percent": 3},
)
PAIR = taken(pair(JOB, Share(70), OTHER, Share(30), repeat=2), *SIDES)
CONDITIONS = RunConditions(
    gpu=GPU,
    rules=WindowRules(),
    run="r",
    mode="mps",
    source="scripted",
    host="h",
    idle_power_w=77.0,
)


def changed(**window: object) -> WindowResult:
    return dataclasses.replace(TAKEN, window=dataclasses.replace(WINDOW, **window))


def served(stderr: float) -> WindowResult:
    """A server of 100 requests a second, in a window of 5 s."""
    server = dataclasses.replace(JOB, offered_rate=100.0)
    return dataclasses.replace(
        taken(solo(server, Share(50)), {"rate_stderr": stderr}),
        window=dataclasses.replace(WINDOW, window_s=5.0),
    )


def pulsing(counter_power_w: float) -> WindowResult:
    return changed(power=MeanEstimate(300, 15.0), counter_power_w=counter_power_w)


@pytest.mark.parametrize(
    ("result", "flags"),
    [
        (TAKEN, ()),
        (PAIR, ()),
        (taken(TAKEN.target, {"rate_stderr": 2.0}), ("noisy-rate",)),
        (taken(TAKEN.target, {"rate_stderr": None}), ("noisy-rate",)),
        (changed(power=MeanEstimate(300, 4.0)), ("noisy-power",)),
        (changed(settled=False), ("not-settled",)),
        (changed(throttle_reasons=("sw-power-cap",)), ("throttled",)),
        (changed(throttle_reasons=("power-cap",)), ("throttled",)),
        # Heat is told from the power limit, beside it and without it.
        *(
            (changed(throttle_reasons=(*limit, reason)), ("throttled", HEAT))
            for reason in ("sw-thermal", "hw-slowdown", "hw-power-brake", "memory-thermal")
            for limit in ((), ("sw-power-cap",))
        ),
        (changed(counter_power_w=320.0), ("counter-mismatch",)),
        # A counter may meet other pulses than the readings.
        (pulsing(340.0), ("noisy-power",)),
        (pulsing(350.0), ("noisy-power", "counter-mismatch")),
        (
            changed(counters=dataclasses.replace(COUNTERS, dram_active_percent=None)),
            ("counters-missing",),
        ),
        (changed(counters=dataclasses.replace(COUNTERS, sm_active_percent=20.0)), ("cpu-bound",)),
        # The busy core of either job leaves the granted SMs idle.
        (taken(PAIR.target, SIDES[0] | {"cpu_percent": 95}, SIDES[1]), ("cpu-bound",)),
        (dataclasses.replace(TAKEN, cpu_steal_percent=3.0), ("cpu-steal",)),
        # Of 100 requests a second in 5 s: 4.5 % either way, half as much more allowed.
        (served(6.0), ()),
        (served(8.0), ("noisy-rate",)),
    ],
)
def test_each_fault_has_its_flag(result: WindowResult, flags: tuple[str, ...]) -> None:
    assert flags_of(result, CONDITIONS) == flags
    assert set(flags) <= FLAGS.keys()


def test_point_carries_what_was_read_back() -> None:
    """A point has the granted units, not only the share asked for, and None for no reading."""
    point = to_point(changed(counter_power_w=None, throttle_reasons=None), CONDITIONS)
    assert isinstance(point, SoloPoint)
    assert (point.share_percent, point.units_granted, point.units_total) == (50, 66, 132)
    assert (point.counter_power_w, point.throttled, point.input_fingerprint) == (None, None, None)
    assert (point.memory_used_mib, point.job_hash) == (500, JOB.job_hash)


@pytest.mark.slow
def test_point_of_a_job_that_tells_its_data_has_their_fingerprint() -> None:
    declared = InputData(dtype="bf16", data="zeros")
    telling = with_fingerprint(dataclasses.replace(JOB, input=declared))
    point = to_point(taken(solo(telling, Share(50))), CONDITIONS)
    assert isinstance(point, SoloPoint)
    found = json.loads(point.input_fingerprint or "")
    assert (found["dtype"], found["features"]["zero_products"]) == ("bf16", 1.0)


def test_pair_point_keeps_its_two_jobs_apart() -> None:
    """With its hash, units, rate, demand and latencies each."""
    server = dataclasses.replace(JOB, offered_rate=120.0)
    sides = (SIDES[0], SIDES[1] | {"latency_p50_ms": None, "latency_p99_ms": None})
    result = taken(pair(server, Share(70), OTHER, Share(30), repeat=2), *reversed(sides))
    point = to_point(result, CONDITIONS)
    assert isinstance(point, PairPoint)
    assert [
        (p.job, p.job_hash, p.share_percent, p.units, p.rate, p.offered_rate, p.latency_p99_ms)
        for p in point.parts
    ] == [
        ("other", OTHER.job_hash, 30, 92, 100, None, None),
        ("x", server.job_hash, 70, 38, 7, 120, 9),
    ]
    assert (point.power_w, point.repeat, point.flags, point.mode) == (300, 2, (), "mps")


@pytest.mark.parametrize(
    ("mode", "shares", "expected"),
    [
        ("mps", (100, 100), "uncapped"),
        ("mps", (70, 70), "mps"),
        ("mps", (100, 90), "mps"),
        ("cu_mask", (50, 50), "cu_mask"),
        ("uncapped", (100, 100), "time-sliced"),
    ],
)
def test_pair_says_how_the_gpu_was_shared(
    mode: str, shares: tuple[float, float], expected: str
) -> None:
    """Without limits under MPS and without MPS are two different things."""
    target = pair(JOB, Share(shares[0]), OTHER, Share(shares[1]))
    conditions = dataclasses.replace(CONDITIONS, mode=mode)
    point = to_point(taken(target, {}, {}), conditions)
    assert isinstance(point, PairPoint)
    assert point.mode == expected


def test_failed_pair_leaves_a_mark_that_every_store_can_keep() -> None:
    """Its reason is one line, without the colours that a job's output may have."""
    error = "a job ended:\n\x1b[31mout of memory\x1b[0m\n" + 600 * "x"
    point = failed_point(PAIR.target, CONDITIONS, WINDOW.started_at, error)
    assert ([part.rate for part in point.parts], point.flags) == ([None, None], ("failed",))
    assert point.error is not None
    assert point.error.startswith("a job ended: [31mout of memory")
    assert point.error.isprintable()
    assert from_row(PairPoint, to_row(point)) == point


def test_job_beside_itself_is_one_pair_however_it_is_written() -> None:
    """10/90 and 90/10 are the same measurement, and alike twins are two processes."""
    assert pair(JOB, Share(90), JOB, Share(10)) == pair(JOB, Share(10), JOB, Share(90))
    first, second = pair(JOB, Share(50), JOB, Share(50)).specs
    assert (first.copy, second.copy) == (0, 1)
    assert first != second


def test_flags_page_lists_every_flag() -> None:
    page = (Path(__file__).parents[4] / "docs/flags.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{flag}` | {meaning} |" for flag, meaning in FLAGS.items()]
