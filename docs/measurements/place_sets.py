"""How long sets of running jobs take to place, how near the bound, and what they save.

    .venv/bin/python docs/measurements/place_sets.py [--seed 0]

Jobs are drawn from the bundled ones on H200; 15 % of them fill a GPU alone. Beyond these 37 kinds,
others are the same with 85 to 100 % of their activity and power. Everything is predicted. Beside
the plan: pairs and jobs alone, by the same program, and as many as fit: seven on each card as they
come, without limits, where memory allows it.

Seconds are those of one core (`time.process_time`), the limit of the search, too, so that what else
the machine does changes little; only whole cards are made by the clock.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from unittest import mock

import numpy as np

from advisor.core.split import MOST_JOBS, without_limits
from advisor.decide.limits import Limits, floor, is_served
from advisor.place.problem import Bools
from advisor.place.sets import solver
from advisor.place.sets.answers import set_answers
from advisor.place.sets.master import Master
from advisor.place.sets.placing import Kind, Placing, Pool, make_placing
from advisor.predict.profiles import Profile
from advisor.predict.sets import SetPredictor, fills
from advisor.settings import read_settings
from advisor_advice.profiles import find_profiles
from advisor_data.files.bundled import bundled_solo_points
from advisor_data.files.checked import checked_counts
from advisor_models.registry import Registry

GPU_MODEL = "NVIDIA H200"
FILLING = 0.15
CASES = ((200, 37, 40, 10.0), (2000, 100, 400, 10.0), (20_000, 100, 4000, 60.0))
"""Jobs, kinds, GPUs, and most seconds."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="by which jobs are drawn")
    seed: int = parser.parse_args().seed
    print(
        "| jobs, kinds, GPUs | way | s | cards | kW | cost | bound | gap, % | seated | energy, % |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for jobs, kinds, gpus, limit_s in CASES:
        for aim in ("fewest-cards", "least-energy"):
            placing = drawn(jobs, kinds, gpus, aim, seed)
            case = f"{jobs}, {kinds}, {gpus}"
            show(case, aim, placing, limit_s)
        show_pairs(case, placing)
        show_as_they_come(case, placing)


def drawn(
    jobs: int, kinds: int, gpus: int, aim: str, seed: int, gpu_model: str = GPU_MODEL
) -> Placing:
    """So many jobs on so many cards."""
    dice = np.random.default_rng(seed)
    profiles = kinds_of(kinds, dice, gpu_model)
    filling: Bools = np.array([fills(profile) for profile in profiles])
    of_each = FILLING / filling.sum(), (1 - FILLING) / (~filling).sum()
    chance = filling * of_each[0] + ~filling * of_each[1]
    counts = np.bincount(dice.choice(kinds, jobs, p=chance), minlength=kinds)
    there = [n for n in range(kinds) if counts[n]]
    pool = Pool(
        gpu_model=gpu_model,
        gpus=gpus,
        profiles=tuple(profiles[n] for n in there),
        limits=Limits(),
        idle_power_w=float(np.mean([profile.idle_power_w for profile in profiles])),
        of_pairs=Registry(read_settings().home / "models").open_champion(),
        checked=checked_counts(read_settings().home, gpu_model, profiles[0].units_total),
    )
    queued = [
        Kind(name=profiles[n].job, count=int(counts[n]), is_server=is_served(profiles[n]))
        for n in there
    ]
    return make_placing(queued, [pool], aim)


def kinds_of(kinds: int, dice: np.random.Generator, gpu_model: str) -> list[Profile]:
    """The bundled jobs, then others like them."""
    own = find_profiles(bundled_jobs(gpu_model), read_settings(), gpu_model).profiles
    found = list(own)
    while len(found) < kinds:
        like, part = own[len(found) % len(own)], dice.uniform(0.85, 1.0)
        columns = ("sm_active_percent", "dram_active_percent", "power_w")
        values = {**like.values, **{name: part * like.values[name] for name in columns}}
        name = f"{like.job}-{len(found)}"
        found.append(dataclasses.replace(like, job=name, values=values))
    return found


def bundled_jobs(gpu_model: str) -> list[str]:
    """Those with a bundled profile of that GPU model."""
    return sorted({p.job for p in bundled_solo_points() if p.gpu_model == gpu_model})


def show(case: str, aim: str, placing: Placing, limit_s: float) -> None:
    """The plan; energy is what it takes less than the same work on a card each."""
    started = time.process_time()
    with mock.patch.object(solver.time, "monotonic", time.process_time):
        plan = solver.place_running(placing, time_limit_s=limit_s)
    took_s = time.process_time() - started
    print(
        f"| {case} | {aim} | {took_s:.1f} | {plan.cards} | {plan.power_w / 1000:.1f} | "
        f"{plan.cost:,.0f} | {plan.bound:,.0f} | {100 * plan.gap:.1f} | {plan.seated} | "
        f"{100 * (1 - plan.power_w / plan.same_work_w):.1f} |",
        flush=True,
    )


def show_pairs(case: str, placing: Placing) -> None:
    """Pairs and jobs alone, for the least energy, on as many cards as that takes."""
    jobs = int(placing.counts.sum())
    free = dataclasses.replace(placing.pools[0], gpus=jobs)
    placing = dataclasses.replace(placing, pools=(free,))
    answers = set_answers(placing, 0)
    sets = [*answers.singles(), *answers.pairs()]
    master = Master(placing)
    master.wait(max(one.cost for one in sets))
    master.add(sets)
    used = master.whole(10.0, 1e-3)
    cards = float(used.sum())
    power_w = sum(float(n) * one.power_w for n, one in zip(used, sets, strict=True))
    alone_w = [profile.whole_gpu_power_w for profile in free.profiles if profile]
    same_w = sum(
        float(n) * sum(s * alone_w[kind] for kind, s in zip(one.kinds, one.speeds, strict=True))
        for n, one in zip(used, sets, strict=True)
    )
    row(case, "pairs, least energy", cards, power_w, jobs, 1 - power_w / same_w)


def show_as_they_come(case: str, placing: Placing) -> None:
    """Seven on each card; how many of them keep their floors."""
    pool = placing.pools[0]
    queue = np.repeat(np.arange(len(placing.kinds)), placing.counts.astype(int))
    order: list[int] = np.random.default_rng(1).permutation(queue).tolist()
    profiles = [profile for profile in pool.profiles if profile]
    cards = power_w = same_w = kept = 0.0
    for start in range(0, len(order), MOST_JOBS):
        own = [profiles[kind] for kind in order[start : start + MOST_JOBS]]
        watts, speeds = together(own)
        cards, power_w = cards + 1, power_w + watts
        same_w += sum(s * p.whole_gpu_power_w for s, p in zip(speeds, own, strict=True))
        kept += sum(s >= floor(p, pool.limits) for s, p in zip(speeds, own, strict=True))
    row(case, f"sevens as they come ({kept:.0f} keep their floors)", cards, power_w, len(order),
        1 - power_w / same_w)  # fmt: skip


def together(profiles: Sequence[Profile]) -> tuple[float, list[float]]:
    """Watts and speeds without limits."""
    if len(profiles) == 1:
        return profiles[0].whole_gpu_power_w, [1.0]
    split = without_limits("uncapped", len(profiles))
    (found,) = SetPredictor().predict(profiles, [split])
    return found.power_w.value, [part.speed.value for part in found.parts]


def row(case: str, way: str, cards: float, power_w: float, seated: int, saved: float) -> None:
    """One of the simpler ways."""
    print(
        f"| {case} | {way} | | {cards:.0f} | {power_w / 1000:.1f} | | | | {seated} | "
        f"{100 * saved:.1f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
