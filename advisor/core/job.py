"""Jobs: named commands that make countable progress, and whether their results are right.

A share that is on can still be wrong: under some limits GPU libraries leave parts of a result out,
and a job that computes NaN draws less power, so that a broken share looks like the best one.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

from advisor.errors import InputError

Verdict = Literal["right", "wrong", "differ"]
"""right: every value was finite, and the first ones agree with those at the full GPU; wrong: one
was not finite; differ: one is further from the full GPU's than the job's tolerance."""

VERDICT_FLAGS: Mapping[str | None, str] = {"wrong": "wrong-results", "differ": "results-differ"}

TOLERANCE = 0.01
"""Largest relative difference of a value from the full GPU's, where a job does not say its own."""


def verdict_flags(verdicts: Iterable[str | None]) -> tuple[str, ...]:
    """The flags of a window whose jobs got these verdicts, each once."""
    return tuple(dict.fromkeys(VERDICT_FLAGS[v] for v in verdicts if v in VERDICT_FLAGS))


@dataclass(frozen=True, slots=True)
class Reported:
    """What a job has said of its results so far.

    Attributes:
        first: The first values, each after the job's count at it.
        count: How many values there were.
        not_finite: How many of them were NaN or infinite.
        last: The newest one; None before the first.
    """

    first: tuple[tuple[int, float], ...] = ()
    count: int = 0
    not_finite: int = 0
    last: float | None = None

    def judge(self, reference: "Reported | None", tolerance: float) -> Verdict | None:
        """What the values say beside those of the same job, with the same seed, on the whole GPU.

        None where nothing was reported, or nothing that can be compared with the reference.
        """
        if self.not_finite:
            return "wrong"
        gap = None if reference is None or reference.not_finite else self.largest_gap(reference)
        return None if gap is None else "right" if gap <= tolerance else "differ"

    def largest_gap(self, reference: "Reported") -> float | None:
        """Largest relative difference over the counts that both reported; None if there is none."""
        values = dict(reference.first)
        return max(
            (relative_gap(value, values[at]) for at, value in self.first if at in values),
            default=None,
        )

    @property
    def written(self) -> str | None:
        """The first values as one line, as points keep them: "48=10.93 96=10.68"."""
        finite = (f"{at}={value:.9g}" for at, value in self.first if math.isfinite(value))
        return " ".join(finite) or None

    @classmethod
    def read(cls, text: str | None) -> "Reported | None":
        """What `written` wrote; None of nothing, or of what is no such line."""
        try:
            pairs = [item.split("=") for item in (text or "").split()]
            first = tuple((int(at), float(value)) for at, value in pairs)
        except ValueError:
            return None
        return cls(first, count=len(first), last=first[-1][1]) if first else None


NOTHING = Reported()
"""Of a job that does not report results."""


def relative_gap(value: float, reference: float) -> float:
    """Distance of a value from its reference, relative to the reference."""
    # Values closer to zero than this are compared as if they were this large.
    gap = abs(value - reference) / max(abs(reference), 1e-12)
    return gap if math.isfinite(gap) else math.inf


ProgressKind = Literal["counter", "output", "runs", "metrics"]
InputSource = Literal["real", "random", "synthetic"]

WhenOneEnds = Literal["keep", "stop"]
"""The other job goes on under its limit, or is stopped. Nothing is started in its place; the next
pair of the queue starts when both are over."""

WhenP99Breaks = Literal["tell", "end-newest"]
"""If a server breaks its p99 for some time: warn, or also end the newest batch job."""

_NOT_RUN = (
    *("description", "workdir", "start_timeout_s", "memory_mib"),
    *("results", "offered_rate", "max_p99_ms", "host_memory_mib", "max_tasks", "input_fingerprint"),
    *("restartable", "kernels_per_unit"),
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
        memory_mib: GPU memory that it needs, MiB, if known; of several GPUs on each.
        offered_rate: Requests per second that arrive at a job that serves a fixed demand, in its
            unit of progress; None: it works as fast as it can.
        max_p99_ms: Longest 99th percentile of the time to answer a request that is promised to its
            users; advice and launches keep it. None: nothing is promised.
        host_memory_mib: Memory of the host that it may take, MiB; None: nearly all that there is.
        max_tasks: Processes and threads that it may have; None: thousands.
        restartable: It may be stopped and started again: after seconds for a trial of ways, or from
            its checkpoint at another split.
        gpus: How many GPUs the job holds: its command is started once, sees all of them and makes
            its ranks itself.
        kernels_per_unit: GPU kernels of a unit of its progress, counted by a profiler of CUDA
            (CUPTI); a profile keeps them where the probe of short kernels cannot run.
        input_fingerprint: JSON of what `input.data` switches, set by the command that measures;
            None: no data are declared, or it was not computed.
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
    restartable: bool = False
    gpus: int = 1
    kernels_per_unit: float | None = None
    input: InputData = InputData()
    input_fingerprint: str | None = None
    description: str = ""

    @property
    def job_hash(self) -> str:
        """Identity of what is run: 16 hex digits; description, workdir and hints do not count.

        Nor does the offered rate, which only repeats what the command says.
        """
        declared = _as_declared(self)
        for free in _NOT_RUN:
            del declared[free]
        if self.input.data is None:
            # Jobs that do not tell it keep the hash that they had before it could be told.
            del declared["input"]["data"]
        if self.gpus == 1:  # as before there could be more
            del declared["gpus"]
        if self.progress.kind != "metrics":
            for name in ("url", "counter", "histogram"):
                del declared["progress"][name]
        return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()[:16]


def check_single_gpu(name: str, gpus: int) -> None:
    """Refuse a job of several GPUs where only one is meant.

    Raises:
        InputError: it holds several.
    """
    if gpus > 1:
        raise InputError(
            f"{name} holds {gpus} GPUs, and here only jobs of one GPU can be used",
            why="a job of two is profiled, advised and launched with its neighbours on one host",
            fix=f"`advisor profile {name} --gpu 0,1` and `advisor recommend {name} OTHER` there; "
            "or leave it and its GPUs out",
        )


def _as_declared(settings: Any) -> dict[str, Any]:
    """Values by name; one that equals its default is the default: 0.0 as 0, in one hash with it."""
    values: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            values[field.name] = _as_declared(value)
        else:
            values[field.name] = field.default if value == field.default else value
    return values
