"""At which numbers of SMs do the libraries compute right results?

The reference is computed on the whole GPU, then the same at each count. A count is safe only if a
process ran there, saw exactly that many SMs and had every operation right.
"""

import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.core.gpu import Gpu, grantable, percent_for_units
from advisor.core.job import Job
from advisor.errors import JobError
from advisor.runtime.backend import Backend
from advisor.validity.safe_counts import CountCheck
from advisor_profiling.counts.runs import processes_at_once, run_at_counts
from advisor_profiling.counts.script import PROCESS_MEMORY_MIB, Script, ScriptResult, read_answer
from advisor_profiling.window.clock import LiveClock


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
        checked_at=LiveClock().utc(),
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
