"""One operation from the first run to the report, on a GPU whose power is known exactly."""

import gzip
import math
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_kernel import COUNTER, INSTANT, MadeUpKernel, record
from reading import some

from advisor.core.gpu import Gpu
from advisor.errors import InputError, SourceError, StoreError
from advisor.validity.sensor_record import EnergyCounter, SensorRecord
from advisor.wire.power import KernelReport
from advisor_cli.power.kernel import report_lines
from advisor_data.known import KERNEL_REPORTS
from advisor_power.gpu_worker import Step
from advisor_power.kernels.measure import BLOCK_RUNS, measure_operation
from advisor_power.kernels.runs import (
    KernelPlan,
    Run,
    RunRequest,
    Sensors,
    WantedKernel,
    sensors_of,
)
from advisor_profiling.window import CounterTick

GPU = Gpu(uuid="GPU-1", model="Fake H200", driver="580.00.00", units_total=132)
FEW = WantedKernel(runs=80)


def rising(tau_s: float) -> float:
    """From 300 W to 500 W in some tens of milliseconds."""
    return 500 - 200 * math.exp(-tau_s / 0.02)


def measured(
    bench: MadeUpKernel,
    home: Path,
    wanted: WantedKernel = FEW,
    sensors: SensorRecord | None = None,
    steps: list[Step] | None = None,
    plans: list[KernelPlan] | None = None,
    gpu: Gpu = GPU,
) -> KernelReport:
    """The report, from a home that may have runs in it."""
    found = sensors or record()
    return measure_operation(
        bench,
        gpu,
        Sensors(found, found.channel("instant") or INSTANT),
        wanted,
        home,
        (steps if steps is not None else []).append,
        (plans if plans is not None else []).append,
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> KernelReport:
    """An operation of 1.5 ms that is slow at first, and in five runs."""
    bench = MadeUpKernel(rising, first_slower=(1.5, 1.2), slow=frozenset(range(100, 105)))
    return measured(bench, tmp_path_factory.mktemp("home"), WantedKernel(runs=160))


def test_steady_points_are_found(found: KernelReport) -> None:
    assert (found.sse_execution, some(found.ssp_power_w).value) == (3, pytest.approx(500, rel=0.01))
    assert (some(found.sse_power_w).value, found.before_w) == (
        pytest.approx(rising(0.0048), rel=0.1),
        pytest.approx(120, abs=1),
    )


def test_two_instruments_agree_within_three_percent(found: KernelReport) -> None:
    assert found.difference is not None, found.no_difference
    assert abs(some(found.difference.differ)) <= 0.03
    assert (found.difference.counter.value, some(found.ssp_energy_j).value) == (
        pytest.approx(0.75, rel=0.03),
        pytest.approx(0.75, rel=0.01),
    )


def test_curve_is_within_five_percent_of_the_truth(found: KernelReport) -> None:
    """In every bin; as it was read, the first bins are off by more than half."""
    curve = found.curve
    assert found.resolution_ms == pytest.approx(4.5)
    for point in curve:
        true = rising((point.begin_ms + point.end_ms) / 2000)
        assert point.power_w == pytest.approx(true, rel=0.05)
        assert point.low_w < point.power_w < point.high_w
    assert curve[1].raw_w is None or curve[1].raw_w < 0.5 * rising(0.007)


def test_slow_runs_are_dropped_and_counted(found: KernelReport) -> None:
    assert (
        found.dropped,
        found.runs,
        found.golden_runs,
        found.bin_low_ms,
        sum(found.histogram.counts),
    ) == ({"other execution time": 5}, 160, 155, pytest.approx(1.5), 160)


@pytest.mark.slow
@pytest.mark.parametrize("execution_s", [0.0003, 0.02])
def test_steady_power_repeats_within_one_percent(execution_s: float, tmp_path: Path) -> None:
    values: list[float] = []
    for seed in (1, 2):
        bench = MadeUpKernel(rising, execution_s=execution_s, seed=seed)
        power = measured(bench, tmp_path / str(seed))
        values.append(some(power.ssp_power_w).value)
    assert values[0] == pytest.approx(values[1], rel=0.01)


def test_what_was_before_does_not_count_as_power_of_the_operation(tmp_path: Path) -> None:
    """A light operation after 500 W: read, it seems to inherit power; corrected, it does not."""
    bench = MadeUpKernel(lambda _: 250.0, lead_w=500.0)
    power = measured(bench, tmp_path, WantedKernel(runs=160, before="gemm", lead_s=0.1))
    assert (power.before_w, some(power.settled_power_w).value) == (
        pytest.approx(500, rel=0.01),
        pytest.approx(250, rel=0.015),
    )
    early = [p for p in power.curve if p.end_ms <= 30]
    raw = [p.raw_w for p in early if p.raw_w is not None]
    assert sum(raw) / len(raw) > 1.2 * 250
    assert sum(p.power_w for p in early) / len(early) == pytest.approx(250, rel=0.015)
    assert power.difference is None
    assert "another operation before" in power.no_difference


# faults


class Late(MadeUpKernel):
    """The search for the length of runs goes well; then only the first `spared` runs do."""

    spared = 0
    blocks_begun = False

    def run(self, request: RunRequest) -> Run:
        run = super().run(request)
        if not self.blocks_begun:
            return run
        self.spared -= 1
        return replace(run, dropped="clock held back: hw-thermal") if self.spared < 0 else run

    def tick(self) -> CounterTick | None:
        self.blocks_begun = True
        return super().tick()


def test_too_few_golden_runs_make_no_curve(tmp_path: Path) -> None:
    bench = Late(lambda _: 300.0)
    bench.spared = 12
    power = measured(bench, tmp_path, WantedKernel(runs=40))
    assert (power.golden_runs, power.dropped) == (12, {"clock held back: hw-thermal": 28})
    assert power.no_curve.startswith("only 12 golden runs: it takes 20")
    assert (power.curve, power.sse_power_w, power.sigma_w, power.settled_power_w) == (
        (),
        None,
        None,
        None,
    )


class Miscounts(MadeUpKernel):
    """Its counter says a tenth too much."""

    def tick(self) -> CounterTick | None:
        found = super().tick()
        return found and CounterTick(found.at_s, 1.1 * found.energy_j)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bench", "gpu", "said"),
    [
        (Miscounts(rising), GPU, "the energy counter says +"),
        (MadeUpKernel(lambda _: 60.0), GPU, "and the idle GPU draws 120 W"),
        (
            MadeUpKernel(rising),
            replace(GPU, power_limit_w=300.0),
            "over 1.6 times the limit of 300 W",
        ),
    ],
)
def test_curve_that_is_not_to_be_believed_is_no_result(
    bench: MadeUpKernel, gpu: Gpu, said: str, tmp_path: Path
) -> None:
    """It says why; what does not need the curve stays, such as energy by the counter."""
    power = measured(bench, tmp_path, WantedKernel(runs=160), gpu=gpu)
    assert power.no_curve.startswith("the curve that readings give is not to be believed: ")
    assert said in power.no_curve
    assert (power.curve, power.sse_power_w, power.sse_energy_j, power.sigma_w) == (
        (),
        None,
        None,
        None,
    )
    assert power.ssp_power_w is not None
    assert some(power.difference).counter.value > 0
    assert (some(power.difference).curve_j, some(power.difference).differ) == (None, None)
    assert f"no curve    {power.no_curve}" in "\n".join(report_lines(power))
    assert measured(MadeUpKernel(rising), tmp_path / "other", WantedKernel(runs=160)).curve


