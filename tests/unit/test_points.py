import dataclasses
from pathlib import Path

import pytest
from scripted import GPU

from advisor.flags import FLAGS
from advisor.gpu import Share
from advisor.job import Job
from advisor.records import Counters
from advisor.runtime.backend import Granted
from advisor_profiling.estimate import Estimate
from advisor_profiling.points import Conditions, Taken, Usage, flags_of, solo_point
from advisor_profiling.window import Window, WindowRules

COUNTERS = Counters(
    sm_active_percent=48,
    sm_occupancy_percent=20,
    fp32_active_percent=5,
    dram_active_percent=30,
    pcie_tx_mib_per_s=1,
    pcie_rx_mib_per_s=1,
)
WINDOW = Window(
    started_at="2026-11-21T00:00:00.000000Z",
    window_s=2.0,
    settle_s=1.5,
    settled=True,
    rate=Estimate(100, 0.5),
    power=Estimate(300, 1.0),
    counter_power_w=303.0,
    counters=COUNTERS,
    sm_clock_mhz=1980.0,
    memory_clock_mhz=3201.0,
    temperature_c=50.0,
    power_limit_w=700.0,
    throttle_reasons=(),
)
USAGE = Usage(memory_used_mib=500, job_cpu_percent=100, cpu_steal_percent=0.1)
TAKEN = Taken(
    share=Share(50),
    repeat=0,
    granted=Granted(66, mps=True),
    window=WINDOW,
    rate=Estimate(100, 0.5),
    usage=USAGE,
)
CONDITIONS = Conditions(
    job=Job(name="x", command=("x",)),
    gpu=GPU,
    rules=WindowRules(),
    run="r",
    mode="mps",
    source="scripted",
    host="h",
    idle_power_w=77.0,
)


def changed(**window: object) -> Taken:
    return dataclasses.replace(TAKEN, window=dataclasses.replace(WINDOW, **window))


def test_good_window_has_no_flag() -> None:
    """Flags are for what went wrong only."""
    assert flags_of(TAKEN, CONDITIONS) == ()


@pytest.mark.parametrize(
    ("taken", "flag"),
    [
        (dataclasses.replace(TAKEN, rate=Estimate(100, 2.0)), "noisy-rate"),
        (dataclasses.replace(TAKEN, rate=Estimate(100, None)), "noisy-rate"),
        (changed(power=Estimate(300, 4.0)), "noisy-power"),
        (changed(settled=False), "not-settled"),
        (changed(throttle_reasons=("sw-power-cap",)), "throttled"),
        (changed(counter_power_w=320.0), "counter-mismatch"),
        (
            changed(counters=dataclasses.replace(COUNTERS, dram_active_percent=None)),
            "counters-missing",
        ),
        (changed(counters=dataclasses.replace(COUNTERS, sm_active_percent=20.0)), "cpu-bound"),
        (
            dataclasses.replace(TAKEN, usage=dataclasses.replace(USAGE, cpu_steal_percent=3.0)),
            "cpu-steal",
        ),
    ],
)
def test_each_fault_has_its_flag(taken: Taken, flag: str) -> None:
    """Every flag of the table is raised by its fault, and by nothing else."""
    assert flags_of(taken, CONDITIONS) == (flag,)
    assert flag in FLAGS


def test_point_carries_what_was_read_back() -> None:
    """A point has the granted units, not only the share asked for, and None for no reading."""
    taken = changed(counter_power_w=None, throttle_reasons=None)
    point = solo_point(taken, CONDITIONS)
    assert (point.share_percent, point.units_granted, point.units_total) == (50, 66, 132)
    assert point.counter_power_w is None
    assert point.throttled is None
    assert point.memory_used_mib == 500
    assert point.job_hash == CONDITIONS.job.job_hash


def test_flags_page_lists_every_flag() -> None:
    """The page and the code name the same flags with the same meanings."""
    page = (Path(__file__).parents[2] / "docs/flags.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{flag}` | {meaning} |" for flag, meaning in FLAGS.items()]
