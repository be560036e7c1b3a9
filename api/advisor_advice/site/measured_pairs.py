"""What was measured of jobs together on a GPU model: own windows and launches, and bundled ones."""

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.core.gpu import WHOLE
from advisor.core.records import REPLAY_SOURCE, Observation, PairPoint, SoloPoint
from advisor.core.split import Split
from advisor.predict.measured import Window, Windows
from advisor.predict.profiles import Profile
from advisor.validity.points import undisputed
from advisor_advice.site.expected import Checked, is_doubtful, measured_split
from advisor_data import Store
from advisor_data.bundled import bundled_points_together, bundled_set_references, select

SLOW = 0.5
"""Rate alone of a job on the host of a bundled set, for each 1 of its profile: small kernels run at
0.4 to 1.8, as fast as a host's CPU starts them. Below it a set would say of being together what is
so of being alone."""


def measured_windows(
    profiles: Sequence[Profile],
    checked: Checked,
    store: Store | None,
    bundled: Iterable[PairPoint] | None = None,
    *,
    any_of: bool = False,
) -> Windows:
    """Windows and launches of these jobs on their GPU model that nothing speaks against.

    Args:
        profiles: Of the jobs on one GPU model.
        checked: Says which counts are unsafe: launches there count with right results only.
        store: None: there is nothing but what comes with advisor.
        bundled: Points that come with advisor, of any jobs; None: they are read.
        any_of: Of any of them beside each other, as in a queue or of copies; else of all together,
            and what came with advisor, or is of copies of one job, of fewer of them, too.

    Raises:
        StoreError: the store cannot be read.
    """
    by_job, gpu_model = {p.job: p for p in profiles}, profiles[0].gpu_model
    found: defaultdict[tuple[str, ...], list[Window]] = defaultdict(list)
    points = bundled_points_together(by_job) if bundled is None else bundled
    slow = _slow_alone(by_job)
    on_model = (
        point
        for point in points
        if point.gpu_model == gpu_model
        and not any((point.run, point.gpu_uuid, job) in slow for job in point.jobs)
    )
    for names, window in _of_points(on_model, is_bundled=True):
        found[names].append(window)
    if store is None:
        return dict(found)
    # Of a queue all are read at once: asking for each pair takes longer.
    asked = [None] if any_of else _asked([p.job for p in profiles])
    own = [p for jobs in asked for p in store.pair_points(jobs=jobs, gpu_model=gpu_model)]
    for names, window in _of_points(undisputed(own)):
        found[names].append(window)
    seen = [o for jobs in asked for o in store.observations(jobs=jobs, gpu_model=gpu_model)]
    for observation in undisputed(seen):
        known = [by_job[job] for job in observation.jobs if job in by_job]
        if len(known) == len(observation.jobs) and not is_doubtful(observation, known, checked):
            found[observation.jobs] += _of_launch(observation)
    return {names: tuple(windows) for names, windows in found.items() if by_job.keys() >= {*names}}


def _slow_alone(profiles: Mapping[str, Profile]) -> set[tuple[str, str, str]]:
    """Campaign and card of bundled sets, and job, where its rate alone was below `SLOW`."""
    return {
        (alone.run, alone.gpu_uuid, alone.job)
        for alone in _alone_beside_sets()
        if (profile := profiles.get(alone.job))
        and profile.gpu_model == alone.gpu_model
        and alone.rate < SLOW * profile.whole_gpu_rate
    }


@functools.cache
def _alone_beside_sets() -> tuple[SoloPoint, ...]:
    """Jobs without a demand on the whole GPU, by the runs of the bundled sets."""
    return tuple(
        point
        for point in bundled_set_references()
        if point.share_percent == WHOLE and point.offered_rate is None
    )


def _asked(names: list[str]) -> list[list[str]]:
    """All of them; of copies fewer as well."""
    fewer = range(2, len(names)) if len(set(names)) == 1 else ()
    return [names, *(names[:number] for number in fewer)]


def _of_points(
    points: Iterable[PairPoint], *, is_bundled: bool = False
) -> Iterator[tuple[tuple[str, ...], Window]]:
    measured = [point for point in points if point.source != REPLAY_SOURCE]
    for point in select(measured).points:
        if split := measured_split(point.mode, point.shares_percent):
            yield point.jobs, replace(_window(split, point), is_bundled=is_bundled)


def _of_launch(o: Observation) -> Iterator[Window]:
    if split := measured_split(o.mode, [part.share_percent for part in o.parts]):
        yield replace(_window(split, o), is_launch=True)


def _window(split: Split, seen: PairPoint | Observation) -> Window:
    tails = tuple(part.latency_p99_ms for part in seen.parts)
    return Window(
        split,
        tuple(part.rate for part in seen.parts),
        seen.power_w,
        seen.gpu_uuid,
        seen.started_at,
        latencies_p99_ms=tails if any(tails) else (),
    )
