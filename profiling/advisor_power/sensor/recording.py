"""Records a card's sensors while a known load is switched on and off."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from advisor.core.gpu import Gpu
from advisor.errors import SourceError
from advisor.formats.moments import to_exact_text
from advisor_power.sensor.analysis import sensor_period
from advisor_power.sensor.processes import (
    Child,
    load,
    recorder_failed,
    recorders,
    run_stage,
)
from advisor_power.sensor.stimulus import (
    LONGEST_PERIOD_S,
    Stage,
    planned_s,
    steps_and_bursts,
    waves,
)
from advisor_power.sensor.trace import Trace, TraceHeader, append, begin_trace, read_trace

_WRITTEN_S = 1.0
"""After so long the recorders have written what they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What is recorded, and how.

    Attributes:
        gpu: The card; nobody else may compute on it.
        file: Must not be there.
        python: Interpreter that has PyTorch.
        environment: Without limits; the load sees this card only.
        seed: Of the random gaps and phases.
        report: Given a line of progress.
        more: Stages after those of the record.
    """

    gpu: Gpu
    file: Path
    python: str
    environment: Mapping[str, str]
    seed: int
    report: Callable[[str], None]
    more: Sequence[Stage] = ()


def record(wanted: Recording) -> Trace:
    """Record all stages; what was recorded before an error or Ctrl-C stays in the file.

    Raises:
        JobError: the load does not start, fails or never ends.
        SourceError: the sensors cannot be read.
        OSError: the file cannot be written.
    """
    begin_trace(wanted.file, header_of(wanted.gpu))
    with (
        load(wanted.python, wanted.environment) as child,
        recorders(wanted.gpu.uuid, wanted.file, wanted.environment) as watching,
    ):
        run_stages(child, steps_and_bursts(wanted.seed), wanted, watching)
        run_stages(child, _waves(wanted), wanted, watching)
        run_stages(child, wanted.more, wanted, watching)
        time.sleep(_WRITTEN_S)
        append(wanted.file, ["end", time.monotonic()])
    return read_trace(wanted.file)


def run_stages(
    child: Child, stages: Sequence[Stage], wanted: Recording, watching: Sequence[Child]
) -> None:
    """Have the load do stages, and add them to the recording."""
    left_s = planned_s(stages)
    for stage in stages:
        wanted.report(f"{stage.name:12} {stage.length_s:5.1f} s, {left_s:5.1f} s to go")
        for line in run_stage(child, stage, wanted.python):
            append(wanted.file, line)
        left_s -= stage.length_s
        if gone := [recorder for recorder in watching if recorder.gone]:
            raise recorder_failed(gone[0])


def _waves(wanted: Recording) -> tuple[Stage, ...]:
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


def header_of(gpu: Gpu) -> TraceHeader:
    """The first line of a recording of a card that begins now."""
    return TraceHeader(
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        driver=gpu.driver or "",
        started_at=to_exact_text(datetime.now(UTC)),
        epoch_s=time.time() - time.monotonic(),
    )
