"""Answers from what is kept in memory, and the numbers of this process."""

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from advisor.core.records import SoloPoint
from advisor.core.split import ADVISED_JOBS
from advisor.decide.decision import Decision
from advisor.errors import AdvisorError, BusyError, InputError, NoSplitError
from advisor.formats.wire import read, write, write_bytes
from advisor.predict.profiles import Profile
from advisor.settings import Settings
from advisor.wire.answers import Gains, Partner, Recommendation, SharingVerdict
from advisor.wire.requests import (
    MOST_CROSSED,
    GainsRequest,
    PlacementRequest,
    RecommendationRequest,
)
from advisor_advice.answers import (
    KnownSet,
    known_set,
    request_of,
    verdict_of,
)
from advisor_advice.partners import DIGITS, curve_of, partner_of
from advisor_advice.placing import advised, place_request, placement_text
from advisor_advice.profiles import ProfileSet
from advisor_advice.words import recommendation
from advisor_api import bundled
from advisor_api.known import Jobs, JobsReader, Kept, Present
from advisor_api.own_process import OwnProcesses
from advisor_data import Store
from advisor_data.bundled import GPU_MODEL as BUNDLED_MODEL
from advisor_models.manifest import Manifest
from advisor_models.registry import Registry

if TYPE_CHECKING:
    from advisor_power.components import ComponentWeights, KnownPower


MOST_GPU_MODELS = 64
"""GPU models whose weights are kept, with the stored points that they are fitted to."""


class Weights:
    """Weights of each GPU model, fitted once for each state of the store; for several threads."""

    def __init__(self, store: Store) -> None:
        self._store, self._fitting = store, threading.Lock()
        self._known: LRUCache[str, _Fit] = LRUCache(MOST_GPU_MODELS)

    def known_power(self, change: int, found: ProfileSet) -> "KnownPower":
        """What is known of the power of these jobs in a state of the store; may block.

        Raises:
            InputError: too few jobs were measured on the GPU model.
            StoreError: the store cannot be read.
        """
        from advisor_power.components import known_power

        weights = self._weights(change, found.a.gpu_model)
        if isinstance(weights, InputError):
            raise weights
        names = {profile.job for profile in found.profiles}
        stored = [p for name in names for p in self._store.solo_points(job=name)]
        return known_power(found.profiles, [*stored, *bundled.solo_points()], weights)

    def _weights(self, change: int, gpu_model: str) -> "ComponentWeights | InputError":
        with self._fitting:  # of many that ask at once, one fits
            known = self._known.get(gpu_model)
            if known is None or known[0] != change:
                stored = self._store.solo_points(gpu_model=gpu_model)
                # Most changes are observations and pairs; fitting takes a tenth of a second.
                weights = known[2] if known and known[1] == stored else _fitted(stored, gpu_model)
                known = self._known[gpu_model] = (change, stored, weights)
            return known[2]


_Fit = tuple[int, Sequence[SoloPoint], "ComponentWeights | InputError"]
"""Count of changes, stored points, and the weights that they gave."""


def _fitted(stored: Sequence[SoloPoint], gpu_model: str) -> "ComponentWeights | InputError":
    from advisor_power.components import fitted_weights

    # That nothing can be fitted is kept, too: finding out takes as long.
    try:
        return fitted_weights([*stored, *bundled.solo_points()], gpu_model)
    except InputError as error:
        return error


_Cell = tuple[SharingVerdict | None, Partner | None]


def _requests(
    asked: GainsRequest, gpu_model: str, jobs: Sequence[Profile]
) -> Iterator[RecommendationRequest]:
    names = [profile.job for profile in jobs]
    pairs = (
        ((asked.beside, name) for name in names)
        if asked.beside
        else itertools.combinations_with_replacement(names, 2)
    )
    for both in pairs:
        yield RecommendationRequest.of(
            *both,
            gpu_model=gpu_model,
            objective=asked.objective,
            min_speed=asked.min_speed,
            max_power_w=asked.max_power_w,
            memory_mib=asked.memory_mib,
            min_gain=asked.min_gain,
        )


# What tells where power goes is imported with the first question: most services are asked none.

MOST_ROWS = 1000
"""Names of jobs among which those of a GPU model are looked for."""

PLACEMENTS_AT_ONCE = 2
PLACEMENTS_WAITING = 8
"""More would only wait for each other: placing takes seconds of a whole core."""


