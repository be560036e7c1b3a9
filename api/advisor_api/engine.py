"""Answers from what is kept of the present state of the store, and the numbers of this process."""

import asyncio
import functools
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cachetools import LRUCache
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from advisor.core.gpu import named_model
from advisor.decide.decision import Decision
from advisor.errors import AdvisorError, BusyError, InputError, NoSplitError
from advisor.formats.job_file import load_job
from advisor.formats.wire import read, write, write_bytes
from advisor.predict.measured import Windows, of_few
from advisor.predict.profiles import Profile
from advisor.settings import Settings, job_folders
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire.answers import (
    ComponentsOfJob,
    Gains,
    JobRow,
    Partner,
    Recommendation,
    SharingVerdict,
)
from advisor.wire.requests import (
    MOST_CROSSED,
    GainsRequest,
    PlacementRequest,
    RecommendationRequest,
)
from advisor_advice.answers import (
    DIGITS,
    SetAdvisor,
    components_by_share,
    curve_of,
    partner_of,
    request_of,
)
from advisor_advice.conditions import (
    NOTHING,
    AdvisorInputs,
    Conditions,
    ProfileSet,
    ProfilesOfJob,
    checks_of,
    measured_windows,
    no_profile,
    on_single_gpu,
    or_estimated,
    profiles_by_name,
    sets_of,
)
from advisor_advice.placing import advised, place_request, placement_text
from advisor_advice.words import recommendation
from advisor_api import bundled
from advisor_api.worker_process import WorkerProcesses, worked
from advisor_data import Store
from advisor_data.bundled import (
    GPU_MODEL as BUNDLED_MODEL,
    ChecksStamp,
    checked_counts,
    checks_stamp,
)
from advisor_data.lists import job_rows
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Manifest, Registry

# Names that a wrong one is compared with for a hint; more would take too long.
_MOST_COMPARED = 2000


class _Jobs:
    """Rows of all jobs; safe to share between threads. Everything here may block."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store

        @functools.lru_cache(maxsize=1)
        def stored(_change: int) -> frozenset[str]:
            # Some of them where there are very many.
            return frozenset(store.profile_names(limit=_MOST_COMPARED + 1))

        self._stored = stored

    def rows(self, after: str, limit: int) -> tuple[JobRow, ...]:
        """One row for each job on each GPU model, by name: of `limit` names after one.

        Raises:
            StoreError: the store cannot be read.
        """
        defined = self.launchable()
        others = {row.job for row in bundled.profile_rows()}.union(defined)
        stored = self._store.profile_names(after, limit)
        if not (names := sorted({*stored, *(name for name in others if name > after)})[:limit]):
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
        if len(names) <= _MOST_COMPARED:
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


# Profiles kept; one takes a few KiB.
_MOST_JOBS = 16_384

# Sets of which all that is known is kept; one takes about 65 KiB, with steps of two SMs 115.
_MOST_CACHED = 1024

# All answers kept; one takes 8 to 12 KiB, with every way several times as much.
_MOST_ANSWER_BYTES = 64 * 2**20


@dataclass(slots=True, eq=False)
class _Kept:
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
        default_factory=lambda: LRUCache(1024)
    )
    sets: LRUCache[tuple[tuple[str, ...], str | None, str | None, float | None], SetAdvisor] = (
        field(default_factory=lambda: LRUCache(_MOST_CACHED))
    )
    answers: LRUCache[RecommendationRequest | GainsRequest, bytes] = field(
        default_factory=lambda: LRUCache(_MOST_ANSWER_BYTES, getsizeof=len)
    )


FRESH_S = 1.0
"""How long what is kept is used without a look at the store and the registry."""


class _Present:
    """What is kept of the present state, for one event loop.

    Attributes:
        experience: What launches say.
    """

    def __init__(
        self, home: Path, store: Store, registry: Registry, change_count: Callable[[], int]
    ) -> None:
        self._home, self._store, self._registry = home, store, registry
        self._change_count = change_count
        self._kept = _Kept(-1, -1, (-1, -1, -1), (), frozenset(), LRUCache(_MOST_JOBS), None)
        self.experience, self._observed = NOTHING, 0
        self._fresh_until = self._looked_at = self._changed_at = float("-inf")
        self._look: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Say that this process wrote to the store or the registry; any thread may."""
        self._changed_at = time.monotonic()

    def observed(self, experience: Conditions) -> None:
        """Take in what launches say from now on; any thread may."""
        self.experience, self._observed = experience, self._observed + 1
        self.changed()

    async def kept(self) -> _Kept:
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
        old_state = old.observed, old.change, old.promotions, old.checks, old.together
        if (observed, change, promotions, checks, together) == old_state:
            return
        is_same = change == old.change
        profiles = old.profiles if is_same else LRUCache[str, ProfilesOfJob](_MOST_JOBS)
        predictor = old.predictor if promotions == old.promotions else None
        if promotions != old.promotions:
            of_few.cache_clear()
        kept = _Kept(change, observed, promotions, checks, together, profiles, predictor)
        if checks == old.checks:
            kept.checked |= old.checked
        if observed == old.observed:  # of a card they also depend on stored points
            kept.conditions.update({k: v for k, v in old.conditions.items() if k[1] is None})
        self._kept = kept


