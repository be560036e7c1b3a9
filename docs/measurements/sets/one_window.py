"""How good answers are where only one window of each job on the whole GPU was seen.

    python docs/measurements/sets/one_window.py [--write]

Every profile is estimated by a model that has seen no job of its family, from what it has on the
whole GPU, also without counters that a site may lack, and as if on another card, of those whose GPU
busy is known. First relative speeds and watts at the other shares, also after some windows of each
beside known jobs under limits; then measured sets by the law of sets over whole and over estimates.
`--write` fits the model to all profiles and writes the one that comes with the package.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rows import Row, bundled_campaigns, rows_of

from advisor.core.objectives import NORMAL_90
from advisor.predict.predictions import is_within
from advisor.predict.profiles import Floats, Profile, kind_of, make_profiles
from advisor.predict.sets import OptionPredictor, SetPredictor
from advisor_advice.conditions import (
    Expected,
    _bundled_alone as bundled_alone,
    measured_split,
    narrowed_by,
)
from advisor_data.bundled import (
    bundled_points_together,
    bundled_set_references,
    bundled_solo_points,
    select,
)
from advisor_models.registry import Registry
from advisor_models.single_window import (
    BUNDLED,
    COUNTERS,
    ESTIMATED_SHARES,
    bundled_head,
    window_of,
)
from advisor_training.learners import family_of
from advisor_training.train import blind, families_left_out, learnable, write_single_window

Key = tuple[str, str]
"""Job and GPU model."""

LACKING = {"SM and DRAM activity": (), "no SM activity": COUNTERS[:1], "neither": COUNTERS}
ELSEWHERE = {"SM activity, another card": (), "GPU busy, another card": COUNTERS}
SEEN, LAW = next(iter(LACKING)), SetPredictor()


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A whole profile, and what is estimated of it, by what a site lacks."""

    whole: Profile
    estimated: Mapping[str, Profile]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    points = [*bundled_solo_points(), *bundled_set_references()]
    profiles = learnable(make_profiles(points).values())
    if write:
        write_single_window(BUNDLED, profiles, points)
    known = {(k.whole.job, k.whole.gpu_model): k for k in known_of(profiles)}
    of_shares([*known.values()])
    of_hours(known)
    of_sets(known)


def known_of(profiles: Sequence[Profile]) -> Iterator[Known]:
    """Each by the model, and the errors, of all families but its own."""
    for head, own in families_left_out(profiles):
        head.left_out = [e for e in bundled_head().left_out if e.family != family_of(own[0].job)]
        for p in own:
            windows = {name: blind(window_of(p), of) for name, of in LACKING.items()}
            if p.busy > 0:
                other = replace(window_of(p), gpu_model="")
                windows |= {name: blind(other, of) for name, of in ELSEWHERE.items()}
            is_server = kind_of(p) == "server"
            seen = {n: head.profile(w, is_server=is_server) for n, w in windows.items()}
            yield Known(p, seen)


