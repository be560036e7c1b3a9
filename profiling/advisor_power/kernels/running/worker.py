"""The process that runs the operation: how it is started, asked, and what it answers."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from advisor_power.kernels.running.bench import Ready, RunRequest
from advisor_power.kernels.timesync import PingPong, fit_clock
from advisor_power.kernels.trace import Run
from advisor_profiling.testbed.answering import Workload, started

SPARE_S = 30.0
"""A run that takes so much longer than its executions never ends."""


class Worker:
    """A workload process that answers commands.

    Args:
        workload: What to start.

    Raises:
        JobError: it cannot be started, failed, or was not ready in time.
        LimitNotProvenError: the limit is not in force.
    """

    def __init__(self, workload: Workload) -> None:
        self._job, self.ready = started("power-kernel", workload, Ready)

    def prepare(self, operation: Sequence[str]) -> Ready:
        """From now on run another operation; what PyTorch needs to start is not needed again.

        Args:
            operation: Its options, as on the command line of the workload.

        Raises:
            JobError: it failed, was not ready in time, or needs more memory than there is.
        """
        self._job.ask({"prepare": list(operation)})
        self.ready = self._job.ready(Ready)
        return self.ready

    def run(self, request: RunRequest) -> Run:
        """Times of one run in the host's clock; its readings are not known here.

        Raises:
            JobError: the operation failed, or did not end.
        """
        self._job.ask(
            {
                "executions": request.executions,
                "gap_s": request.gap_s,
                "lead_s": request.lead_s,
                "lead_executions": request.lead_executions,
            }
        )
        busy_s = request.executions * self.ready.execution_s + request.gap_s + request.lead_s
        return run_of(self._job.answer(2 * busy_s + SPARE_S, "did not end")["run"], request)

    def close(self) -> None:
        """End the process."""
        self._job.close()


def run_of(said: Mapping[str, Any], request: RunRequest) -> Run:
    """A run in the host's clock, from the GPU's times and ping-pongs.

    Args:
        said: `marks_s` between executions and `lead_began_s`, of the GPU's clock; `ping_pongs`;
            `launched_s` of the host's.
        request: What was asked for.

    Raises:
        SourceError: the clocks cannot be compared.
    """
    clock = fit_clock([PingPong(*numbers) for numbers in said["ping_pongs"]])
    # Clocks are compared to a microsecond; more digits would fill the disk.
    marks = [round(clock.host_s(mark), 7) for mark in said["marks_s"]]
    began = clock.host_s(said["lead_began_s"])
    return Run(
        starts_s=tuple(start for start, _ in pairwise(marks)),
        ends_s=tuple(end for _, end in pairwise(marks)),
        lead_s=marks[0] - began if request.lead_s or request.lead_executions else request.gap_s,
        readings=(),
        sync_error_s=clock.error_s,
        launched_s=said.get("launched_s"),
    )
