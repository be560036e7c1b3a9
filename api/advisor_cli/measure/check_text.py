"""What `advisor check` says to a person."""

from collections.abc import Iterator, Sequence

from advisor.core.gpu import SM_QUANTUM
from advisor.core.wording import count_of
from advisor_profiling.counts import CheckOutcome, CheckStep

_NAMED = 3
"""Operations that are named of those that were wrong at a count."""


def step_line(step: CheckStep) -> str:
    """One count that is done."""
    what = "right"
    if step.fault:
        what = f"not known: {step.fault}"
    elif step.wrong:
        what = f"{count_of(len(step.wrong), 'operation')} wrong"
    eta = f"eta {int(step.eta_s) // 60}:{int(step.eta_s) % 60:02}"
    return f"{step.done}/{step.total}  {step.units} SMs  {what}  {eta}"


def check_lines(outcome: CheckOutcome) -> Iterator[str]:
    """The whole result, in lines."""
    check = outcome.check
    versions = ", ".join(f"{name} {version}" for name, version in check.libraries.items())
    yield f"{check.gpu_model}, {check.units_total} SMs, driver {check.driver}, {versions}"
    yield f"safe      {ranges(check.safe)}"
    yield f"unsafe    {ranges(check.unsafe)}"
    for count in check.unsafe:
        yield _wrong_line(count, check.wrong[count], len(check.operations))
    for count, reason in sorted(outcome.not_known.items()):
        yield f"  {count:>4} SMs  not known: {reason}"
    for name, reason in outcome.skipped.items():
        yield f"  not tried: {name}: {reason}"
    yield (
        f"{count_of(len(check.checked), 'count')}, {count_of(len(check.operations), 'operation')} "
        f"each, {check.seconds:.0f} s, {check.checked_at[:10]}"
    )
    yield _consequence(check.unsafe)


def ranges(counts: Sequence[int]) -> str:
    """Counts in a row as one: 8-16 is every even count from 8 to 16."""
    rows: list[list[int]] = []
    for count in counts:
        if rows and count == rows[-1][-1] + SM_QUANTUM:
            rows[-1].append(count)
        else:
            rows.append([count])
    return " ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in rows) or "none"


def _wrong_line(count: int, names: Sequence[str], operations: int) -> str:
    more = ", .." if len(names) > _NAMED else ""
    return f"  {count:>4} SMs  {len(names)} of {operations}: {', '.join(names[:_NAMED])}{more}"


def _consequence(unsafe: Sequence[int]) -> str:
    if not unsafe:
        return "Every count that was checked may be given to a job."
    return f"From now on no job is given {ranges(unsafe)} SMs."
