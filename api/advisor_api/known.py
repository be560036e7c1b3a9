"""Jobs, profiles, checks and conditions of the present state of the store, kept in memory."""

import asyncio
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cachetools import LRUCache

from advisor.errors import InputError
from advisor.formats.job_file import load_job
from advisor.predict.measured import Windows
from advisor.settings import Settings, job_folders
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire.lists import JobRow
from advisor.wire.requests import GainsRequest, RecommendationRequest
from advisor_advice.answers import KnownSet
from advisor_advice.conditions import (
    Conditions,
    Experience,
    KnownJobs,
    asked_together,
    checks_of,
    measured_windows,
)
from advisor_advice.profiles import (
    ProfileSet,
    ProfilesOfJob,
    known_profiles,
    no_profile,
    on_one_gpu,
    or_estimated,
)
from advisor_api import bundled
from advisor_data import Store
from advisor_data.known import ChecksStamp, checked_counts, checks_stamp
from advisor_data.lists import job_rows
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Registry

MOST_COMPARED = 2000
"""Names that a wrong one is compared with for a hint; more would take too long."""


class Jobs:
    """Rows of all jobs; safe to share between threads. Everything here may block."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store

        @functools.lru_cache(maxsize=1)
        def stored(_change: int) -> frozenset[str]:
            # Some of them where there are very many.
            return frozenset(store.profile_names(limit=MOST_COMPARED + 1))

        self._stored = stored

    def rows(self, after: str, limit: int) -> tuple[JobRow, ...]:
        """One row for each job on each GPU model, by name: of `limit` names after one.

        Raises:
            StoreError: the store cannot be read.
        """
        defined = self.launchable()
        others = {row.job for row in bundled.profile_rows()}.union(defined)
        stored = self._store.profile_names(after, limit)
        names = sorted({*stored, *(name for name in others if name > after)})[:limit]
        if not names:
            return ()
        first, last = names[0], names[-1]
        return job_rows(
            [name for name in defined if first <= name <= last],
            self._store.profile_rows(first, last),
            [row for row in bundled.profile_rows() if first <= row.job <= last],
        )

    def names(self, change: int, near: str) -> set[str]:
        """Names to look for one like `near` in; read again for another `change` of the store.

        Raises:
            StoreError: the store cannot be read.
        """
        names = {row.job for row in bundled.profile_rows()}.union(self.launchable())
        names |= self._stored(change)
        if len(names) <= MOST_COMPARED:
            return names
        return {near} if near in names or self._store.profile_rows(near, near) else set()

    def launchable(self) -> list[str]:
        """Names of the jobs that have a job file without a fault, sorted."""
        files = (file for folder in job_folders(self._folder) for file in folder.glob("*.yaml"))
        return sorted({path.stem for path in files if _defines(path)})


def _defines(path: Path) -> bool:
    try:
        written = path.stat()
    except OSError:  # gone by now
        return False
    return _is_job(path, written.st_ino, written.st_mtime_ns, written.st_size)


@functools.lru_cache(maxsize=4096)
def _is_job(path: Path, *_written: int) -> bool:
    """Whether a file, as it was written then, describes the job that it is named after."""
    try:
        return load_job(path).name == path.stem
    except InputError:
        return False


MOST_JOBS = 16_384
"""Profiles kept; one takes a few KiB."""

MOST_CARDS = 1024
"""Cards of which what was learned is kept."""

MOST_KNOWN = 1024
"""Sets of which all that is known is kept; one takes about 65 KiB, with steps of two SMs 115."""

MOST_ANSWER_BYTES = 64 * 2**20
"""All answers kept; one takes 8 to 12 KiB, with every way several times as much."""


@dataclass(slots=True, eq=False)
class Kept:
    """All that is known of one state of the store, the registry and the checks.

    What a slow reader finds goes into the state that it began with, so nothing read before a
    change is ever kept after it.
    """

    change: int
    observed: int
    promotions: tuple[int, int, int]
    checks: ChecksStamp
    together: frozenset[tuple[str, ...]]
    """Names of jobs that the store has measured together."""
    profiles: LRUCache[str, ProfilesOfJob]
    predictor: ModelPredictor | None
    checked: dict[str, CheckedCounts | None] = field(
        default_factory=dict[str, CheckedCounts | None]
    )
    conditions: LRUCache[tuple[str, str | None], Conditions] = field(
        default_factory=lambda: LRUCache(MOST_CARDS)
    )
    sets: LRUCache[tuple[tuple[str, ...], str | None, str | None], KnownSet] = field(
        default_factory=lambda: LRUCache(MOST_KNOWN)
    )
    answers: LRUCache[RecommendationRequest | GainsRequest, bytes] = field(
        default_factory=lambda: LRUCache(MOST_ANSWER_BYTES, getsizeof=len)
    )


FRESH_S = 1.0
"""How long what is kept is used without a look at the store and the registry."""


class Present:
    """What is kept of the present state, for one event loop.

    Attributes:
        experience: What launches say.
    """

    def __init__(
        self, home: Path, store: Store, registry: Registry, change_count: Callable[[], int]
    ) -> None:
        self._home, self._store, self._registry = home, store, registry
        self._change_count = change_count
        self._kept = Kept(-1, -1, (-1, -1, -1), (), frozenset(), LRUCache(MOST_JOBS), None)
        self.experience, self._observed = Experience(), 0
        self._fresh_until = self._looked_at = self._changed_at = float("-inf")
        self._look: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Say that this process wrote to the store or the registry; any thread may."""
        self._changed_at = time.monotonic()

    def observed(self, experience: Experience) -> None:
        """Take in what launches say from now on; any thread may."""
        self.experience, self._observed = experience, self._observed + 1
        self.changed()

    async def kept(self) -> Kept:
        """What is kept of the present state."""
        while not (self._looked_at > self._changed_at and time.monotonic() < self._fresh_until):
            # One look for all that wait. One that began before a write does not count after it.
            if self._look is None:
                self._look = asyncio.create_task(self._look_now())
            await asyncio.shield(self._look)
        return self._kept

    async def _look_now(self) -> None:
        began = time.monotonic()
        try:
            observed = self._observed
            stamps = await asyncio.to_thread(
                lambda: (
                    *(self._change_count(), self._registry.stamp()),
                    *(checks_stamp(self._home), self._store.together()),
                )
            )
            self._keep(observed, *stamps)
            self._looked_at, self._fresh_until = began, time.monotonic() + FRESH_S
        finally:
            self._look = None

    def _keep(
        self,
        observed: int,
        change: int,
        promotions: tuple[int, int, int],
        checks: ChecksStamp,
        together: frozenset[tuple[str, ...]],
    ) -> None:
        old = self._kept
        known = old.observed, old.change, old.promotions, old.checks, old.together
        if (observed, change, promotions, checks, together) == known:
            return
        profiles = old.profiles if change == old.change else LRUCache[str, ProfilesOfJob](MOST_JOBS)
        predictor = old.predictor if promotions == old.promotions else None
        kept = Kept(change, observed, promotions, checks, together, profiles, predictor)
        if checks == old.checks:
            kept.checked |= old.checked
        if observed == old.observed:  # of a card they also depend on stored points
            kept.conditions.update({k: v for k, v in old.conditions.items() if k[1] is None})
        self._kept = kept


