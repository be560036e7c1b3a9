"""The process that runs the operation: how it is started, asked, and what it answers."""

import json
import os
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from advisor.core.gpu import WHOLE, Share, percent_for_units
from advisor.core.job import Job
from advisor.errors import JobError, LimitNotProvenError
from advisor.runtime.backends.backend import Backend
from advisor.runtime.jobs.launcher import check_program, prove
from advisor_profiling.kernels.running.bench import Ready, RunRequest
from advisor_profiling.kernels.timesync import PingPong, fit_clock
from advisor_profiling.kernels.trace import Run

START_S = 180.0
"""Importing PyTorch, making inputs and capturing graphs take tens of seconds at most."""

SPARE_S = 30.0
"""A run that takes so much longer than its executions never ends."""

_POLL_S = 0.2


class Worker:
    """A workload process that answers commands.

    Args:
        command: Without the names of the pipes.
        units: SMs under MPS; None: the whole GPU.
        backend: What enforces that.
        base: Environment without limits.
        folder: Empty, for its pipes and output.

    Raises:
        JobError: it cannot be started, failed, or was not ready in time.
        LimitNotProvenError: the limit is not in force.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        units: int | None,
        backend: Backend,
        base: Mapping[str, str],
        folder: Path,
    ) -> None:
        pipes = folder / "commands", folder / "answers"
        for pipe in pipes:
            os.mkfifo(pipe, 0o600)
        named = ("--commands", str(pipes[0]), "--answers", str(pipes[1]))
        job = Job(name="power-kernel", command=(*command, *named))
        check_program(job, base)
        percent = percent_for_units(units, backend.gpu.units_total or 0) if units else WHOLE
        # Both ends are opened, so that neither waits for a worker that has not started.
        self._commands = os.open(pipes[0], os.O_RDWR)
        self._answers = os.open(pipes[1], os.O_RDWR)
        self._unread = b""
        self._job = prove(job, Share(percent), backend, base, folder).start()
        try:
            self.ready = self._ready()
            _check_units(units, self.ready)
        except BaseException:
            self.close()
            raise

    def prepare(self, operation: Sequence[str]) -> Ready:
        """From now on run another operation; what PyTorch needs to start is not needed again.

        Args:
            operation: Its options, as on the command line of the workload.

        Raises:
            JobError: it failed, was not ready in time, or needs more memory than there is.
        """
        self._ask({"prepare": list(operation)})
        self.ready = self._ready()
        return self.ready

    def run(self, request: RunRequest) -> Run:
        """Times of one run in the host's clock; its readings are not known here.

        Raises:
            JobError: the operation failed, or did not end.
        """
        self._ask(
            {
                "executions": request.executions,
                "gap_s": request.gap_s,
                "lead_s": request.lead_s,
                "lead_executions": request.lead_executions,
            }
        )
        busy_s = request.executions * self.ready.execution_s + request.gap_s + request.lead_s
        return run_of(self._answer(2 * busy_s + SPARE_S, "did not end")["run"], request)

    def close(self) -> None:
        """End the process."""
        try:
            self._job.stop()
        finally:
            for pipe in (self._commands, self._answers):
                with suppress(OSError):
                    os.close(pipe)

    def _ask(self, command: dict[str, Any]) -> None:
        os.write(self._commands, json.dumps(command).encode() + b"\n")

    def _ready(self) -> Ready:
        said = self._answer(START_S, "was not ready")["ready"]
        return Ready(**{name: said[name] for name in Ready.__slots__ if name in said})

    def _answer(self, within_s: float, late: str) -> dict[str, Any]:
        end_s = time.monotonic() + within_s
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._answers], [], [], _POLL_S)
            if readable:
                self._unread += os.read(self._answers, 65536)
            elif self._job.exit_code is not None:
                self._job.check()
            elif time.monotonic() > end_s:
                raise JobError(
                    f"the operation {late} within {within_s:.0f} s",
                    why="it hangs, or takes far longer than when it was timed",
                    fix=f"its output is in {self._job.output}; run it alone first",
                )
        line, _, self._unread = self._unread.partition(b"\n")
        answer = cast("dict[str, Any]", json.loads(line))
        if fault := answer.get("fault"):
            raise _failed(fault, self._job.output)
        return answer


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
    marks = [clock.host_s(mark) for mark in said["marks_s"]]
    began = clock.host_s(said["lead_began_s"])
    return Run(
        starts_s=tuple(start for start, _ in pairwise(marks)),
        ends_s=tuple(end for _, end in pairwise(marks)),
        lead_s=marks[0] - began if request.lead_s or request.lead_executions else request.gap_s,
        readings=(),
        sync_error_s=clock.error_s,
        launched_s=said.get("launched_s"),
    )


def _check_units(wanted: int | None, ready: Ready) -> None:
    if wanted is not None and ready.units != wanted:
        raise LimitNotProvenError(
            f"the operation sees {ready.units} SMs, and should have {wanted}",
            why="its process is not under the limit that was proven before",
            fix="see whether the interpreter changes CUDA_MPS_* variables",
        )


def _failed(fault: Mapping[str, Any], output: Path) -> JobError:
    if fault["memory"]:
        return JobError(
            "the operation needs more memory than the GPU has free",
            why=str(fault["message"]),
            fix="take smaller sizes, or end what else holds memory on it (`nvidia-smi`)",
        )
    if "No module named 'torch'" in fault["message"]:
        return JobError(
            "this interpreter has no PyTorch",
            why=str(fault["message"]),
            fix="name one that has it: advisor power kernel --python /path/to/python",
        )
    return JobError(
        f"the operation failed: {fault['message']}", fix=f"its whole output is in {output}"
    )
