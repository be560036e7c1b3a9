"""At which numbers of SMs the libraries compute right results."""

import json
import subprocess
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from advisor.core.gpu import MEMORY_PART, Gpu, Share, percent_for_units
from advisor.core.job import Job
from advisor.core.units import grantable
from advisor.errors import AdvisorError, InputError, JobError
from advisor.runtime.backends.backend import Backend
from advisor.runtime.jobs.launcher import prove
from advisor.runtime.jobs.running_job import RunningJob
from advisor.settings import workload_path
from advisor.validity.checks import CountCheck
from advisor_profiling.window.clock import Clock

AT_ONCE = 8
"""Most processes at a time."""

LONGEST_S = 180
"""A process that takes longer is ended."""

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that was run at a number of SMs.

    Attributes:
        output: All that it wrote, if it ended well.
        fault: Why there is nothing to believe; empty where it ended well.
    """

    units: int
    output: str = ""
    fault: str = ""


def processes_at_once(backend: Backend, memory_mib: int) -> int:
    """How many processes that need so much GPU memory each may run at a time."""
    room = MEMORY_PART * (backend.gpu.memory_mib or memory_mib) // memory_mib
    return max(1, min(AT_ONCE, backend.max_clients, int(room)))


def run_at_counts(
    job: Job,
    counts: Collection[int],
    backend: Backend,
    base: Mapping[str, str],
    folder: Path,
    at_once: int,
) -> Generator[Ended]:
    """Each count as its process ends; what still runs when the generator is closed is ended.

    The command ends by itself. Each limit is proven before a start; `base` has none.

    Raises:
        PartitionError: what enforces the limits is gone.
    """
    waiting, running = deque(counts), dict[int, _Process]()
    try:
        while waiting or running:
            if waiting and len(running) < at_once:
                units = waiting.popleft()
                try:
                    running[units] = _start(job, units, backend, base, folder)
                except AdvisorError as error:
                    backend.check_alive()
                    yield Ended(units, fault=str(error))
            for units in [units for units, process in running.items() if process.over()]:
                yield running.pop(units).end(units)
            time.sleep(_POLL_S)
    finally:
        # All of them, also when one cannot be ended in the safe order.
        with ExitStack() as stops:
            for process in running.values():
                stops.callback(process.job.stop)


class _Process:
    """A process that was started, and when."""

    def __init__(self, job: RunningJob) -> None:
        self.job, self._started = job, time.monotonic()

    def over(self) -> bool:
        """Whether it has ended, or had its time."""
        late = time.monotonic() - self._started > LONGEST_S
        return late or self.job.exit_code is not None

    def end(self, units: int) -> Ended:
        """Stop it; what it wrote, or the last line of that where it failed or was too slow."""
        code = self.job.exit_code
        self.job.stop()
        if code == 0:
            return Ended(units, output=self.job.output.read_text(errors="replace"))
        last = self.job.tail().rpartition("\n")[2] or "it wrote nothing"
        if code is None:
            return Ended(units, fault=f"did not end within {LONGEST_S} s: {last}")
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return Ended(units, fault=f"ended with {how}: {last}")


def _start(
    job: Job, units: int, backend: Backend, base: Mapping[str, str], folder: Path
) -> _Process:
    share = Share(percent_for_units(units, _total(backend.gpu)))
    # A second try must not find the output of the first.
    own = folder / f"{units}-{time.monotonic_ns()}"
    own.mkdir(parents=True)
    return _Process(prove(job, share, backend, base, own).start())


def _total(gpu: Gpu) -> int:
    assert gpu.units_total is not None  # known before a back-end is opened
    return gpu.units_total


PROCESS_MEMORY_MIB = 5000
"""What one process may need on the GPU."""

_LIBRARIES_S = 120


@dataclass(frozen=True, slots=True)
class Script:
    """The program, and the interpreter that has PyTorch."""

    python: str
    path: Path

    def job(self, *options: str) -> Job:
        """The program as a job."""
        command = (self.python, str(self.path), *options)
        return Job(name="library-check", command=command, memory_mib=PROCESS_MEMORY_MIB)


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """What the program said at one count; `units` are the SMs that it saw."""

    units: int
    libraries: Mapping[str, str]
    operations: tuple[str, ...]
    wrong: tuple[str, ...]
    skipped: Mapping[str, str]


def library_script(python: str) -> Script:
    """The check of the libraries."""
    return Script(python, workload_path("library_check.py"))


def installed_libraries(script: Script, environment: Mapping[str, str]) -> dict[str, str]:
    """Versions of the libraries that the interpreter loads; no GPU is used.

    Raises:
        InputError: it cannot be started, or has no PyTorch.
    """
    said = ""
    try:
        done = subprocess.run(
            script.job("--libraries").command,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_LIBRARIES_S,
            check=False,
        )
        said = done.stderr.strip().rpartition("\n")[2]
        return _texts(_last_object(done.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"{script.python} cannot say which libraries it has",
            why=said or str(error),
            fix="name an interpreter that has PyTorch: advisor check --python /path/to/python",
        ) from error


def read_answer(ended: Ended) -> ScriptResult | str:
    """What the program said, or why that is not to be believed."""
    if ended.fault:
        return ended.fault
    try:
        found = _last_object(ended.output)
        answer = ScriptResult(
            units=found["units"],
            libraries=_texts(found["libraries"]),
            operations=tuple(map(str, found["operations"])),
            wrong=tuple(map(str, found["wrong"])),
            skipped=_texts(found.get("skipped", {})),
        )
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        return f"it ended well but did not say what it computed ({error!r})"
    if answer.units != ended.units:
        return f"it saw {answer.units} SMs"
    return answer


def _last_object(text: str) -> dict[str, Any]:
    """The JSON object in the last line that begins one; libraries write warnings around it."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise ValueError("no JSON object in its output")
    return cast("dict[str, Any]", json.loads(lines[-1]))


