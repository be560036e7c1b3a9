"""Launches pairs at the advice and in simpler ways, and compares all of them at the same work.

On one card: each job alone on the whole GPU; then each pair as recommended, at 50/50 and without
limits. The work is what the advice was observed to do in an hour; every way does that work to its
end (advisor.core.objectives; what is left when the first job of a pair has ended runs alone on the
whole GPU), beside one after the other. With ADVISOR_GPU_HOUR and ADVISOR_KWH the price as well.
Results are read where jobs report them. Means are over
pairs, with 95 % intervals over pairs that are drawn again; once more without the pairs in which a
job was flagged as faster than alone at the advice, which are named.

    python docs/measurements/launch_same_work.py --json same-work.json A+B C+D ...
    python docs/measurements/launch_same_work.py --advice-only --json FILE A+B ...
    python docs/measurements/launch_same_work.py --recorded docs/measurements/same-work.json
    python docs/measurements/launch_same_work.py --recorded FILE --since 2026-11-23
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.core.objectives import PartResult, SplitResult, finish, one_after_the_other, work_of
from advisor.core.records import TOO_FAST
from advisor.settings import read_settings

HEADINGS = (
    "pair", "way", "SMs", "speeds: predicted", "observed", "W: predicted", "observed",
    "energy, against one after the other: predicted", "observed",
    "time: predicted", "observed",
)  # fmt: skip
PRICES = read_settings().prices

Seen = dict[str, Any]
"""One launch: `pair`, `way`, `advised`, what was predicted, and the observation."""


def main() -> None:
    """Print a table, and the means over pairs."""
    options = _options()
    if options.recorded:
        every = [launch for file in options.recorded for launch in json.loads(file.read_text())]
        seen = [each for each in every if each["observed"]["started_at"] >= options.since]
    else:
        seen = _measure(options)
    for line in _table(seen):
        print(line)
    for line in _means(seen):
        print(line)
    if flagged := _flagged(seen):
        names = ", ".join(" + ".join(pair) for pair in sorted(flagged))
        print(f"\nwithout {names}, flagged `{TOO_FAST}` at the advice:")
        for line in _means([each for each in seen if tuple(each["pair"]) not in flagged]):
            print(line)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Launches pairs at the advice and in simpler ways."
    )
    parser.add_argument("pairs", nargs="*", help="A+B")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--duration", type=float, default=20, help="seconds of each launch")
    parser.add_argument("--advice-only", action="store_true", help="launch no simpler way")
    parser.add_argument("--json", type=Path, help="write everything here after each pair")
    parser.add_argument("--recorded", type=Path, nargs="+", help="launch nothing: print these")
    parser.add_argument("--since", default="", help="with --recorded: of that day and later")
    return parser.parse_args()


def _measure(options: argparse.Namespace) -> list[Seen]:
    seen: list[Seen] = []
    alone: dict[str, Seen] = {}
    for pair in (tuple(text.split("+")) for text in options.pairs):
        try:
            for job in pair:
                if job not in alone:
                    alone[job] = _alone(job, options.gpu)
            seen += _launches(pair[0], pair[1], alone, options)
        except RuntimeError as error:
            print(f"left out {' + '.join(pair)}: {error}", file=sys.stderr)
        if options.json:
            options.json.write_text(json.dumps(seen, indent=1) + "\n")
    return seen


def _alone(job: str, gpu: str) -> Seen:
    """Rate and power of a job on the whole of this card."""
    (point,) = _advisor("profile", job, "--shares", "100", "--fresh", "--gpu", gpu)["points"]
    print(f"{job} alone: {point['rate']:.5g} {point['rate_unit']}/s, {point['power_w']:.1f} W",
          file=sys.stderr)  # fmt: skip
    return {name: point[name] for name in ("rate", "power_w", "gpu_model", "gpu_uuid", "flags")}


def _launches(
    a: str, b: str, alone: Mapping[str, Seen], options: argparse.Namespace
) -> Iterable[Seen]:
    answer = _advisor("recommend", a, b, "--gpu-model", alone[a]["gpu_model"])
    by_name = {option["split"]: option for option in answer["candidates"]}
    advised = answer["choice"]["split"]
    # Advice against sharing needs no launch: one after the other is what the jobs do alone.
    ways = [advised] if advised != "exclusive" else []
    if not options.advice_only:
        ways += [way for way in ("50/50", "uncapped") if way not in ways]
    for way in ways:
        command = ["launch", a, b, "--split", way, "--gpu", options.gpu]
        last = _advisor(*command, "--duration", str(options.duration), stream=True)
        (observation,) = last["observations"]
        yield {
            "pair": [a, b],
            "way": way,
            "advice": advised,
            "alone": [alone[a], alone[b]],
            "predicted": _predicted(by_name[way], answer),
            "observed": _in_order(observation, a),
        }


def _in_order(observation: Seen, first: str) -> Seen:
    """With the jobs as they were named, not by their names."""
    jobs = sorted(observation["jobs"], key=lambda job: job["job"] != first)
    return {**observation, "jobs": jobs}


def _predicted(option: Mapping[str, Any], answer: Mapping[str, Any]) -> Seen:
    return {
        "rates": [job["rate"]["value"] for job in option["jobs"]],
        "power_w": option["power_w"]["value"],
        "alone": [job["alone"] for job in answer["jobs"]],
    }


def _advisor(*arguments: str, stream: bool = False) -> Any:
    command = [sys.executable, "-m", "advisor_cli", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stdout.splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1] if stream else done.stdout)


def _result(
    numbers: Mapping[str, Any], rates: Sequence[float], alone: Iterable[Mapping[str, Any]]
) -> SplitResult:
    parts = (
        PartResult(r, one["rate"], one["power_w"]) for r, one in zip(rates, alone, strict=True)
    )
    return SplitResult(tuple(parts), numbers["power_w"])


def _both(launch: Seen) -> tuple[SplitResult, SplitResult]:
    """As predicted, relative to the profiles; as observed, relative to the jobs on this card."""
    predicted, observed = launch["predicted"], launch["observed"]
    expected = _result(predicted, predicted["rates"], predicted["alone"])
    rates = [job["rate"] for job in observed["jobs"]]
    return expected, _result(observed, rates, launch["alone"])


def _changes(seen: list[Seen]) -> dict[tuple[str, str, str], list[tuple[float, ...]]]:
    """Energy, time and price of each launch against one after the other, predicted and observed."""
    found: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    for launch in seen:
        work = [work_of(result, 3600) for result in _both(_advised(launch, seen))]
        changes = [_change(r, w) for r, w in zip(_both(launch), work, strict=True)]
        found[launch["pair"][0], launch["pair"][1], launch["way"]] = changes
    return found


def _advised(launch: Seen, seen: list[Seen]) -> Seen:
    """The launch whose work all ways of a pair do: the advice, else its first one."""
    own = [other for other in seen if other["pair"] == launch["pair"]]
    return next((other for other in own if other["way"] == other["advice"]), own[0])


def _change(result: SplitResult, work: Any) -> tuple[float, ...]:
    this, alone = finish(result, work), one_after_the_other(result, work)
    prices = [PRICES.of(way.time_s, way.energy_j) for way in (this, alone)]
    price = (prices[0] / prices[1] - 1,) if PRICES.are_set else ()
    return this.energy_j / alone.energy_j - 1, this.time_s / alone.time_s - 1, *price


def _table(seen: list[Seen]) -> Iterable[str]:
    prices = ("price: predicted", "observed") if PRICES.are_set else ()
    headings = (*HEADINGS, *prices, "results")
    yield f"| {' | '.join(headings)} |"
    yield f"|{' --- |' * len(headings)}"
    changes = _changes(seen)
    for launch in seen:
        a, b = launch["pair"]
        observed = launch["observed"]
        predicted, real = _both(launch)
        energy_time = changes[a, b, launch["way"]]
        cells = [
            f"{a} + {b}",
            f"{launch['way']}{', advised' if launch['way'] == launch['advice'] else ''}",
            " + ".join(str(job["units"]) for job in observed["jobs"]),
            *(", ".join(f"{100 * s:.0f} %" for s in r.speeds) for r in (predicted, real)),
            *(f"{r.power_w:.0f}" for r in (predicted, real)),
            *(f"{100 * door:+.1f} %" for what in zip(*energy_time, strict=True) for door in what),
            ", ".join(observed["flags"]) or "right or not reported",
        ]
        yield f"| {' | '.join(cells)} |"


def _means(seen: list[Seen]) -> Iterable[str]:
    """Over pairs: what following the advice saves, and each simpler way."""
    changes = _changes(seen)
    kinds = ["energy", "time", *["price"] * PRICES.are_set]
    headings = "".join(f" {kind}: predicted | observed (95 %) |" for kind in kinds)
    yield f"\n| way | pairs |{headings}"
    yield f"|{' --- |' * (2 + 2 * len(kinds))}"
    pairs = list(dict.fromkeys((*launch["pair"], launch["advice"]) for launch in seen))
    alone = [(0.0,) * len(kinds)] * 2
    advised = [alone if way == "exclusive" else changes[a, b, way] for a, b, way in pairs]
    rows = {"as advised": advised}
    for way in ("50/50", "uncapped"):
        rows[way] = [changes[a, b, way] for a, b, _ in pairs if (a, b, way) in changes]
    for way, found in ((way, found) for way, found in rows.items() if found):
        means = [
            f"{100 * statistics.mean(of):+.1f} %{_drawn_again(of) if door else ''}"
            for what in range(len(kinds))
            for door in (0, 1)
            for of in [[change[door][what] for change in found]]
        ]
        yield f"| {way} | {len(found)} | {' | '.join(means)} |"


def _flagged(seen: list[Seen]) -> set[tuple[str, ...]]:
    """Pairs of which a job was faster beside the other one, as advised, than alone."""
    advised = [launch for launch in seen if launch["way"] == launch["advice"]]
    return {tuple(one["pair"]) for one in advised if TOO_FAST in one["observed"]["flags"]}


def _drawn_again(changes: Sequence[float], draws: int = 10_000) -> str:
    """95 % interval of the mean over pairs that are drawn again."""
    dice = random.Random(1)
    means = sorted(statistics.fmean(dice.choices(changes, k=len(changes))) for _ in range(draws))
    low, high = (100 * means[int(part * draws)] for part in (0.025, 0.975))
    return f" [{low:+.1f} {high:+.1f}]"


if __name__ == "__main__":
    main()
