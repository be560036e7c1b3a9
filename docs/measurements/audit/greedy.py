"""What packing job by job leaves to `advisor place`: cost of the same jobs by both.

.venv/bin/python docs/measurements/audit/greedy.py
"""

import time
from collections import Counter
from dataclasses import replace

import numpy as np
from truth import truth_packer
from week import MODEL, make_week

from advisor.place.sets.placing import Kind, make_placing
from advisor.place.sets.solver import place_running


def main() -> None:
    """Print a line for each draw, and the mean."""
    week = make_week(40, 7, 3, steady=True)
    packer = truth_packer(week)
    known = [n for n, kind in enumerate(packer.kinds) if kind.known]
    [pool] = packer.answers.placing.pools
    random, more = np.random.default_rng(0), []
    for jobs in (20, 20, 40, 40, 80, 80):
        kinds = random.choice(known, 12, replace=False)
        counts = dict(Counter(random.choice(kinds, jobs).tolist()))
        began_s = time.perf_counter()
        found = packer.pack(counts)
        own_s = time.perf_counter() - began_s
        own = sum(count * packer.cost(*key) for key, count in found.items())
        numbers = sorted(counts)
        profiles = tuple(pool.profiles[n] for n in numbers)
        named = [
            Kind(name=p.job, count=counts[n], is_server=p.serving is not None)
            for n, p in zip(numbers, profiles, strict=True)
            if p
        ]
        placing = make_placing(named, [replace(pool, gpus=jobs, profiles=profiles)], "least-energy")
        began_s = time.perf_counter()
        plan = place_running(placing, time_limit_s=10)
        plan_s = time.perf_counter() - began_s
        more.append(own / plan.cost - 1)
        print(
            f"{jobs} jobs on {MODEL}: {sum(found.values())} cards, {own:.0f} W ({own_s:.2f} s); "
            f"place: {plan.cards} cards, {plan.cost:.0f} W, at least {plan.bound:.0f} "
            f"({plan_s:.0f} s)"
        )
    print(f"{100 * np.mean(more):.1f} % more in the mean, {100 * max(more):.1f} at most")


if __name__ == "__main__":
    main()
