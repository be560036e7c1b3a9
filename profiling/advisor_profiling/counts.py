"""Checks at which numbers of SMs the libraries of this host compute right results (docs/check.md).

The reference is computed on the whole GPU, then the same at each count. A count is safe only if a
process ran there, saw exactly that many SMs and had every operation right.
"""

import json
import subprocess
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.core.gpu import MEMORY_PART, Gpu, Share, grantable, percent_for_units
from advisor.core.job import Job
from advisor.core.wording import count_of
from advisor.errors import AdvisorError, InputError, JobError
from advisor.formats.wire import read
from advisor.runtime.backend import Backend
from advisor.runtime.running_job import RunningJob, prove
from advisor.settings import workload_path
from advisor.validity.safe_counts import CheckedCounts
from advisor_profiling.window import Clock, Step

AT_ONCE = 8  # most processes at a time

# A process that takes longer is ended.
_LONGEST_S = 180

# GPU memory that one process may need.
_PROCESS_MEMORY_MIB = 5000

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class CheckedGpu:
    """Where processes are run: what limits them, their environment, a folder for their outputs."""

    backend: Backend
    base: Mapping[str, str]
    folder: Path


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """A check, and what it could not find out: counts and operations, each with the reason."""

    check: CheckedCounts
    unknown: Mapping[int, str]
    skipped: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _ScriptResult:
    """What the program printed at one count; `units` are the SMs that it saw."""

    units: int
    libraries: Mapping[str, str]
    operations: tuple[str, ...]
    wrong: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])


def counts_to_check(wanted: Collection[int], gpu: Gpu) -> tuple[int, ...]:
    """The counts that were asked for, in order; without any: all that MPS grants.

    Raises:
        InputError: MPS cannot grant one of them.
    """
    total = gpu.units_total or 0
    for count in wanted:
        percent_for_units(count, total)
    return tuple(sorted(set(wanted))) or grantable(total)


def continues(kept: CheckedCounts, gpu: Gpu, libraries: Mapping[str, str]) -> bool:
    """Whether counts that were checked still hold: the same card, driver and libraries."""
    then = (kept.gpu_uuid, kept.driver, dict(kept.libraries))
    return then == (gpu.uuid, gpu.driver or "", dict(libraries))


