"""What runs an operation and reads the sensors meanwhile: a GPU, or one that is made up."""

from dataclasses import dataclass
from typing import Protocol

from advisor_power.kernels.trace import GaplessRun, Run
from advisor_profiling.window.window import CounterTick


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReady:
    """What a workload says of itself before the first run."""

    operation: str
    """Its canonical text."""
    execution_s: float
    """One execution, median of some after warming up."""
    launches: int
    """Of the operation in one execution, as many as make it long enough to be timed."""
    captured: bool
    """Whether an execution is one CUDA graph; else each launch is one by itself."""
    units: int | None
    """SMs that it sees; None where it has no GPU."""
    libraries: dict[str, str]
    launch_flop: float | None = None
    """Floating point operations of one launch, by its definition; None where the operation is not
    one of ours."""
    launch_bytes: float | None = None
    """That its operands hold, the result included, each once; None as above."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run: after `gap_s` of nothing, the operation before it, if any, then it."""

    executions: int
    gap_s: float
    lead_s: float = 0.0
    """Of the operation before it."""
    lead_executions: int = 0
    """So many of the operation before it, instead of a time; 0: by the time."""


class KernelBench(Protocol):
    """Runs executions of one operation on one GPU."""

    @property
    def ready(self) -> KernelReady:
        """What the workload says of itself."""
        ...

    def run(self, request: RunRequest) -> Run:
        """One run with its readings; `dropped` says where it cannot be used.

        Raises:
            JobError: the operation failed, did not end, or needs more memory than there is.
            SourceError: the sensor does not answer.
        """
        ...

    def stretch(self, seconds: float) -> GaplessRun:
        """The operation without a gap for so long, with what slow sensors read; raises as `run`."""
        ...

    def tick(self) -> CounterTick | None:
        """Wait for a change of the energy counter; None where there is none in time."""
        ...