class Hot(MadeUpKernel):
    """Every run is held back."""

    def run(self, request: RunRequest) -> Run:
        return replace(super().run(request), dropped="clock held back: hw-thermal")


@pytest.mark.parametrize(
    ("bench", "said"),
    [
        (Late(rising), r"none of 40 runs can be used.*hw-thermal"),
        (Hot(rising), r"60 of 60 runs could not be used.*hw-thermal.*card is cool"),
    ],
)
def test_nothing_but_throttled_runs_is_an_error(
    bench: MadeUpKernel, said: str, tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match=f"(?s){said}"):
        measured(bench, tmp_path, WantedKernel(runs=40))


class GoesBack(MadeUpKernel):
    """The driver was loaded again: its counter began at 0."""

    ticks = 0

    def tick(self) -> CounterTick | None:
        self.ticks += 1
        found = some(super().tick())
        return CounterTick(found.at_s, 1.0) if self.ticks == 4 else found


class NoCounter(MadeUpKernel):
    """Its counter does not answer."""

    def tick(self) -> CounterTick | None:
        return None


WINDOWS = replace(COUNTER, coverage_spread=0.08, covers_everything=False)


@pytest.mark.parametrize(
    ("bench", "energy", "said"),
    [
        (MadeUpKernel(rising, stuck_counter=True), COUNTER, "still or went back in 4 of 4 blocks"),
        (GoesBack(rising), COUNTER, "stood still or went back in 1 of 4 blocks"),
        (NoCounter(rising), COUNTER, "stood still or went back in 4 of 4 blocks"),
        (MadeUpKernel(rising), None, "no energy counter"),
        (MadeUpKernel(rising), WINDOWS, "does not add up everything"),
    ],
)
def test_counter_that_is_stuck_was_reset_or_overlooks_some_is_not_used(
    bench: MadeUpKernel, energy: EnergyCounter | None, said: str, tmp_path: Path
) -> None:
    power = measured(bench, tmp_path, sensors=record(energy=energy))
    assert power.difference is None
    assert said in power.no_difference
    assert power.ssp_power_w is not None


