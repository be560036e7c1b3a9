"""What a queue placed by one window of each job saves, next to one placed by whole profiles.

    .venv/bin/python docs/measurements/sets/one_window_queue.py

Queues of 40 jobs of twelve kinds that were drawn from the bundled ones, placed in sets for least
energy: by whole profiles, and by what a head that has seen none of a job's family estimates from
its window on the whole GPU, also without counters that a site may lack. Each plan is judged by
whole profiles and the law of sets. Of servers the demand is known, not how long answers take.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from one_window import LAW, Known, known_of, safe_for

from advisor.decide.limits import Limits, floor, with_card_memory
from advisor.place.sets.placing import Kind, PlacedSet, Pool, RunningPlan, make_placing
from advisor.place.sets.solver import place_running
from advisor.predict.one_window import ALWAYS_READ, COUNTERS
from advisor.predict.profiles import Floats, Profile, make_profiles
from advisor.predict.serving import Serving
from advisor.predict.situation import kind_of
from advisor_data.files.bundled import bundled_set_references, bundled_solo_points
from advisor_training.one_window import learnable

LACKING: Mapping[str, Sequence[str]] = {
    "all counters": (),
    "no SM activity": COUNTERS[:1],
    "no DRAM activity": COUNTERS[1:],
    "neither": COUNTERS,
    "power and clock alone": (*COUNTERS, *ALWAYS_READ),
}
WHOLE = "whole profiles"
JOBS, KINDS, MOST_TIMES = 40, 12, 2.0
"""Of a queue; and its p99 alone on the whole GPU that no server may exceed that often."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--queues", type=int, default=24)
    queues = parser.parse_args().queues
    points = [*bundled_solo_points(), *bundled_set_references()]
    by_model = defaultdict[str, list[Known]](list)
    for known in known_of(learnable(make_profiles(points).values()), LACKING):
        by_model[known.whole.gpu_model].append(known)
    pools = [of for _, of in sorted(by_model.items()) if len(of) >= KINDS]
    found = defaultdict[str, list[Judged]](list)
    for number in range(queues):
        random = np.random.default_rng(number)
        of = pools[number % len(pools)]
        kinds = [of[n] for n in random.choice(len(of), KINDS, replace=False)]
        counts = Counter(random.integers(0, KINDS, JOBS).tolist())
        for name in (WHOLE, *LACKING):
            plan = placed([as_seen(known, name) for known in kinds], counts)
            found[name].append(judged(plan, [known.whole for known in kinds]))
        print(number, *(found[name][-1] for name in found), flush=True)
    print(*table(found), sep="\n")


def as_seen(known: Known, name: str) -> Profile:
    """What a plan rests on: of a server the demand is what was served."""
    profile = known.estimated.get(name, known.whole)
    if profile is known.whole or kind_of(known.whole) != "server":
        return profile
    return replace(profile, serving=Serving(offered_rate=1.0, rate_noise=None, latency_p99_ms=()))


def placed(profiles: Sequence[Profile], counts: Mapping[int, int]) -> RunningPlan:
    """As many of each as the queue has, all at once."""
    there = sorted(counts)
    own = tuple(profiles[n] for n in there)
    model = own[0].gpu_model
    pool = Pool(
        gpu_model=model,
        gpus=JOBS,
        profiles=own,
        limits=with_card_memory(Limits(), model),
        idle_power_w=own[0].idle_power_w,
    )
    kinds = [
        Kind(name=str(n), count=counts[n], is_server=kind_of(profiles[n]) == "server")
        for n in there
    ]
    return place_running(make_placing(kinds, [pool], "least-energy"), time_limit_s=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A plan, by whole profiles.

    Attributes:
        gpu_hours: For each hour, with what jobs lag behind on cards of their own; as `watts`.
        alone_w: On a card each.
        starved: Jobs slower than they may be.
        late: Servers whose p99 is expected to be over `MOST_TIMES` that alone.
    """

    cards: int
    gpu_hours: float
    watts: float
    alone_w: float
    starved: int
    late: int

    def __str__(self) -> str:
        return f"{self.cards} {self.gpu_hours:.1f} {self.watts:.0f} W {self.starved} {self.late}; "


def judged(plan: RunningPlan, whole: Sequence[Profile]) -> Judged:
    """All of its sets."""
    counts = np.array([*plan.sets.values()])
    columns = zip(*(_judged(plan, one, whole) for one in plan.sets), strict=True)
    behind, watts, starved, late = (counts @ np.array(own, dtype=float) for own in columns)
    return Judged(
        cards=plan.cards,
        gpu_hours=plan.cards + float(behind),
        watts=float(watts),
        alone_w=sum(
            count * whole[int(plan.placing.kinds[kind].name)].whole_gpu_power_w
            for one, count in plan.sets.items()
            for kind in one.kinds
        ),
        starved=int(starved),
        late=int(late),
    )


def _judged(
    plan: RunningPlan, one: PlacedSet, whole: Sequence[Profile]
) -> tuple[float, float, int, int]:
    """Cards of what lags behind, watts with that, and how many jobs starve and are late."""
    profiles = [whole[int(plan.placing.kinds[kind].name)] for kind in one.kinds]
    if one.split is None:
        return 0.0, profiles[0].whole_gpu_power_w, 0, 0
    split = safe_for(profiles, one.split)
    (found,) = LAW.predict(profiles, [split])
    behind, watts, starved, late = 0.0, found.power_w.value, 0, 0
    for profile, part in zip(profiles, found.parts, strict=True):
        speed = min(1.0, part.speed.value)
        starved += speed < floor(profile, Limits()) - 1e-9
        if kind_of(profile) != "server":
            behind += 1 - speed
            watts += (1 - speed) * profile.whole_gpu_power_w
        alone_ms = profile.serving and profile.serving.p99_alone_ms(100.0)
        if alone_ms and part.latency_p99_ms:
            late += part.latency_p99_ms.value > MOST_TIMES * alone_ms
    return behind, watts, starved, late


def table(found: Mapping[str, Sequence[Judged]]) -> Iterator[str]:
    """Means over queues, each with the ends of 90 % of it."""
    right = found[WHOLE]
    head = ("cards", "GPU hours saved, %", "energy saved, %", "hours lost", "energy lost")
    yield f"| placed by | {' | '.join(head)} | starved of 100 | late of 100 |"
    yield f"|---|{'--:|' * (len(head) + 2)}"
    for name, own in found.items():
        hours, energy = ([_saved(one)[n] for one in own] for n in (0, 1))
        best = [*zip(*map(_saved, right), strict=True)]
        cells = [
            around([one.cards for one in own]),
            around(100 * np.array(hours)),
            around(100 * np.array(energy)),
            around(100 * (np.array(best[0]) - hours)),
            around(100 * (np.array(best[1]) - energy)),
            around([100 * one.starved / JOBS for one in own]),
            around([100 * one.late / JOBS for one in own]),
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def _saved(one: Judged) -> tuple[float, float]:
    """Parts of GPU hours and of energy, against a card each."""
    return 1 - one.gpu_hours / JOBS, 1 - one.watts / one.alone_w


def around(values: Sequence[float] | Floats) -> str:
    """The mean of queues."""
    wide = 1.645 * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.1f} ± {wide:.1f}"


if __name__ == "__main__":
    main()