def installed_libraries(python: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Versions of the libraries that the interpreter loads; no GPU is used.

    Raises:
        InputError: it cannot be started, or has no PyTorch.
    """
    said = ""
    try:
        done = subprocess.run(
            _script(python, "--libraries").command,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        said = done.stderr.strip().rpartition("\n")[2]
        return json.loads(_last_object(done.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"{python} cannot say which libraries it has",
            why=said or str(error),
            fix="name an interpreter that has PyTorch: advisor check --python /path/to/python",
        ) from error


def check_counts(
    counts: Collection[int],
    python: str,
    place: CheckedGpu,
    kept: CheckedCounts | None,
    keep: Callable[[CheckedCounts], object],
    report: Callable[[Step], object],
) -> CheckOutcome:
    """Compute at each count what was computed on the whole GPU, and compare.

    Counts in `kept` that still hold are not computed again; `keep` is given all that is known after
    each count.

    Raises:
        JobError: nothing right can be computed on the whole GPU.
        PartitionError: what enforces the limits is gone.
    """
    begun_s, gpu = time.monotonic(), place.backend.gpu
    file = str(place.folder / "reference.json")
    reference = _reference(_script(python, "--write", file), place)
    still = kept is not None and continues(kept, gpu, reference.libraries)
    if kept is None or not still or kept.operations != reference.operations:
        kept = CheckedCounts(
            gpu_model=gpu.model,
            gpu_uuid=gpu.uuid,
            units_total=reference.units,
            driver=gpu.driver or "",
            libraries=reference.libraries,
            checked=(),
            wrong={},
            operations=reference.operations,
            checked_at="",
            seconds=0,
        )
    check, before_s = _with(kept, reference, kept.seconds), kept.seconds
    unknown = dict[int, str]()
    keep(check)
    todo = [count for count in counts if count not in check.checked]
    job = _script(python, "--reference", file)
    with closing(_tried(job, todo, place, reference.operations)) as answers:
        for done, (units, answer) in enumerate(answers, 1):
            spent_s = time.monotonic() - begun_s
            if isinstance(answer, str):
                unknown[units] = answer
            else:
                check = _with(check, answer, before_s + spent_s)
                keep(check)
            eta_s = (len(todo) - done) * spent_s / done
            wrong = check.wrong.get(units, ())
            found = f"{count_of(len(wrong), 'operation')} wrong" if wrong else "right"
            found = f"not known: {unknown[units]}" if units in unknown else found
            report(Step(f"{units} SMs  {found}", done, len(todo), eta_s))
    return CheckOutcome(check, unknown, reference.skipped)


def _script(python: str, *options: str) -> Job:
    command = (python, str(workload_path("library_check.py")), *options)
    return Job(name="library-check", command=command, memory_mib=_PROCESS_MEMORY_MIB)


def _reference(job: Job, place: CheckedGpu) -> _ScriptResult:
    """What the whole GPU computes: right, or there is nothing to compare with."""
    place.folder.mkdir(parents=True, exist_ok=True)
    total = place.backend.gpu.units_total or 0
    ((_, answer),) = _computed(job, [total], place, 1)
    if isinstance(answer, str):
        raise JobError(
            f"nothing could be computed on all {total} SMs",
            why=answer,
            fix=f"its whole output is in {place.folder}",
        )
    if answer.wrong or not answer.operations:
        raise JobError(
            f"{len(answer.wrong)} of {len(answer.operations)} operations are wrong on the whole "
            f"GPU: {', '.join(answer.wrong[:3])}",
            why="with nothing right to compare with, no number of SMs can be called safe",
            fix="try other versions of the libraries and of the driver, or another GPU",
        )
    return answer


def _with(check: CheckedCounts, answer: _ScriptResult, seconds: float) -> CheckedCounts:
    wrong = {**check.wrong, answer.units: answer.wrong}
    return replace(
        check,
        checked=tuple(sorted({*check.checked, answer.units})),
        wrong={count: wrong[count] for count in sorted(wrong) if wrong[count]},
        checked_at=Clock().utc(),
        seconds=round(seconds, 1),
    )


def _tried(
    job: Job, counts: Collection[int], place: CheckedGpu, operations: tuple[str, ...]
) -> Generator[tuple[int, _ScriptResult | str]]:
    """Each count with its result, or why nothing is known.

    A client that faults takes its neighbours down, so a count that failed is tried again alone.
    """
    backend, failed = place.backend, list[int]()
    room = MEMORY_PART * (backend.gpu.memory_mib or _PROCESS_MEMORY_MIB) // _PROCESS_MEMORY_MIB
    at_once = max(1, min(AT_ONCE, backend.max_clients, int(room)))
    with closing(_computed(job, counts, place, at_once, operations)) as answers:
        for units, answer in answers:
            if isinstance(answer, str):
                failed.append(units)
            else:
                yield units, answer
    yield from _computed(job, failed, place, 1, operations)


def _computed(
    job: Job,
    counts: Collection[int],
    place: CheckedGpu,
    at_once: int,
    operations: tuple[str, ...] | None = None,
) -> Generator[tuple[int, _ScriptResult | str]]:
    """Each count as its process ends; what still runs when the generator is closed is ended.

    Each limit is proven before a start.

    Raises:
        PartitionError: what enforces the limits is gone.
    """
    waiting, running = [*counts], dict[int, tuple[RunningJob, float]]()
    try:
        while waiting or running:
            if waiting and len(running) < at_once:
                units = waiting.pop(0)
                # A second try must not find the output of the first.
                folder = place.folder / f"{units}-{time.monotonic_ns()}"
                try:
                    share = Share(percent_for_units(units, place.backend.gpu.units_total or 0))
                    folder.mkdir(parents=True)
                    proven = prove(job, share, place.backend, place.base, folder)
                    running[units] = proven.start(), time.monotonic()
                except AdvisorError as error:
                    place.backend.check_alive()
                    yield units, str(error)
            for units, (process, begun_s) in [*running.items()]:
                if time.monotonic() - begun_s > _LONGEST_S or process.exit_code is not None:
                    del running[units]
                    yield units, _answer(process, units, operations)
            time.sleep(_POLL_S)
    finally:
        # All of them, also when one cannot be ended in the safe order.
        with ExitStack() as stops:
            for process, _ in running.values():
                stops.callback(process.stop)


def _answer(
    process: RunningJob, units: int, operations: tuple[str, ...] | None
) -> _ScriptResult | str:
    """Stop a process that ended or is late; what it printed, or why that is not to be believed."""
    code = process.exit_code
    process.stop()
    if code != 0:
        last = process.tail().rpartition("\n")[2] or "it wrote nothing"
        if code is None:
            return f"did not end within {_LONGEST_S} s: {last}"
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return f"ended with {how}: {last}"
    try:
        said = _last_object(process.output.read_text(errors="replace"))
        answer = read(_ScriptResult, said, name="what it printed", tolerant=True)
    except ValueError as error:
        return f"it ended well but did not say what it computed ({error})"
    if answer.units != units:
        return f"it saw {answer.units} SMs"
    if operations is not None and answer.operations != operations:
        return "it computed other operations than on the whole GPU"
    return answer


def _last_object(text: str) -> str:
    """The last line that begins a JSON object; libraries write warnings around it."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise ValueError("no JSON object in its output")
    return lines[-1]
