"""Fifteen takeaways on input-dependent power, and questions beyond them, on one card.

    .venv/bin/python docs/measurements/power/inputs.py --python python3 --minutes 8

measures what is missing, of most value first, keeps each result in the advisor's home at once, and
prints the table. The same command goes on; `--minutes 0` prints what is there, without a GPU if
`--gpu` is the UUID of a card that was measured before, and `--kept FILE` what is in a file.
`--dtypes bf16` and `--units 34` choose.

Rounds: each type at 34 SMs, which stay below the power limit, first and last and one level between;
all levels of the first type; all types on the whole GPU, four levels; then more seeds. N6 computes
at 92 SMs on purpose, where cuBLAS is wrong. N5 was another script's. Each point takes 4 to 6 s.
"""

import argparse
import math
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from advisor.core.gpu import Gpu
from advisor.settings import Settings, read_settings
from advisor.wire.input_sweeps import ClaimVerdict
from advisor_cli.stopping import stoppable
from advisor_power.gpu_worker import WorkerPlace
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.claims import CLAIMS, SQUARE, with_seed
from advisor_power.inputs.keeping import input_lines, read_kept
from advisor_power.inputs.live import open_inputs
from advisor_power.inputs.measuring import AskedCases, Step, measure_cases
from advisor_power.inputs.reference import reference_for, with_ratios
from advisor_power.inputs.result import InputPower
from advisor_power.inputs.sweeps import SEEDS, MeasuredSweep, asked_of, measured_sweeps
from advisor_power.inputs.verdicts import Level, SweepChange, level_of, relative, verdict_of
from advisor_profiling.testbed.live import find_gpu

BELOW, WHOLE, WRONG = 34, 132, 92
"""SMs: below the power limit, all of an H100 or H200, and where its products are wrong. At 66, the
next count where they are right, random numbers drew 690 W of an H200's 700, and made an H100 too
hot."""

DTYPES = ("bf16", "fp16", "fp8", "int8", "tf32", "fp32")
FEWER_LEVELS = 4
START_S = 25.0
"""A round that cannot do more than start PyTorch is not begun."""


@dataclass(frozen=True, slots=True)
class Round:
    """Cases that are measured in one session."""

    units: int
    cases: tuple[InputCase, ...]


def main() -> None:
    """The command line."""
    options = _parser().parse_args()
    settings, console = read_settings(), Console(stderr=True, markup=False, highlight=False)
    where = WorkerPlace(gpu=options.gpu, python=options.python)
    if options.minutes > 0 and not options.kept:
        with stoppable(console):
            measure(where, rounds(options.dtypes, options.units), options.minutes, console)
    kept = read_kept(options.kept) if options.kept else _kept(settings, options.gpu)
    for line in table(with_ratios(kept)):
        print(line)


def measure(where: WorkerPlace, every: Iterable[Round], minutes: float, console: Console) -> None:
    """The rounds, as far as time goes."""
    settings, end_s = read_settings(), time.monotonic() + 60 * minutes
    gpu = find_gpu(where.gpu)

    def report(step: Step) -> None:
        left_s = min(step.eta_s, end_s - time.monotonic())
        console.print(f"  {step.done}/{step.total} {step.case}, {left_s:.0f} s left")

    for one in every:
        if time.monotonic() + START_S > end_s:
            return
        here = replace(
            where, units=None if one.units == WHOLE else one.units, allow_unsafe=one.units == WRONG
        )
        if not missing(gpu, one):
            continue
        with open_inputs(settings, here) as run:
            console.print(f"{one.units} SMs, {len(one.cases)} cases")
            asked = AskedCases(cases=one.cases, session=run.name, end_s=end_s)
            outcome = measure_cases(run.bench, run.filling, asked, run.keep, report)
        for case, error in outcome.refused.items():
            console.print(f"not measured: {case}: {error}")


def missing(gpu: Gpu, one: Round) -> bool:
    """Whether a round has anything left, so that no process is started for nothing."""
    here = (one.units, gpu.driver or "")
    kept = input_lines(read_settings().home, gpu.uuid).read()
    done = {r.case for r in kept if (r.conditions.units, r.conditions.driver) == here}
    return not done.issuperset(one.cases)


def rounds(dtypes: Sequence[str], units: Sequence[int]) -> Iterator[Round]:
    """In order of what they tell per second."""
    first = dtypes[0]
    if BELOW in units:
        for dtype in dtypes:
            yield Round(BELOW, _shuffled(sweep_cases(dtype, levels=3, seeds=range(1))))
        yield Round(BELOW, _shuffled(sweep_cases(first, seeds=range(1))))
        yield Round(WRONG, (reference_for(SQUARE, "bf16", "product"),))
    if WHOLE in units:
        for dtype in dtypes:
            yield Round(WHOLE, _shuffled(sweep_cases(dtype, levels=FEWER_LEVELS, seeds=range(1))))
    if BELOW in units:
        yield Round(BELOW, _shuffled(sweep_cases(first, seeds=range(1, SEEDS))))
    for dtype in dtypes:
        for count in units:
            yield Round(count, _shuffled(sweep_cases(dtype, levels=FEWER_LEVELS, seeds=range(2))))


def sweep_cases(dtype: str, *, seeds: Sequence[int], levels: int | None = None) -> list[InputCase]:
    """The cases of all claims, each once."""
    found = [reference_for(SQUARE, dtype, "product")]
    for claim in CLAIMS:
        if asked_of(claim, dtype):
            cases = list(claim.cases(dtype).values())
            found += spread(cases, levels or len(cases))
    return list(dict.fromkeys(with_seed(case, seed) for case in found for seed in seeds))


