"""How often families that are drawn hold one that was left out, as jobs do and by chance alone.

    .venv/bin/python docs/measurements/audit/families.py

Of each measured job, what it keeps of its rate at nine shares in the mean, less what the head says
that has not seen its family; and the range of 90 % of that in many worlds that know all other
families. Then the same of families that are drawn from a normal distribution, all equally near.
*Before*: the nearest of three of all families, servers or not, a quarter further off.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from advisor.predict.one_window import ESTIMATED_SHARES
from advisor.predict.profiles import Floats
from advisor_models.one_window import LeftOutJob, bundled_head, drawn_errors

WORLDS, WEEKS = 400, 500
RATES = slice(2, 2 + len(ESTIMATED_SHARES))

Drawn = Callable[[Mapping[str, Floats], set[str]], Callable[[int], Floats]]


def main() -> None:
    """Print both tables."""
    print("| jobs | families | before | now |\n|---|--:|--:|--:|")
    for name, is_server in (("servers", True), ("all others", False)):
        own = [one for one in bundled_head().left_out if one.is_server is is_server]
        own = [one for one in own if not one.missing]
        held = [100 * np.mean([*_jobs(own, way)]) for way in (before, drawn_errors)]
        count = len({one.family for one in own})
        print(f"| {name} | {count} | {held[0]:.0f} | {held[1]:.0f} |")
    print("\n| families that were measured | before | now |\n|--:|--:|--:|")
    for count in (2, 3, 4, 5, 8, 13):
        held = [100 * np.mean([*_chance(count, way)]) for way in (before, drawn_errors)]
        print(f"| {count} | {held[0]:.0f} | {held[1]:.0f} |")


def before(near: Mapping[str, Floats], families: set[str]) -> Callable[[int], Floats]:
    """As it was."""
    order = sorted(families)

    def in_world(world: int) -> Floats:
        drawn = np.random.default_rng(world).choice(order, min(3, len(order)), replace=False)
        return 1.25 * next((near[one] for one in near if one in drawn), next(iter(near.values())))

    return in_world


def _jobs(own: Sequence[LeftOutJob], way: Drawn) -> Iterator[bool]:
    """Whether each job is held by those of other families."""
    families = {one.family for one in bundled_head().left_out}
    for job in own:
        others = [one for one in own if one.family != job.family]
        others.sort(key=lambda one: _away(one, job))
        near: dict[str, Floats] = {}
        for one in others:
            near.setdefault(one.family, _rates(one))
        yield _holds(way(near, families - {job.family}), float(_rates(job)[0]))


def _rates(one: LeftOutJob) -> Floats:
    return np.array([np.mean(one.errors[RATES])], dtype=np.float64)


def _away(one: LeftOutJob, job: LeftOutJob) -> float:
    return abs(one.sm - job.sm) + abs(one.part_of_power - job.part_of_power)


def _chance(count: int, way: Drawn) -> Iterator[bool]:
    """The same of numbers around 1."""
    for week in range(WEEKS):
        numbers = 1 + np.random.default_rng((week, count)).standard_normal(count + 1)
        near = {f"family {n}": numbers[n : n + 1] for n in range(count)}
        yield _holds(way(near, {*near}), float(numbers[-1]), 100)


def _holds(errors: Callable[[int], Floats], true: float, worlds: int = WORLDS) -> bool:
    low, high = np.quantile([errors(world)[0] for world in range(worlds)], (0.05, 0.95))
    return bool(low <= true <= high)


if __name__ == "__main__":
    main()
