"""Jobs: named commands that make countable progress."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from advisor.core.results import TOLERANCE

ProgressKind = Literal["counter", "output", "runs", "metrics"]
InputSource = Literal["real", "random", "synthetic"]

WhenOneEnds = Literal["keep", "stop"]
"""The other job goes on under its limit, or is stopped. Nothing is started in its place; the next
pair of the queue starts when both are over."""

WhenP99Breaks = Literal["tell", "end-newest"]
"""Where a server breaks its promise for some time: it is told, or the newest job that serves nobody
is ended as well."""

_NOT_RUN = (
    *("description", "workdir", "start_timeout_s", "memory_mib"),
    *("results", "offered_rate", "max_p99_ms", "host_memory_mib", "max_tasks", "input_fingerprint"),
)


START_TIMEOUT_S = 180.0
"""What a job has until its first progress, where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSettings:
    """How the progress of a job is read.

    Attributes:
        kind: "counter": the job writes a count to the file `ADVISOR_PROGRESS_FILE`; "output":
            `pattern` is matched against each line of the job's output; "runs": the command is
            short and is started again each time it ends; "metrics": a server shows Prometheus its
            counter (advisor.scrape).
        unit: What one step is: images, tokens, steps, matrices.
        pattern: Regular expression with at most one group, the number.
        cumulative: The number is the total so far; False: it is the progress of its line.
        per_run: Progress of one completed run, for "runs".
        gate: The job waits at the gate after its warm-up (see docs/job-file.md).
        url: Of the page on this host, for "metrics".
        counter: Name of the counter on it, with labels in braces where not all are meant.
        histogram: Of latencies, alike; None: they are not read.
    """

    kind: ProgressKind = "counter"
    unit: str = "steps"
    pattern: str | None = None
    cumulative: bool = True
    per_run: float = 1
    gate: bool = False
    url: str | None = None
    counter: str | None = None
    histogram: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputData:
    """What the job was fed: power depends on it (docs/job-file.md).

    Attributes:
        dtype: Such as "bf16".
        sparsity: Part of zeros, 0..1.
        data: What its matrices hold, in the input language (docs/input-power.md); None: not told.
    """

    source: InputSource = "random"
    dtype: str | None = None
    sparsity: float | None = None
    data: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsSettings:
    """How the values of a job are read that tell whether its work is right.

    Attributes:
        pattern: Regular expression, searched in each line of the job's output; its one group is
            the value. None: the job reports through its progress file, if it does.
        tolerance: Largest relative difference from the same job on the whole GPU that is rounding.
    """

    pattern: str | None = None
    tolerance: float = TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A named command.

    Attributes:
        command: Arguments as the kernel gets them; no shell.
        workdir: Absolute path, or None for the current one.
        env: Variables added to the environment.
        warm_up_s: Least time between start and the first window, s; the time until rate and
            power are flat comes on top.
        results: None: the job does not say that it reports values; what it reports is read.
        start_timeout_s: The job is given up when it made no progress in this time, s.
        memory_mib: GPU memory that it needs, MiB, if known.
        offered_rate: Requests per second that arrive at a job that serves a fixed demand, in its
            unit of progress; None: it works as fast as it can.
        max_p99_ms: Longest 99th percentile of the time to answer a request that is promised to its
            users; advice and launches keep it. None: nothing is promised.
        host_memory_mib: Memory of the host that it may take, MiB; None: nearly all that there is.
        max_tasks: Processes and threads that it may have; None: thousands (runtime/host/bounds).
        input_fingerprint: JSON of what `input.data` switches, set by the command that measures;
            None: no data are declared, or nobody has worked it out.
    """

    name: str
    command: tuple[str, ...]
    workdir: Path | None = None
    env: tuple[tuple[str, str], ...] = ()
    progress: ProgressSettings = ProgressSettings()
    results: ResultsSettings | None = None
    warm_up_s: float = 0
    start_timeout_s: float = START_TIMEOUT_S
    memory_mib: int | None = None
    offered_rate: float | None = None
    max_p99_ms: float | None = None
    host_memory_mib: int | None = None
    max_tasks: int | None = None
    input: InputData = InputData()
    input_fingerprint: str | None = None
    description: str = ""

    @property
    def job_hash(self) -> str:
        """Identity of what is run: 16 hex digits; description, workdir and hints do not count.

        Nor does the offered rate, which only repeats what the command says.
        """
        fields = _as_declared(self)
        for free in _NOT_RUN:
            del fields[free]
        if self.input.data is None:
            # Jobs that do not tell it keep the hash that they had before it could be told.
            del fields["input"]["data"]
        if self.progress.kind != "metrics":
            for name in ("url", "counter", "histogram"):
                del fields["progress"][name]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _as_declared(settings: Any) -> dict[str, Any]:
    """Values by name; one that equals its default is the default: 0.0 as 0, in one hash with it."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            found[field.name] = _as_declared(value)
        else:
            found[field.name] = field.default if value == field.default else value
    return found
