"""Records a card's sensors while a known load is switched on and off."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor.core.gpu import Gpu
from advisor.errors import SourceError
from advisor.formats.moments import to_exact_text
from advisor_power.sensor.analysis import sensor_period
from advisor_power.sensor.poller import Poller, recorders
from advisor_power.sensor.stimulus import (
    LONGEST_PERIOD_S,
    LoadStage,
    planned_s,
    steps_and_bursts,
    waves,
)
from advisor_power.sensor.trace import Trace, TraceHeader, append, begin_trace, read_trace
from advisor_profiling.testbed.answering import AnsweringJob, AnsweringSpec, started

_WRITTEN_S = 1.0
"""After so long the recorders have written what they have."""

_LATE_S = 30.0
"""Of a stage, beyond its own length."""


@dataclass(frozen=True, slots=True)
class LoadReady:
    """What the load says of itself: nothing."""

    units: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorRecording:
    """What is recorded, and how."""

    load: AnsweringSpec
    """The workload `power_load.py`, on a card on which nobody else computes."""
    file: Path
    """Must not be there."""
    seed: int
    report: Callable[[str], None]
    more: Sequence[LoadStage] = ()
    """Stages after those of the record."""

    @property
    def gpu(self) -> Gpu:
        """The card."""
        return self.load.backend.gpu


def record(wanted: SensorRecording) -> Trace:
    """Record all stages; what was recorded before an error or Ctrl-C stays in the file.

    Raises:
        JobError: the load does not start, fails or never ends.
        LimitNotProvenError: the load would not have the whole card.
        SourceError: the sensors cannot be read.
        OSError: the file cannot be written.
    """
    begin_trace(wanted.file, _header_of(wanted.gpu))
    job, _ = started("power-load", wanted.load, LoadReady)
    with (
        closing(job),
        recorders(wanted.gpu.uuid, wanted.file, wanted.load.base) as watching,
    ):
        run_stages(job, steps_and_bursts(wanted.seed), wanted, watching)
        run_stages(job, _waves(wanted), wanted, watching)
        run_stages(job, wanted.more, wanted, watching)
        time.sleep(_WRITTEN_S)
        append(wanted.file, ["end", time.monotonic()])
    return read_trace(wanted.file)


def run_stages(
    job: AnsweringJob,
    stages: Sequence[LoadStage],
    wanted: SensorRecording,
    watching: Sequence[Poller],
) -> None:
    """Have the load do stages, and add them to the recording."""
    left_s = planned_s(stages)
    for stage in stages:
        wanted.report(f"{stage.name:12} {stage.length_s:5.1f} s, {left_s:5.1f} s to go")
        for line in run_stage(job, stage):
            append(wanted.file, line)
        left_s -= stage.length_s
        for poller in watching:
            poller.check()


def run_stage(job: AnsweringJob, stage: LoadStage) -> Generator[list[Any]]:
    """Have the load do a stage; the lines of the recording as they come.

    Raises:
        JobError: it ends, or does not end the stage.
    """
    on = [list(span) for span in stage.on]
    job.ask({"name": stage.name, "length_s": stage.length_s, "on": on})
    latest_s = time.monotonic() + stage.length_s + _LATE_S
    while "done" not in (said := job.answer(latest_s - time.monotonic(), "did not end a stage")):
        yield said["line"]


def _waves(wanted: SensorRecording) -> tuple[LoadStage, ...]:
    """Square waves at the period that was seen so far."""
    time.sleep(_WRITTEN_S)
    period = sensor_period(read_trace(wanted.file))
    if period is None or period.period_s > LONGEST_PERIOD_S:
        found = "hardly ever" if period is None else f"every {period.period_s:.2f} s"
        raise SourceError(
            f"the power of {wanted.gpu.model} is not read often enough: {found}",
            why=f"waves need a channel that changes every {LONGEST_PERIOD_S:g} s or more often",
            fix=f"the recording so far is in {wanted.file}",
        )
    return waves(period.period_s, wanted.seed)


def _header_of(gpu: Gpu) -> TraceHeader:
    """The first line of a recording of a card that begins now."""
    return TraceHeader(
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        driver=gpu.driver or "",
        started_at=to_exact_text(datetime.now(UTC)),
        epoch_s=time.time() - time.monotonic(),
    )