class Engine(Collector):
    """What answers requests, for one event loop; counts those that it could answer from memory.

    What is asked raises a StoreError where the store cannot be read; what the model answers a
    ModelError where there is none, or it is damaged, an InputError for a job without a profile or a
    request that does not fit the jobs, and a NoSplitError where nothing keeps every limit.
    """

    def __init__(
        self, settings: Settings, store: Store, registry: Registry, change_count: Callable[[], int]
    ) -> None:
        self._registry = registry
        self._settings = settings
        self.jobs = Jobs(settings.jobs_dir, store)
        self._weights = Weights(store)
        self.present = Present(settings.home, store, registry, change_count)
        self._known = JobsReader(settings, store, registry, self.jobs, self.present)
        self._placing, self._placements = OwnProcesses(settings, PLACEMENTS_AT_ONCE), 0
        self.hits = self.misses = 0
        self._reading = asyncio.Lock()
        self._made: dict[type[Any], Callable[[Kept, Any], Awaitable[object]]] = {
            RecommendationRequest: self._recommended,
            GainsRequest: self._crossed,
        }

    async def warm_up(self) -> None:
        """Read what every answer needs, and answer once: the first who asks waits no longer.

        What fails here is told by readiness, and to those who ask.
        """
        job = min(await asyncio.to_thread(bundled.profiles))
        with suppress(AdvisorError):
            asked = read(RecommendationRequest, write(RecommendationRequest.of(job, job)))
            write_bytes(await self._recommended(await self.present.kept(), asked))

    def close(self) -> None:
        """End placements that are still worked out."""
        self._placing.close()

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The counts of recommendations, which the registry reads at each scrape."""
        text = "Recommendations, by whether an equal one was kept in memory"
        family = CounterMetricFamily("advisor_recommendations", text, labels=("kept",))
        family.add_metric(("yes",), self.hits)
        family.add_metric(("no",), self.misses)
        yield family

    async def recommend(self, asked: RecommendationRequest | GainsRequest) -> bytes:
        """A `Recommendation` or `Gains` as JSON, kept for the present state of the store."""
        kept = await self.present.kept()
        try:
            text = kept.answers[asked]  # `get` hashes it twice
            self.hits += 1
        except KeyError:
            self.misses += 1
            text = kept.answers[asked] = write_bytes(await self._made[type(asked)](kept, asked))
        return text

    async def decide(self, asked: RecommendationRequest) -> Decision:
        """The decision on two to seven jobs, which `recommend` tells."""
        return await self._decided(await self.present.kept(), asked)

    async def known_power(self, names: Sequence[str], gpu_model: str | None) -> "KnownPower":
        """What is known of the power of jobs; component weights are fitted once for each state.

        Raises:
            InputError: a job without a profile, or too few jobs were measured on the GPU model.
        """
        known = await self._power(await self.present.kept(), names, gpu_model)
        return await asyncio.to_thread(known)

    async def place(self, asked: PlacementRequest) -> bytes:
        """Who shares with whom, as JSON: `advisor.wire.placement`.

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
            found = await self._known.profiles(kept, asked.types, asked.gpu_model)
            request = place_request(asked, self._settings)
            checked = await self._known.checked(kept, found)
            conditions = await self._known.conditions(kept, found, asked.gpu_uuid, any_of=True)
            return await self._placing.work(
                placement_text, self._registry, asked, request, found, checked, conditions
            )
        finally:
            self._placements -= 1

    async def manifest(self) -> Manifest:
        """What is known of the model in use."""
        return (await self._known.predictor(await self.present.kept())).manifest

    async def _recommended(self, kept: Kept, asked: RecommendationRequest) -> Recommendation:
        request, known = request_of(asked, self._settings), await self._set(kept, asked)

        def made() -> tuple[Decision, Recommendation]:
            # Where they run instead is a reason, and takes longer than all else.
            given = advised(known, asked, request) if asked.words else known.advise(asked, request)
            return given.decision, recommendation(given, asked)

        # Two jobs are answered faster than a thread is begun.
        is_short = len(asked.looked_at) == ADVISED_JOBS and not asked.running
        decision, told = made() if is_short else await asyncio.to_thread(made)
        if not asked.components:
            return told
        from advisor_advice.components import with_components

        power = await self._power(kept, asked.names, asked.gpu_model)
        return await asyncio.to_thread(with_components, told, decision, power)

    async def _crossed(self, kept: Kept, asked: GainsRequest) -> Gains:
        """The gains of jobs that are named, or of those that are measured on the GPU model.

        Raises:
            InputError: a job that is named has no profile there.
        """
        gpu_model = asked.gpu_model or BUNDLED_MODEL
        rows = await asyncio.to_thread(self.jobs.rows, "", MOST_ROWS)
        own = [row for row in rows if row.gpu_model == gpu_model]
        names = list(dict.fromkeys(asked.jobs)) or [
            row.job for row in sorted(own, key=lambda row: (row.source == "bundled", row.job))
        ]
        known: list[ProfileSet] = []
        for name in sorted(names[:MOST_CROSSED]):
            # A list may have jobs with too few points for a profile.
            with nullcontext() if asked.jobs else suppress(InputError):
                known.append(await self._known.profiles(kept, [name], gpu_model))
        jobs = [one.a for one in known]
        cells = [await self._cell(kept, request) for request in _requests(asked, gpu_model, jobs)]
        partners = [partner for _, partner in cells]
        return Gains(
            gpu_model=gpu_model,
            objective=asked.policy(self._settings.policy).deciding,
            beside=asked.beside,
            jobs=tuple(curve_of(one.a, bundled=bool(one.bundled)) for one in known),
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

    async def _cell(self, kept: Kept, request: RecommendationRequest) -> _Cell:
        await asyncio.sleep(0)  # others are answered between two pairs
        try:
            decision = await self._decided(kept, request)
        except NoSplitError:
            return None, None
        return verdict_of(decision), next(partner_of(decision), None)

    async def _decided(self, kept: Kept, asked: RecommendationRequest) -> Decision:
        return (await self._set(kept, asked)).decide(request_of(asked, self._settings))

    async def _set(self, kept: Kept, asked: RecommendationRequest) -> KnownSet:
        key = asked.looked_at, asked.gpu_model, asked.gpu_uuid
        if (known := kept.sets.get(key)) is None:
            async with self._reading:  # of many that ask at once, one reads
                if (known := kept.sets.get(key)) is None:
                    known = kept.sets[key] = known_set(await self._known.jobs(kept, *key))
        return known

    async def _power(
        self, kept: Kept, names: Sequence[str], gpu_model: str | None
    ) -> "Callable[[], KnownPower]":
        found = await self._known.profiles(kept, names, gpu_model)
        return partial(self._weights.known_power, kept.change, found)
