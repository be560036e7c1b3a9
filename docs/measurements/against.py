"""What the advice gives against what sites have: a GPU each, time slicing, equal parts, no limits.

    .venv/bin/python docs/measurements/against.py [--write]  # for the page; three minutes

Pairs and sets measured on an H200, bundled or in own/asked-h200.jsonl, each block in all of its
ways. Equal parts are the device plugin's MPS, all that fit is what a placer by memory does (HAMi,
KAI). The advice is the decision of policy.py among the measured ways and a GPU each: no trees have
seen the jobs of a pair, and no window of the set is used. Means over sets, with 95 % of 2,000 draws
of jobs, of which a set counts to each of its own alike. Energy saved is against a GPU each for the
same work, off when free; GPU hours saved are 1 less 1 over the sum of speeds, each at most 1; p99
is over that alone, the geometric mean and the longest, without four servers that had none.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from policy import Measured, among, measured, questions
from sets.rows import over_jobs

from advisor.core.gpu import Split
from advisor.decide.decision import decide
from advisor.decide.limits import Request
from advisor.errors import NoSplitError
from advisor.predict.predictions import Predictor
from advisor.settings import read_settings

GPU_MODEL, HERE = "NVIDIA H200", Path(__file__).parent

RULES: Mapping[str, Callable[[Split], bool]] = {
    "time slicing": lambda split: split.sharing == "time-sliced",
    "equal parts": lambda split: split.is_limited and len({*split.shares}) == 1,
    "all that fit": lambda split: split.sharing == "uncapped" and not split.below_normal,
}

HEADS = ("energy, %", "broken as 0, %", "GPU hours, %", "slowest, %", "p99", "longest", "kept, %")

Came = tuple[float, float, float, bool, list[float]]
"""Energy and hours saved, the lowest speed, whether limits held, and p99s over those alone."""


def main() -> None:
    """A block for all sets in which the same ways were measured."""
    request = Request(policy=read_settings().policy)
    ways = {key: of for key, of in measured().items() if key[0] == GPU_MODEL}
    found = [(of, came(of, predictor, request)) for of, predictor in questions(request, ways)]
    blocks = list[dict[str, Any]]()
    print(f"|measured|way|{'|'.join(HEADS)}|\n|---|---|{'--:|' * len(HEADS)}")
    for name, sizes, rules in (
        ("pairs", (2,), [*RULES][1:]),
        ("sets of three to seven", range(3, 8), [*RULES][2:]),
        ("pairs and sets, measured in every way", range(2, 8), [*RULES]),
    ):
        those = [one for one in found if len(one[0].jobs) in sizes and {*rules} <= one[1].keys()]
        blocks.append(block(name, those, rules))
        for n, row in enumerate(blocks[-1]["rows"]):
            print(f"|{'' if n else blocks[-1]['measured']}|{'|'.join(row)}|")
    if "--write" in sys.argv:
        page = HERE.parents[1] / "api/advisor_audit/against.json"
        page.write_text(json.dumps(blocks, indent=1) + "\n")


def came(of: Measured, predictor: Predictor, request: Request) -> Mapping[str, Came]:
    """What each way gave that was measured, a GPU each, and the advice."""
    splits = {name: next(filter(rule, of.held), None) for name, rule in RULES.items()}
    found = {name: outcome(of, split) for name, split in splits.items() if split}
    choice = None
    with suppress(NoSplitError):
        choice = decide(among(of, predictor), request).choice
    found["the advice"] = outcome(of, choice and choice.prediction.split)
    return {"a GPU each": outcome(of, None), **found}


def outcome(of: Measured, split: Split | None) -> Came:
    """By the means of the windows; None: a GPU each."""
    [one, *_], *_ = of.ways.values()
    served = [n for n, alone_ms in enumerate(one.alone_ms) if not math.isnan(alone_ms)]
    if split is None:
        return 0.0, 0.0, 1.0, True, [1.0] * len(served)
    windows = of.ways[split]
    speeds = [*map(fmean, zip(*(window.speeds for window in windows), strict=True))]
    tails = (fmean((w.p99_ms[n] or math.nan) / w.alone_ms[n] for w in windows) for n in served)
    hours = 1 - 1 / sum(min(speed, 1.0) for speed in speeds)
    known = [tail for tail in tails if not math.isnan(tail)]
    energy = fmean(w.saved for w in windows)
    return energy, hours, min(speeds), all(of.held[split]), known


def block(
    name: str, those: Sequence[tuple[Measured, Mapping[str, Came]]], rules: Sequence[str]
) -> dict[str, Any]:
    """What was measured, and a row for each way."""
    jobs, rows = [of.jobs for of, _ in those], list[list[str]]()
    for way in ("a GPU each", *rules, "the advice"):
        each = [found[way] for _, found in those]
        *parts, tails = zip(*each, strict=True)
        parts.insert(1, tuple(part * all_held for part, _, _, all_held, _ in each))
        texts = [shown(jobs, part, lambda mean: f"{100 * mean:.0f}") for part in parts]
        longer = [(own, math.log(tail)) for own, of in zip(jobs, tails, strict=True) for tail in of]
        servers, logs = zip(*longer, strict=True)
        p99 = shown(servers, logs, lambda log: f"{math.exp(log):.1f}")
        rows.append([way, *texts[:4], p99, f"{math.exp(max(logs)):.0f}", texts[4]])
    windows = sum(len(own) for of, _ in those for own in of.ways.values())
    many = len({job for own in jobs for job in own})
    measured = f"{len(those)} {name}; {many} jobs, {windows} windows"
    return {"measured": measured, "heads": HEADS, "rows": rows}


def shown(
    jobs: Sequence[Sequence[str]], values: Sequence[float], text: Callable[[float], str]
) -> str:
    """The mean, with the ends of 95 % of draws of jobs."""
    mean, low, high = (text(float(end)) for end in over_jobs(jobs, values, 2000))
    return mean if low == high else f"{mean} [{low} {high}]"


if __name__ == "__main__":
    main()
