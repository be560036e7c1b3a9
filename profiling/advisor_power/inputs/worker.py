"""The process that multiplies matrices, as the measuring side sees it."""

from advisor.formats.wire import read_tolerant, write
from advisor_power.inputs.bench import Ready, RefusedError
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.matrices import Matrices
from advisor_power.inputs.result import OutputCheck
from advisor_profiling.testbed.answering import Workload, failed, started

LOAD_S = 300.0
"""Copying and checking the largest matrices."""

_STOP_S = 60.0


class InputWorker:
    """A workload process that computes one case until it is given another one.

    Args:
        workload: What to start.

    Raises:
        JobError: it cannot be started, failed, or was not ready in time.
        LimitNotProvenError: the limit is not in force.
    """

    def __init__(self, workload: Workload) -> None:
        self._job, self.ready = started("power-input", workload, Ready)

    def load(self, case: InputCase, matrices: Matrices) -> OutputCheck:
        """Have a case computed from now on; what its outputs are.

        Raises:
            RefusedError: it cannot be computed.
            JobError: the process ended or does not answer.
        """
        b_path = matrices.b_path
        asked = {
            "a": str(matrices.a_path),
            "b": None if b_path is None else str(b_path),
            "shape": case.shape,
            "dtype": case.dtype,
            "work": case.work,
        }
        self._job.ask({"load": asked})
        said = self._job.answer(LOAD_S, "was not loaded")
        if refused := said.get("refused"):
            error = failed(refused, self._job.output)
            raise RefusedError(f"{case}: {error.what}", why=error.why, fix=error.fix)
        return read_tolerant(OutputCheck, write(said["loaded"]["outputs"]), name="the outputs")

    def stop(self) -> None:
        """Compute nothing."""
        self._job.ask({"stop": True})
        self._job.answer(_STOP_S, "did not stop")

    def count(self) -> float:
        """Launches so far."""
        return self._job.count()

    def check(self) -> None:
        """Check that the process still runs.

        Raises:
            JobError: it ended.
        """
        self._job.check()

    def close(self) -> None:
        """End the process."""
        self._job.close()