_Cell = tuple[SharingVerdict | None, Partner | None]


def _requests(
    request: GainsRequest, gpu_model: str, jobs: Sequence[Profile]
) -> Iterator[RecommendationRequest]:
    names = [profile.job for profile in jobs]
    pairs = (
        ((request.beside, name) for name in names)
        if request.beside
        else itertools.combinations_with_replacement(names, 2)
    )
    return (
        RecommendationRequest.of(
            *both,
            gpu_model=gpu_model,
            objective=request.objective,
            min_speed=request.min_speed,
            max_power_w=request.max_power_w,
            memory_mib=request.memory_mib,
            min_gain=request.min_gain,
        )
        for both in pairs
    )


# What tells where power goes is imported with the first question: most services are asked none.

# Names of jobs among which those of a GPU model are looked for.
_MOST_ROWS = 1000

PLACEMENTS_AT_ONCE = 2
PLACEMENTS_WAITING = 8
"""More would only wait for each other: placing takes seconds of a whole core."""


class Engine(Collector):
    """What answers requests, for one event loop; counts those that it could answer from memory.

    Questions raise a StoreError where the store cannot be read; answers of the model a
    ModelError where there is none, or it is damaged, an InputError for a job without a profile or a
    request that does not fit the jobs, and a NoSplitError where nothing keeps every limit.
    """

    def __init__(
        self, settings: Settings, store: Store, registry: Registry, change_count: Callable[[], int]
    ) -> None:
        self._registry, self._settings, self._store = registry, settings, store
        self.jobs = _Jobs(settings.jobs_dir, store)
        self.present = _Present(settings.home, store, registry, change_count)
        self._placing, self._placements = WorkerProcesses(settings, PLACEMENTS_AT_ONCE), 0
        # One piece at a time: the event loop has one thread to wait for.
        self._working = ThreadPoolExecutor(1, "working")
        self.hits = self.misses = 0
        # Each value is read once for each state, however many ask at once.
        self._reading, self._loading, self._opening = (asyncio.Lock() for _ in range(3))
        self._made: dict[type[Any], Callable[[_Kept, Any], Awaitable[bytes]]] = {
            RecommendationRequest: self._recommended,
            GainsRequest: self._crossed,
        }

    async def warm_up(self) -> None:
        """Read what every answer needs, and answer once, so that the first caller waits no longer.

        Readiness and answers report its failures.
        """
        job = min(await asyncio.to_thread(bundled.profiles))
        with suppress(AdvisorError):
            request = read(RecommendationRequest, write(RecommendationRequest.of(job, job)))
            await self._recommended(await self.present.kept(), request)

    def close(self) -> None:
        """End placements that are still worked out."""
        self._placing.close()
        self._working.shutdown(cancel_futures=True)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The counts of recommendations, which the registry reads at each scrape."""
        text = "Recommendations, by whether an equal one was kept in memory"
        family = CounterMetricFamily("advisor_recommendations", text, labels=("kept",))
        family.add_metric(("yes",), self.hits)
        family.add_metric(("no",), self.misses)
        yield family

    async def recommend(self, request: RecommendationRequest | GainsRequest) -> bytes:
        """A `Recommendation` or `Gains` as JSON, kept for the present state of the store."""
        kept = await self.present.kept()
        try:
            text = kept.answers[request]  # `get` hashes it twice
            self.hits += 1
        except KeyError:
            self.misses += 1
            text = kept.answers[request] = await self._made[type(request)](kept, request)
        return text

    async def decide(self, request: RecommendationRequest) -> Decision:
        """The decision on two to seven jobs, which `recommend` tells."""
        return await self._decided(await self.present.kept(), request)

    async def components(self, job: str, gpu_model: str | None) -> ComponentsOfJob:
        """What is known of where the power of a job goes.

        Raises:
            InputError: a job without a profile, or without a window that can be trusted.
        """
        profile_set = await self._profiles(await self.present.kept(), [job], gpu_model)
        return await worked(
            lambda: components_by_share(
                profile_set.a, [*self._store.solo_points(job=job), *bundled.solo_points()]
            )
        )

    async def place(self, question: PlacementRequest) -> bytes:
        """Which jobs share a GPU, as JSON: `advisor.wire.answers`.

        Worked out beside everything else, in a process of its own.

        Raises:
            BusyError: too many placements are asked for at once.
            InputError: also an objective that is not for placements.
            ProcessEndedError: the process that worked it out was killed.
        """
        if self._placements >= PLACEMENTS_AT_ONCE + PLACEMENTS_WAITING:
            raise BusyError(
                f"{self._placements} placements are being worked out",
                why="each takes seconds of a whole core",
                fix="ask again in a few seconds",
            )
        self._placements += 1
        try:
            kept = await self.present.kept()
            profile_set = await self._profiles(
                kept, question.types, question.gpu_model, question.power_limit_w
            )
            request = place_request(question, self._settings)
            checked = await self._checked(kept, profile_set)
            conditions = await self._conditions(kept, profile_set, question.gpu_uuid, any_of=True)
            return await self._placing.work(
                placement_text, self._registry, question, request, profile_set, checked, conditions
            )
        finally:
            self._placements -= 1

    async def manifest(self) -> Manifest:
        """What is known of the model in use."""
        return (await self._predictor(await self.present.kept())).manifest

    async def _recommended(self, kept: _Kept, wire_request: RecommendationRequest) -> bytes:
        request, set_advisor = (
            request_of(wire_request, self._settings),
            await self._set(kept, wire_request),
        )

        def made() -> Recommendation:
            # Where they run instead is a reason, and takes longer than all else.
            given = (
                advised(set_advisor, wire_request, request)
                if wire_request.words
                else set_advisor.advise(wire_request, request)
            )
            return recommendation(given, wire_request)

        return await worked(lambda: write_bytes(made()), self._working)

    async def _crossed(self, kept: _Kept, request: GainsRequest) -> bytes:
        """The gains of jobs that are named, or of those that are measured on the GPU model.

        Raises:
            InputError: a job that is named has no profile there.
        """
        rows = await asyncio.to_thread(self.jobs.rows, "", _MOST_ROWS)
        models = (row.gpu_model for row in rows if row.gpu_model)
        gpu_model = named_model(request.gpu_model or BUNDLED_MODEL, models)
        by_source = sorted(rows, key=lambda row: (row.source == "bundled", row.job))
        names = list(dict.fromkeys(request.jobs)) or [
            row.job for row in by_source if row.gpu_model == gpu_model
        ]
        profile_sets: list[ProfileSet] = []
        for name in sorted(names[:MOST_CROSSED]):
            # A list may have jobs with too few points for a profile.
            with nullcontext() if request.jobs else suppress(InputError):
                profile_sets.append(await self._profiles(kept, [name], gpu_model))
        every = _requests(request, gpu_model, [profile_set.a for profile_set in profile_sets])
        cells = [await self._cell(kept, request) for request in every]
        partners = [partner for _, partner in cells]
        gains = Gains(
            gpu_model=gpu_model,
            objective=request.policy(self._settings.policy).deciding,
            beside=request.beside,
            jobs=tuple(
                curve_of(profile_set.a, bundled=bool(profile_set.bundled))
                for profile_set in profile_sets
            ),
            left_out=max(0, len(names) - MOST_CROSSED),
            verdicts=tuple(verdict for verdict, _ in cells),
            splits=tuple(p and p.split for p in partners),
            gpu_time_saved=tuple(p and round(p.gpu_time_saved.value, DIGITS) for p in partners),
            energy_saved=tuple(p and round(p.energy_saved.value, DIGITS) for p in partners),
            speeds=tuple(
                p and (round(p.speed.value, DIGITS), round(p.partner_speed.value, DIGITS))
                for p in partners
            ),
        )
        return write_bytes(gains)

    async def _cell(self, kept: _Kept, request: RecommendationRequest) -> _Cell:
        try:
            decision = await self._decided(kept, request)
        except NoSplitError:
            return None, None
        return decision.verdict, next(partner_of(decision), None)

    async def _decided(self, kept: _Kept, request: RecommendationRequest) -> Decision:
        set_advisor = await self._set(kept, request)
        return await worked(
            lambda: set_advisor.decide(request_of(request, self._settings)), self._working
        )

    async def _set(self, kept: _Kept, request: RecommendationRequest) -> SetAdvisor:
        key = request.looked_at, request.gpu_model, request.gpu_uuid, request.power_limit_w
        if (set_advisor := kept.sets.get(key)) is None:
            async with self._reading:  # of many that ask at once, one reads
                if (set_advisor := kept.sets.get(key)) is None:
                    set_advisor = kept.sets[key] = SetAdvisor.of(await self._inputs(kept, *key))
        return set_advisor

    async def _inputs(
        self,
        kept: _Kept,
        names: Sequence[str],
        gpu_model: str | None,
        gpu_uuid: str | None,
        power_limit_w: float | None = None,
    ) -> AdvisorInputs:
        """All that an answer about jobs is made of.

        Raises:
            InputError: a job without a profile, or not just one GPU model.
            ModelError: there is no model, or it is damaged.
            StoreError: the store cannot be read.
        """
        profile_set = await self._profiles(kept, names, gpu_model, power_limit_w)
        return AdvisorInputs(
            profile_set=profile_set,
            model=await self._predictor(kept),
            jobs_dir=self._settings.jobs_dir,
            checked=await self._checked(kept, profile_set),
            conditions=await self._conditions(kept, profile_set, gpu_uuid),
        )

    async def _predictor(self, kept: _Kept) -> ModelPredictor:
        """The model in use.

        Raises:
            ModelError: there is none, or it is damaged.
        """
        if kept.predictor is None:
            async with self._opening:
                if kept.predictor is None:
                    kept.predictor = await asyncio.to_thread(self._registry.open_champion)
        return kept.predictor

    async def _profiles(
        self,
        kept: _Kept,
        names: Sequence[str],
        gpu_model: str | None,
        power_limit_w: float | None = None,
    ) -> ProfileSet:
        """One profile for each name, on a GPU model that all have in common.

        Raises:
            InputError: a job has no profile, or there is not just one such GPU model.
            StoreError: the store cannot be read.
        """
        by_name = {name: kept.profiles.get(name) for name in names}
        if lacking := [name for name, of_job in by_name.items() if of_job is None]:
            by_name |= await self._loaded(kept, lacking)
        whole = {name: of_job for name, of_job in by_name.items() if of_job and of_job.profiles}
        for name in names:
            if name not in whole:
                raise no_profile(
                    name, await asyncio.to_thread(self.jobs.names, kept.change, near=name)
                )
        return on_single_gpu(names, whole, gpu_model, power_limit_w=power_limit_w)

    async def _loaded(self, kept: _Kept, names: Iterable[str]) -> dict[str, ProfilesOfJob]:
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
        return or_estimated(
            {
                name: local.before(bundled.profiles().get(name, ProfilesOfJob({})))
                for name, local in profiles_by_name(points, names).items()
            },
            points,
        )

    async def _checked(self, kept: _Kept, profile_set: ProfileSet) -> CheckedCounts | None:
        """What the check of the profiles' GPU model found; None: there was none."""
        model, total = profile_set.a.gpu_model, profile_set.a.units_total
        if model not in kept.checked:
            kept.checked[model] = await asyncio.to_thread(
                checked_counts, self._settings.home, model, total
            )
        return kept.checked[model]

    async def _conditions(
        self, kept: _Kept, profile_set: ProfileSet, gpu_uuid: str | None, *, any_of: bool = False
    ) -> Conditions:
        """What is known of the card, of drifting jobs, and of these jobs together.

        Raises:
            StoreError: the store cannot be read.
        """
        key = profile_set.a.gpu_model, gpu_uuid
        if (conditions := kept.conditions.get(key)) is None:
            conditions = await asyncio.to_thread(
                self.present.experience.on_card, *key, self._store if gpu_uuid else None
            )
            kept.conditions[key] = conditions
        return replace(conditions, windows=await self._windows(kept, profile_set, any_of))

    async def _windows(self, kept: _Kept, profile_set: ProfileSet, any_of: bool) -> Windows:
        if any_of or not kept.together.isdisjoint(
            sets_of(sorted(profile.job for profile in profile_set.profiles))
        ):
            return await asyncio.to_thread(self._measured, profile_set, self._store, any_of)
        return self._measured(profile_set, None, any_of)

    def _measured(self, profile_set: ProfileSet, store: Store | None, any_of: bool) -> Windows:
        points = bundled.points_among((p.job for p in profile_set.profiles), any_of=any_of)
        return measured_windows(
            profile_set.profiles, checks_of(self._settings), store, points, any_of=any_of
        )