def spread(cases: Sequence[InputCase], count: int) -> list[InputCase]:
    """So many of the cases, the first and the last among them."""
    if count >= len(cases):
        return list(cases)
    return [cases[round(place * (len(cases) - 1) / (count - 1))] for place in range(count)]


def table(results: Sequence[InputPower]) -> Iterator[str]:
    """Rows of Markdown for each type and number of SMs that was measured."""
    counts = sorted({r.conditions.units or 0 for r in results} - {WRONG})
    for units in counts:
        of_units = [r for r in results if r.conditions.units == units]
        newest = max(of_units, key=lambda r: r.moment_s).conditions
        own = [r for r in of_units if r.conditions == newest]
        for dtype in DTYPES:
            if any(r.case.dtype == dtype for r in own):
                yield from of_type(own, dtype, units)
        yield f"\nT7, 16-bit products draw the most, {units} SMs: {types_verdict(own)}"
    yield f"\nN6, wrong at {WRONG} SMs and right elsewhere: {wrong_verdict(results)}"


def of_type(own: Sequence[InputPower], dtype: str, units: int) -> Iterator[str]:
    """One type at one number of SMs."""
    where = own[0].conditions
    yield f"\n{where.gpu_model}, {units} SMs, {dtype}, driver {where.driver}, torch {where.torch}\n"
    yield "| | claim | paper | ours | +- | of | MHz | levels | verdict |"
    yield "|---|---|---|---|---|---|---|---|---|"
    sweeps = list(measured_sweeps(own, dtype))
    changes = {sweep.claim.name: sweep.change for sweep in sweeps}
    yield from map(_row, sweeps)
    nine = changes.get("T9")
    yield f"\nT9 falls more than T8: {more_than(nine, changes.get('T8'))}; "
    yield f"T11 falls less than T9: {more_than(nine, changes.get('T11'))}"


def types_verdict(own: Sequence[InputPower]) -> str:
    """T7: the reference of each type, in watts."""
    levels: dict[str, Level] = {}
    for dtype in DTYPES:
        case = reference_for(SQUARE, dtype, "product")
        level = level_of([r for r in own if r.case == case], "watts")
        if level is not None:
            levels[dtype] = level
    said = ", ".join(f"{dtype} {level.value:.0f} W" for dtype, level in levels.items())
    return f"{highest(levels, ('bf16', 'fp16'))} ({said})"


def more_than(change: SweepChange | None, other: SweepChange | None) -> ClaimVerdict:
    """Whether one fall is larger than another one (T9 than T8, and than T11)."""
    if change is None or other is None:
        return "open"
    beyond = SweepChange(other.value - change.value, math.hypot(change.error, other.error))
    return verdict_of(beyond, "rises")


def highest(levels: Mapping[str, Level], names: Sequence[str]) -> ClaimVerdict:
    """Whether one of these types draws the most of all (T7)."""
    ours = [level for name, level in levels.items() if name in names]
    others = [level for name, level in levels.items() if name not in names]
    if not ours or not others:
        return "open"
    best, rival = (max(group, key=lambda level: level.value) for group in (ours, others))
    return verdict_of(relative(rival, best), "rises")


def wrong_verdict(results: Sequence[InputPower]) -> str:
    """N6: outputs of the same product, by number of SMs."""
    case = reference_for(SQUARE, "bf16", "product")
    newest = {r.conditions.units: r for r in results if r.case == case}
    said = ", ".join(
        f"{units} SMs: {'right' if r.outputs.right else 'wrong'}, {r.outputs.unwritten} unwritten"
        for units, r in sorted(newest.items(), key=lambda item: item[0] or 0)
    )
    others = [r.outputs.right for units, r in newest.items() if units != WRONG]
    if WRONG not in newest or not others:
        return f"open ({said})"
    wrong = not newest[WRONG].outputs.right
    return f"{'confirmed' if wrong and all(others) else 'refuted'} ({said})"


def _row(sweep: MeasuredSweep) -> str:
    change, claim, clocks = sweep.change, sweep.claim, sweep.clocks_mhz
    ours = ("", "") if change is None else (f"{change.value:+.1%}", f"{change.error:.1%}")
    clock = f"{clocks[0]:.0f}-{clocks[1]:.0f}" if clocks else ""
    count = f"{len(sweep.levels)}" + (f", {sweep.left_out} not finite" if sweep.left_out else "")
    cells = (claim.name, claim.says, claim.paper, *ours, sweep.quantity, clock, count)
    return f"| {' | '.join((*cells, sweep.verdict))} |"


def _shuffled(cases: Sequence[InputCase]) -> tuple[InputCase, ...]:
    """The same order each time, products first, kinds of work together."""
    mixed = random.Random(1).sample(list(cases), len(cases))
    return tuple(sorted(mixed, key=lambda case: (case.work != "product", case.work)))


def _kept(settings: Settings, gpu: str) -> list[InputPower]:
    """Of a card, without a driver where its UUID is given."""
    uuid = gpu if gpu.startswith("GPU-") else find_gpu(gpu).uuid
    return input_lines(settings.home, uuid).read()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", default="python3", help="interpreter that has PyTorch")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--kept", type=Path, help="only print the table of these results")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument(
        "--units", nargs="+", type=int, choices=(BELOW, WHOLE), default=[BELOW, WHOLE]
    )
    return parser


if __name__ == "__main__":
    main()
