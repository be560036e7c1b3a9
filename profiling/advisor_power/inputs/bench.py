"""What computes cases and reads the sensors meanwhile: a GPU, or one that is made up."""

from dataclasses import dataclass
from typing import Protocol

from advisor.errors import JobError
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.matrices import Matrices
from advisor_power.inputs.result import InputConditions, OutputCheck
from advisor_profiling.window.window import MeasuredWindow


class RefusedError(JobError):
    """One case cannot be computed; others can."""


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """One case in a steady loop: what its outputs were, and the window."""

    outputs: OutputCheck
    window: MeasuredWindow


class InputBench(Protocol):
    """Computes one case after the other on one GPU."""

    @property
    def conditions(self) -> InputConditions:
        """Where it computes."""
        ...

    def idle_w(self) -> float | None:
        """Power while nothing is computed; ends what runs."""
        ...

    def measure(self, case: InputCase, matrices: Matrices) -> MeasuredCase:
        """One case, which runs on afterwards.

        Raises:
            RefusedError: it cannot be computed; the next one may.
            JobError: the workload ended or hangs.
            BusyError: somebody else computes on the GPU.
        """
        ...
