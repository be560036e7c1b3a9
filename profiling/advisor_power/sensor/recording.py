"""Records a card's sensors while a known load is switched on and off."""

import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from advisor.core.gpu import Gpu
from advisor.errors import SourceError
from advisor.formats.moments import to_exact_text
from advisor.settings import python
from advisor_power.gpu_worker import AnsweringJob, AnsweringSpec, WorkerReady, started
from advisor_power.sensor import polled
from advisor_power.sensor.analysis import sensor_period
from advisor_power.sensor.trace import (
    LONGEST_PERIOD_S,
    LoadStage,
    Trace,
    TraceHeader,
    append,
    begin_trace,
    planned_s,
    read_trace,
    steps_and_bursts,
    waves,
)

Role: TypeAlias = Literal["power", "state", "bursts"]
"""What is polled, and how often: `polled`."""


class Poller:
    """A process that appends what it polls to a file that is there, until it is closed."""

    def __init__(
        self, gpu_uuid: str, file: Path, role: Role, environment: Mapping[str, str]
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        # A session of its own: Ctrl-C is for advisor, which ends it in order.
        self._process = subprocess.Popen(
            [python(), "-m", "advisor_power.sensor.polled", gpu_uuid, str(file), role],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def wait_ready(self) -> None:
        """Return when it polls.

        Raises:
            SourceError: it ends before, or takes too long.
        """
        assert self._process.stdout is not None
        # Python takes long to load from a cold or shared disk.
        said, _, _ = select.select([self._process.stdout], [], [], 120.0)
        if not said or self._process.stdout.readline() != b"ready\n":
            raise self.failed()

    def check(self) -> None:
        """Check that it still polls.

        Raises:
            SourceError: it ended.
        """
        if self.gone:
            raise self.failed()

    def failed(self) -> SourceError:
        """What to say where it does not poll any more: its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return SourceError(
            f"the sensors cannot be recorded: {last or 'nothing says why'}",
            why="the process that polls them ended",
            fix="look at `nvidia-smi` and `dmesg`, then try again",
        )

    def close(self) -> None:
        """End it."""
        polled.end(self._process)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


@contextmanager
def recorders(
    gpu_uuid: str, file: Path, environment: Mapping[str, str]
) -> Generator[tuple[Poller, ...]]:
    """Two processes that record power and state of a card into a file."""
    with (
        closing(Poller(gpu_uuid, file, "power", environment)) as power,
        closing(Poller(gpu_uuid, file, "state", environment)) as state,
    ):
        for poller in (power, state):
            poller.wait_ready()
        yield power, state


_WRITTEN_S = 1.0  # after so long the recorders have written what they have

_LATE_S = 30.0  # of a stage, beyond its own length


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorRecording:
    """What is recorded, and how.

    Attributes:
        load: The workload `power_load.py`, on a card on which nobody else computes.
        file: Must not be there.
        more: Stages after those of the record.
    """

    load: AnsweringSpec
    file: Path
    seed: int
    report: Callable[[str], None]
    more: Sequence[LoadStage] = ()

    @property
    def gpu(self) -> Gpu:
        """The card."""
        return self.load.backend.gpu


def record(wanted: SensorRecording) -> Trace:
    """Record all stages; what was recorded before an error or Ctrl-C stays in the file."""
    header = TraceHeader(
        gpu_model=wanted.gpu.model,
        gpu_uuid=wanted.gpu.uuid,
        driver=wanted.gpu.driver or "",
        started_at=to_exact_text(datetime.now(UTC)),
        epoch_s=time.time() - time.monotonic(),
    )
    begin_trace(wanted.file, header)
    job, _ = started("power-load", wanted.load, WorkerReady)
    with (
        closing(job),
        recorders(wanted.gpu.uuid, wanted.file, wanted.load.base) as watching,
    ):
        run_stages(job, steps_and_bursts(wanted.seed), wanted, watching)
        time.sleep(_WRITTEN_S)
        # Square waves at the period that was seen so far.
        period = sensor_period(read_trace(wanted.file))
        if period is None or period.period_s > LONGEST_PERIOD_S:
            rate_text = "hardly ever" if period is None else f"every {period.period_s:.2f} s"
            raise SourceError(
                f"the power of {wanted.gpu.model} is not read often enough: {rate_text}",
                why=f"waves need a channel that changes every {LONGEST_PERIOD_S:g} s or more often",
                fix=f"the recording so far is in {wanted.file}",
            )
        run_stages(job, waves(period.period_s, wanted.seed), wanted, watching)
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
    """Have the load do a stage; the lines of the recording as they come."""
    on = [list(span) for span in stage.on]
    job.ask({"name": stage.name, "length_s": stage.length_s, "on": on})
    latest_s = time.monotonic() + stage.length_s + _LATE_S
    while "done" not in (said := job.answer(latest_s - time.monotonic(), "did not end a stage")):
        yield said["line"]