class JobsReader:
    """Reads what is asked for once for each state; for one event loop."""

    def __init__(
        self, settings: Settings, store: Store, registry: Registry, jobs: Jobs, present: Present
    ) -> None:
        self._settings, self._store, self._registry = settings, store, registry
        self._jobs, self._present = jobs, present
        self._loading, self._opening = asyncio.Lock(), asyncio.Lock()

    async def jobs(
        self,
        kept: Kept,
        names: Sequence[str],
        gpu_model: str | None,
        gpu_uuid: str | None,
    ) -> KnownJobs:
        """All that an answer about jobs is made of.

        Raises:
            InputError: a job without a profile, or not just one GPU model.
            ModelError: there is no model, or it is damaged.
            StoreError: the store cannot be read.
        """
        found = await self.profiles(kept, names, gpu_model)
        return KnownJobs(
            found=found,
            model=await self.predictor(kept),
            checked=await self.checked(kept, found),
            conditions=await self.conditions(kept, found, gpu_uuid),
        )

    async def predictor(self, kept: Kept) -> ModelPredictor:
        """The model in use.

        Raises:
            ModelError: there is none, or it is damaged.
        """
        if kept.predictor is None:
            async with self._opening:
                if kept.predictor is None:
                    kept.predictor = await asyncio.to_thread(self._registry.open_champion)
        return kept.predictor

    async def profiles(self, kept: Kept, names: Sequence[str], gpu_model: str | None) -> ProfileSet:
        """One profile for each name, on a GPU model that all have in common.

        Raises:
            InputError: a job has no profile, or there is not just one such GPU model.
            StoreError: the store cannot be read.
        """
        known = {name: kept.profiles.get(name) for name in names}
        if lacking := [name for name, of_job in known.items() if of_job is None]:
            known |= await self._loaded(kept, lacking)
        whole = {name: of_job for name, of_job in known.items() if of_job and of_job.profiles}
        for name in names:
            if name not in whole:
                near = await asyncio.to_thread(self._jobs.names, kept.change, near=name)
                raise no_profile(name, near)
        return on_one_gpu(names, whole, gpu_model)

    async def _loaded(self, kept: Kept, names: Iterable[str]) -> dict[str, ProfilesOfJob]:
        """Profiles from the store, of which many requests may want the same ones at once."""
        async with self._loading:
            here = {name: kept.profiles.get(name) for name in names}
            loaded = {name: of_job for name, of_job in here.items() if of_job is not None}
            if lacking := [name for name in here if name not in loaded]:
                loaded |= await asyncio.to_thread(self._load, lacking)
            kept.profiles.update(loaded)
        return loaded

    def _load(self, names: Sequence[str]) -> dict[str, ProfilesOfJob]:
        points = [point for name in names for point in self._store.solo_points(job=name)]
        own = known_profiles(points, names)
        bundled_too = bundled.profiles()
        known = {n: k.before(bundled_too.get(n, ProfilesOfJob({}))) for n, k in own.items()}
        return or_estimated(known, points)

    async def checked(self, kept: Kept, found: ProfileSet) -> CheckedCounts | None:
        """What the check of the profiles' GPU model found; None: there was none."""
        model, total = found.a.gpu_model, found.a.units_total
        if model not in kept.checked:
            kept.checked[model] = await asyncio.to_thread(
                checked_counts, self._settings.home, model, total
            )
        return kept.checked[model]

    async def conditions(
        self, kept: Kept, found: ProfileSet, gpu_uuid: str | None, *, any_of: bool = False
    ) -> Conditions:
        """What is known of the card, of drifting jobs, and of these jobs together.

        Raises:
            StoreError: the store cannot be read.
        """
        key = found.a.gpu_model, gpu_uuid
        conditions = kept.conditions.get(key)
        if conditions is None:
            store = self._store if gpu_uuid else None
            conditions = await asyncio.to_thread(self._present.experience.conditions, *key, store)
            kept.conditions[key] = conditions
        return replace(conditions, windows=await self._windows(kept, found, any_of))

    async def _windows(self, kept: Kept, found: ProfileSet, any_of: bool) -> Windows:
        """What was measured of these jobs together."""
        asked = asked_together(sorted(profile.job for profile in found.profiles))
        if any_of or not kept.together.isdisjoint(asked):
            return await asyncio.to_thread(self._measured, found, self._store, any_of)
        return self._measured(found, None, any_of)

    def _measured(self, found: ProfileSet, store: Store | None, any_of: bool) -> Windows:
        points = bundled.points_among((p.job for p in found.profiles), any_of=any_of)
        return measured_windows(
            found.profiles, checks_of(self._settings), store, points, any_of=any_of
        )
