"""What a wanted resolution costs, before anything is run, and what cannot be had.

Differentiating a reading that is the mean of a window W multiplies its noise: the power of a bin of
width delta that m readings fell into is known to `sqrt(2) * (W / delta) * sigma_R / sqrt(m)`, and
noise adds up once per window along the run.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from advisor.core.gpu import Gpu
from advisor.errors import InputError, SourceError
from advisor.validity.sensor_record import PowerChannel, SensorRecord, record_for
from advisor_power.kernels.runs import IDLE

_FINEST_MS = 0.5
"""The sensor is asked every 0.3 ms, so when a reading changed is not known better than this."""


LEAD_S = 0.1  # of the operation before each run: several windows of the sensor


@dataclass(frozen=True, slots=True)
class Sensors:
    """Record of a card's sensors, and its instant channel."""

    record: SensorRecord
    channel: PowerChannel


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedKernel:
    """How an operation is measured.

    Attributes:
        resolution_ms: Width of the curve's bins.
        within_w: Standard error of a bin in the first window of a run; None: what Table I's number
            of runs gives.
        runs: How many; None: by Table I and `within_w`.
        most_s: Longest time that it may take.
        before: Operation before each run, or idle.
        lead_s: How long that runs.
        fresh: Measure again what was measured before.
    """

    resolution_ms: float = 5.0
    within_w: float | None = None
    runs: int | None = None
    most_s: float = 600.0
    before: str = IDLE
    lead_s: float = 0.0
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """How many runs are made, and what they cost and give.

    Attributes:
        sigma_w: Standard error of the power of one bin within the first window of a run, W.
        sigma_end_w: The same at the end of a run.
        gpu_busy_s: Executions alone.
        seconds: With the idle gaps.
    """

    runs: int
    sigma_w: float
    sigma_end_w: float
    gpu_busy_s: float
    seconds: float


def sigma_power_w(window_ms: float, bin_ms: float, noise_w: float, readings: float) -> float:
    """Standard error of the power of one bin, W."""
    return math.sqrt(2) * (window_ms / bin_ms) * noise_w / math.sqrt(readings)


def least_gap_s(channel: PowerChannel) -> float:
    """Nothing runs for so long before a run, so that a reading can be of that alone.

    What comes on top is random and up to a period of the sensor, so that readings fall at all times
    of a run. The readings of the run before have been waited for.
    """
    return (channel.window_ms + channel.delay_spread_ms) / 1000


def make_plan(
    channel: PowerChannel, *, bin_ms: float, run_s: float, runs: int, lead_s: float = 0.0
) -> KernelPlan:
    """What so many runs give and cost, with `lead_s` of another operation before each."""
    readings = runs * bin_ms / channel.period_ms
    sigma = sigma_power_w(channel.window_ms, bin_ms, channel.noise_w, readings)
    windows = max(1.0, run_s * 1000 / channel.window_ms)
    busy = runs * (run_s + lead_s)
    # From the end of a run to the start of the next, mean.
    gap_s = channel.longest_delay_s + least_gap_s(channel) + channel.period_ms / 2000
    return KernelPlan(
        runs=runs,
        sigma_w=sigma,
        sigma_end_w=sigma * math.sqrt(windows),
        gpu_busy_s=busy,
        seconds=busy + runs * gap_s,
    )


def runs_for(channel: PowerChannel, *, bin_ms: float, within_w: float) -> int:
    """Runs for a standard error of `within_w` in the first window of a run."""
    of_one_w = sigma_power_w(channel.window_ms, bin_ms, channel.noise_w, 1)
    needed = max(1, math.ceil((of_one_w / within_w) ** 2))
    return math.ceil(needed * channel.period_ms / bin_ms)


def check_resolution(channel: PowerChannel, bin_ms: float) -> None:
    """Refuse a bin that no number of readings resolves.

    Raises:
        InputError: it is below what the sensor can be asked for, or longer than its window.
    """
    if not bin_ms >= _FINEST_MS:
        raise InputError(
            f"{bin_ms:g} ms cannot be resolved",
            why="the sensor is asked every 0.3 ms: what happens within "
            f"{_FINEST_MS:g} ms cannot be told apart, however many readings there are",
            fix="ask for --resolution-ms 5, or for 1 with many more runs",
        )
    if bin_ms > channel.window_ms:
        raise InputError(
            f"{bin_ms:g} ms is longer than the {channel.window_ms:g} ms window of this sensor",
            why="such a curve needs no deconvolution: a reading is finer than that by itself",
            fix=f"ask for --resolution-ms {channel.window_ms:g} or less",
        )


def check_cost(plan: KernelPlan, channel: PowerChannel, *, bin_ms: float, most_s: float) -> None:
    """Refuse a plan that takes longer than it may.

    Raises:
        InputError: it does; says what can be had in that time.
    """
    if plan.seconds <= most_s:
        return
    affordable = max(1, int(plan.runs * most_s / plan.seconds))
    readings = affordable * bin_ms / channel.period_ms
    sigma = sigma_power_w(channel.window_ms, bin_ms, channel.noise_w, readings)
    raise InputError(
        f"{plan.runs} runs take {plan.seconds / 60:.1f} minutes, and {most_s / 60:g} are allowed",
        why=f"with a window of {channel.window_ms:g} ms and noise of {channel.noise_w:g} W that is "
        f"what +-{plan.sigma_w:.3g} W at {bin_ms:g} ms needs",
        fix=f"{affordable} runs fit and give +-{sigma:.3g} W: ask for that with --within-w, for a "
        "longer --resolution-ms, or allow more with --minutes",
    )


def sensors_of(gpu: Gpu, records: Iterable[SensorRecord]) -> Sensors:
    """Sensors of a card by the records that there are.

    Raises:
        InputError: there is none of the card.
        SourceError: the card has no instant channel.
    """
    record = record_for(gpu.uuid, gpu.model, gpu.driver or "", records)
    if record is None:
        raise InputError(
            f"there is no record of the power sensors of {gpu.model} with driver {gpu.driver}",
            why="without window, delay and noise of a reading nobody knows which time it is of",
            fix="run `advisor power sensor` first: a few minutes, once for a card and driver",
        )
    channel = record.channel("instant")
    if channel is None:
        raise no_instant(gpu.model)
    return Sensors(record, channel)


def no_instant(model: str) -> SourceError:
    """What to say of a card whose power is only read as a mean over a second."""
    return SourceError(
        f"{model} has no instant power reading",
        why="its driver gives only a mean over a second, in which single executions are lost",
        fix="measure energy with `advisor profile`; a driver of 550 or newer may have the reading",
    )