def of_shares(known: Sequence[Known]) -> None:
    """Errors at the other shares."""
    print(f"\n{len(known)} profiles of {len({family_of(k.whole.job) for k in known})} families")
    print("| | relative speed, points | median | watts, % | servers, points | in ranges, % |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in (*LACKING, *ELSEWHERE):
        own = [k for k in known if name in k.estimated]
        offs = [(k, speed_offs(k.whole, k.estimated[name])) for k in own]
        speeds = np.concatenate([off for _, off in offs])
        watts = np.concatenate([watts_offs(k.whole, k.estimated[name]) for k in own])
        served = np.concatenate([off for k, off in offs if kind_of(k.whole) == "server"])
        cells = (points(speeds), points(speeds, np.median), points(watts), points(served))
        held = np.concatenate([in_ranges(k.whole, k.estimated[name]) for k in own], axis=1)
        print(f"| {name} | {' | '.join(cells)} | {' and '.join(map(points, held))} |")


def of_hours(known: Mapping[Key, Known]) -> None:
    """The same of jobs after so many windows beside others whose profiles are known, at random."""
    pairs = [p for p in select(bundled_points_together())[0] if len({*p.jobs}) == len(p.parts) == 2]
    model, alone = OptionPredictor(Registry(Path("/none")).open_champion()), bundled_alone()
    launches = {key: list[Expected]() for key in known}
    for pair in pairs:
        split = measured_split(pair.mode, pair.shares_percent)
        both = [known.get((job, pair.gpu_model)) for job in pair.jobs]
        own = [alone.get((pair.run, pair.gpu_uuid, job)) for job in pair.jobs]
        if not (split and split.is_limited and all(both) and all(own) and pair.power_w):
            continue
        for n, key in enumerate(zip(pair.jobs, [pair.gpu_model] * 2, strict=True)):
            of = [k.estimated[SEEN] if m == n else k.whole for m, k in enumerate(both) if k]
            if is_within(split, of) and kind_of(both[n].whole) != "server" and pair.parts[n].rate:
                part = SimpleNamespace(
                    rate=pair.parts[n].rate / own[n][0], rate_unit=of[n].rate_unit, solo_rate=None
                )
                seen = SimpleNamespace(jobs=pair.jobs, parts=[part] * 2, power_w=pair.power_w,
                                       gpu_uuid=pair.gpu_uuid)  # fmt: skip
                launches[key].append(Expected(seen, tuple(of), model.predict(of, [split])[0]))
    several = {key: some for key, some in launches.items() if len(some) >= 8}
    print(f"\n{len(several)} batch jobs beside others, by how many windows")
    print("| | relative speed, points | watts, % | in ranges, % |\n|---|--:|--:|--:|")
    for count in (0, 1, 2, 4, 8):
        order = np.random.default_rng(0)
        found = []
        for key, some in several.items():
            drawn = [some[n] for n in order.permutation(len(some))[:count]]
            found.append((known[key].whole, narrowed_by(known[key].estimated[SEEN], drawn)))
        cells = (points(np.concatenate([off(*one) for one in found]))
                 for off in (speed_offs, watts_offs))  # fmt: skip
        held = np.concatenate([in_ranges(*one) for one in found], axis=1)
        print(f"| {count} | {' | '.join(cells)} | {' and '.join(map(points, held))} |")


def in_ranges(whole: Profile, estimated: Profile) -> Any:
    """Whether speed and watts at shares of 20 to 80 % are in their ranges; shape (2, n)."""
    asked = (whole.shares[:-1] >= 20) & (whole.shares[:-1] <= 80)
    shares, off = whole.shares[:-1][asked], estimated.doubt_at(whole.shares[:-1][asked])
    at, true = estimated.at(shares), (kept(whole)[asked], whole.values["power_w"][:-1][asked])
    said = np.array([at["rate"], at["power_w"]])
    return np.abs(np.log(np.array(true) / said)) <= NORMAL_90 * off


def kept(p: Profile) -> Floats:
    """Relative speed at the shares below the whole GPU."""
    return np.minimum(1.0, p.values["rate"][:-1] / p.values["rate"][-1])


def speed_offs(whole: Profile, estimated: Profile) -> Floats:
    """Of an estimated profile at the shares of the whole one."""
    return np.abs(estimated.at(within(whole))["rate"] - kept(whole))


def watts_offs(whole: Profile, estimated: Profile) -> Floats:
    """The same of its power, relative."""
    return np.abs(estimated.at(within(whole))["power_w"] / whole.values["power_w"][:-1] - 1)


def within(p: Profile) -> Floats:
    """A share below 10 % is asked of the smallest that is estimated."""
    return np.maximum(p.shares[:-1], ESTIMATED_SHARES[0])


def points(offs: Iterable[float] | Floats, of: Callable[[Floats], Any] = np.mean) -> str:
    """In hundredths."""
    return f"{100 * of(np.array([*offs])):.1f}"


def of_sets(known: Mapping[Key, Known]) -> None:
    """Measured sets by the law of sets over whole, and over estimated profiles."""
    rows = [r for c in bundled_campaigns() for r in rows_of(c) if keys_of(r) <= known.keys()]
    print(f"\n{len(rows)} measured windows of sets: energy saved, points off")
    names = ("whole profiles", *LACKING)
    print(f"| | windows | {' | '.join(names)} |\n|---|{'--:|' * (1 + len(names))}")
    for mode in ("uncapped", "limits", "time-sliced"):
        own = [row for row in rows if row.mode == mode]
        seen = ([(row, of(row, known, n)) for row in own] for n in names)
        offs = (starmap(saving_off, pairs) for pairs in seen)
        print(f"| {mode} | {len(own)} | {' | '.join(map(points, offs))} |")


def keys_of(row: Row) -> set[Key]:
    """Its jobs on its GPU model."""
    return {(part.whole.job, row.gpu_model) for part in row.parts}


def of(row: Row, known: Mapping[Key, Known], name: str) -> list[Profile]:
    """Profiles of its jobs by one of the rules of the tables."""
    jobs = [known[part.whole.job, row.gpu_model] for part in row.parts]
    return [job.estimated.get(name, job.whole) for job in jobs]


def saving_off(row: Row, profiles: Sequence[Profile]) -> float:
    """How far the energy that one window saved is from what is predicted."""
    (found,) = LAW.predict(profiles, [row.split])
    told = np.array([part.speed.value for part in found.parts])
    speeds = np.array([min(1.0, part.speed) for part in row.parts])
    # The cards that each would have alone draw what was measured there.
    alone_w = np.array([part.whole.power_w or 0.0 for part in row.parts])
    return abs(found.power_w.value / float(alone_w @ told) - row.power_w / float(alone_w @ speeds))


if __name__ == "__main__":
    main()