def test_sensor_that_does_not_change_is_an_error(tmp_path: Path) -> None:
    bench = MadeUpKernel(rising, channel=replace(INSTANT, period_ms=1e9))
    with pytest.raises(SourceError, match="hardly any power reading fell into 60 runs"):
        measured(bench, tmp_path)


def test_power_that_never_settles_has_no_ssp(tmp_path: Path) -> None:
    bench = MadeUpKernel(lambda tau_s: 200 + 300 * tau_s, execution_s=0.02)
    power = measured(bench, tmp_path, WantedKernel(runs=40, resolution_ms=25))
    assert (power.ssp_execution, power.ssp_power_w, power.ssp_energy_j) == (None, None, None)


@pytest.mark.parametrize(
    ("execution_s", "wanted", "said"),
    [
        (0.4, FEW, "one execution takes 400 ms"),
        (0.0015, WantedKernel(resolution_ms=1, within_w=1), "minutes, and 10 are allowed"),
        (0.0015, WantedKernel(runs=400, most_s=30), "400 runs take"),
    ],
)
def test_operation_that_is_too_long_or_a_plan_that_is_is_refused(
    execution_s: float, wanted: WantedKernel, said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        measured(MadeUpKernel(rising, execution_s=execution_s), tmp_path, wanted)


def test_sensors_of_a_card_that_nobody_measured() -> None:
    with pytest.raises(InputError, match="run `advisor power sensor` first"):
        sensors_of(GPU, [record(driver="570.1")])
    with pytest.raises(SourceError, match="no instant power reading"):
        sensors_of(GPU, [record(None)])
    assert sensors_of(GPU, [record()]).channel == INSTANT
    assert record().energy == COUNTER


# going on


class Interrupted(MadeUpKernel):
    """Ctrl-C in the middle of the second block."""

    def tick(self) -> CounterTick | None:
        if getattr(self, "in_blocks", None) is None:
            self.in_blocks = self.runs
        return super().tick()

    def run(self, request: RunRequest) -> Run:
        begun = getattr(self, "in_blocks", None)
        if begun is not None and self.runs >= begun + BLOCK_RUNS + 5:
            raise KeyboardInterrupt
        return super().run(request)


@pytest.mark.slow
def test_interrupted_measurement_goes_on(tmp_path: Path) -> None:
    """The finished block is kept, the search is not made again, half a line does no harm."""
    with pytest.raises(KeyboardInterrupt):
        measured(Interrupted(rising), tmp_path)
    (file,) = (tmp_path / "kernels").glob("*.jsonl.gz")
    assert len(gzip.decompress(file.read_bytes()).splitlines()) == 2
    with file.open("ab") as half:
        half.write(gzip.compress(b'{"runs": [{"starts_s": [0.1')[:20])
    steps: list[Step] = []
    again = MadeUpKernel(rising, seed=3)
    power = measured(again, tmp_path, steps=steps)
    assert (power.runs, again.runs) == (80, 60)
    assert (steps[0].done, steps[-1].total, steps[-1].eta_s) == (
        BLOCK_RUNS + 1,
        80,
        pytest.approx(0),
    )

    third = MadeUpKernel(rising)
    assert measured(third, tmp_path).curve == power.curve
    assert [kept.curve for kept in KERNEL_REPORTS.read(tmp_path)] == [power.curve]
    assert third.runs == 0
    fresh = MadeUpKernel(rising)
    measured(fresh, tmp_path, WantedKernel(runs=40, fresh=True))
    assert fresh.runs > 40


def test_runs_under_other_conditions_are_kept_apart(tmp_path: Path) -> None:
    """After another operation the length of runs need not be looked for."""
    measured(MadeUpKernel(rising), tmp_path, WantedKernel(runs=40))
    other = MadeUpKernel(rising)
    measured(other, tmp_path, WantedKernel(runs=40, before="triad", lead_s=0.1))
    assert other.runs == 40
    assert len(list((tmp_path / "kernels").glob("*.jsonl.gz"))) == 2


def test_broken_file_of_runs_says_what_to_do(tmp_path: Path) -> None:
    measured(MadeUpKernel(rising), tmp_path, WantedKernel(runs=40))
    (file,) = (tmp_path / "kernels").glob("*.jsonl.gz")
    file.write_text("{}\n")
    with pytest.raises(StoreError, match=r"does not hold results.*--fresh"):
        measured(MadeUpKernel(rising), tmp_path, WantedKernel(runs=40))