def _texts(found: Mapping[Any, Any]) -> dict[str, str]:
    return {str(name): str(text) for name, text in found.items()}


@dataclass(frozen=True, slots=True)
class CheckedGpu:
    """Where processes are run: what limits them, their environment, a folder for their outputs."""

    backend: Backend
    base: Mapping[str, str]
    folder: Path


@dataclass(frozen=True, slots=True)
class CheckStep:
    """One count that is done, of `total`.

    Attributes:
        wrong: Names of the operations that were wrong.
        fault: Why nothing is known of the count; empty where it was checked.
        eta_s: What the others will take, s.
    """

    units: int
    wrong: tuple[str, ...]
    fault: str
    done: int
    total: int
    eta_s: float


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """A check, and what it could not find out: counts and operations, each with the reason."""

    check: CountCheck
    not_known: Mapping[int, str]
    skipped: Mapping[str, str]


def counts_to_check(asked: Collection[int], gpu: Gpu) -> tuple[int, ...]:
    """The counts that were asked for, in order; without any: all that MPS grants.

    Raises:
        InputError: MPS cannot grant one of them.
    """
    total = gpu.units_total or 0
    for count in asked:
        percent_for_units(count, total)
    return tuple(sorted(set(asked))) or grantable(total)


def continues(kept: CountCheck, gpu: Gpu, libraries: Mapping[str, str]) -> bool:
    """Whether counts that were checked still hold: the same card, driver and libraries."""
    then = (kept.gpu_uuid, kept.driver, dict(kept.libraries))
    return then == (gpu.uuid, gpu.driver or "", dict(libraries))


def check_counts(
    counts: Collection[int],
    script: Script,
    place: CheckedGpu,
    kept: CountCheck | None,
    keep: Callable[[CountCheck], object],
    report: Callable[[CheckStep], object],
) -> CheckOutcome:
    """Compute at each count what was computed on the whole GPU, and compare.

    Counts in `kept` that still hold are not computed again; `keep` is given all that is known after
    each count.

    Raises:
        JobError: nothing right can be computed on the whole GPU.
        PartitionError: what enforces the limits is gone.
    """
    begun = time.monotonic()
    reference = _reference(script, place)
    check = _begin(reference, place.backend.gpu, kept)
    keep(check)
    before_s, not_known = check.seconds, dict[int, str]()
    todo = [count for count in counts if count not in check.checked]
    job = script.job("--reference", str(_reference_file(place)))
    with closing(_answers(job, todo, place, reference)) as answers:
        for done, (units, answer) in enumerate(answers, 1):
            spent_s = time.monotonic() - begun
            if isinstance(answer, str):
                not_known[units] = answer
            else:
                check = _with(check, answer, before_s + spent_s)
                keep(check)
            eta_s = (len(todo) - done) * spent_s / done
            wrong, fault = check.wrong.get(units, ()), not_known.get(units, "")
            report(CheckStep(units, wrong, fault, done, len(todo), eta_s))
    return CheckOutcome(check, not_known, reference.skipped)


def _reference(script: Script, place: CheckedGpu) -> ScriptResult:
    """What the whole GPU computes: right, or there is nothing to compare with."""
    place.folder.mkdir(parents=True, exist_ok=True)
    total = place.backend.gpu.units_total or 0
    job = script.job("--write", str(_reference_file(place)))
    (ended,) = run_at_counts(job, [total], place.backend, place.base, place.folder, 1)
    answer = read_answer(ended)
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


def _reference_file(place: CheckedGpu) -> Path:
    return place.folder / "reference.json"


def _begin(reference: ScriptResult, gpu: Gpu, kept: CountCheck | None) -> CountCheck:
    """What still holds of what was known, with the whole GPU in it."""
    if kept is None or not (
        continues(kept, gpu, reference.libraries) and kept.operations == reference.operations
    ):
        kept = CountCheck(
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
    return _with(kept, reference, kept.seconds)


def _with(check: CountCheck, answer: ScriptResult, seconds: float) -> CountCheck:
    wrong = {**check.wrong, answer.units: answer.wrong}
    return replace(
        check,
        checked=tuple(sorted({*check.checked, answer.units})),
        wrong={count: wrong[count] for count in sorted(wrong) if wrong[count]},
        checked_at=Clock().utc(),
        seconds=round(seconds, 1),
    )


def _answers(
    job: Job, counts: Collection[int], place: CheckedGpu, reference: ScriptResult
) -> Generator[tuple[int, ScriptResult | str]]:
    """Each count with what was said there, or why nothing is known.

    A client that faults takes its neighbours down, so a count that failed is tried again alone.
    """
    at_once = processes_at_once(place.backend, PROCESS_MEMORY_MIB)
    failed: list[int] = []
    for units, answer in _round(job, counts, place, reference, at_once):
        if isinstance(answer, str):
            failed.append(units)
        else:
            yield units, answer
    yield from _round(job, failed, place, reference, 1)


def _round(
    job: Job, counts: Collection[int], place: CheckedGpu, reference: ScriptResult, at_once: int
) -> Generator[tuple[int, ScriptResult | str]]:
    runs = run_at_counts(job, counts, place.backend, place.base, place.folder, at_once)
    with closing(runs):
        for ended in runs:
            answer = read_answer(ended)
            if isinstance(answer, ScriptResult) and answer.operations != reference.operations:
                answer = "it computed other operations than on the whole GPU"
            yield ended.units, answer
