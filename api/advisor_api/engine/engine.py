"""Answers from what is kept in memory: profiles, the model in use, and whole answers as bytes."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from advisor.core.gpu import WHOLE
from advisor.decide.candidates import Running
from advisor.errors import AdvisorError, BusyError
from advisor.formats.wire import read, write, write_bytes
from advisor.settings import Settings
from advisor.wire.partners import Gains
from advisor.wire.placement_requests import PlacementRequest, SetPlacementRequest
from advisor.wire.recommendation import Recommendation
from advisor.wire.requests import (
    GainsRequest,
    RecommendationRequest,
    ReplicasRequest,
    SetRequest,
    WayRequest,
)
from advisor.wire.sets import Replicas, SetAdvice
from advisor_advice.answer import ModelAdvice, known_pair, request_of, set_request_of
from advisor_advice.placement_wire import placement_text, set_placement_text
from advisor_advice.placing import limits_of
from advisor_advice.placing_sets import running_request
from advisor_advice.recommendation_wire import to_wire
from advisor_advice.set_advice import advise_replicas, advise_set
from advisor_advice.site.conditions import Experience
from advisor_advice.words import pair, sets
from advisor_api.engine import bundled
from advisor_api.engine.crossed import crossed
from advisor_api.engine.job_rows import Jobs
from advisor_api.engine.known import JobsReader
from advisor_api.engine.own_process import OwnProcesses
from advisor_api.engine.power import Weights
from advisor_api.engine.present import Kept, Present
from advisor_data import Store
from advisor_models.manifest import Manifest
from advisor_models.registry import Registry

if TYPE_CHECKING:
    from advisor_power.components import KnownPower

# What tells where power goes is imported with the first question: most services are asked none.

A = TypeVar("A", bound=WayRequest | GainsRequest)

MOST_ROWS = 1000
"""Names of jobs among which those of a GPU model are looked for."""

PLACEMENTS_AT_ONCE = 2
PLACEMENTS_WAITING = 8
"""More would only wait for each other: placing takes seconds of a whole core."""


class Engine:
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
        self._present = Present(settings.home, registry, change_count)
        self._known = JobsReader(settings, store, registry, self.jobs, self._present)
        self._placing, self._placements = OwnProcesses(settings, PLACEMENTS_AT_ONCE), 0
        self.hits = self.misses = 0

    async def warm_up(self) -> None:
        """Read what every answer needs, and answer once: the first who asks waits no longer.

        What fails here is told by readiness, and to those who ask.
        """
        job = min(await asyncio.to_thread(bundled.profiles))
        with suppress(AdvisorError):
            asked = read(RecommendationRequest, write(RecommendationRequest.of(job, job)))
            write_bytes(await self._recommended(await self._present.kept(), asked))

    def close(self) -> None:
        """End placements that are still worked out."""
        self._placing.close()

    def changed(self) -> None:
        """Say that this process wrote to the store or the registry; any thread may."""
        self._present.changed()

    def observed(self, experience: Experience) -> None:
        """Take in what launches say from now on; any thread may."""
        self._present.observed(experience)

    async def recommend(self, asked: RecommendationRequest) -> bytes:
        """The answer as JSON: `advisor.wire.recommendation`."""
        return await self._kept_answer(asked, self._recommended)

    async def answer(self, asked: RecommendationRequest) -> ModelAdvice:
        """As `recommend`, as values."""
        return await self._answer(await self._present.kept(), asked)

    async def recommend_set(self, asked: SetRequest) -> bytes:
        """How three to seven jobs are to run, as JSON: `advisor.wire.sets.SetAdvice`."""
        return await self._kept_answer(asked, self._set)

    async def replicas(self, asked: ReplicasRequest) -> bytes:
        """How many copies of a job one GPU holds, as JSON: `advisor.wire.sets.Replicas`."""
        return await self._kept_answer(asked, self._replicas)

    async def gains(self, asked: GainsRequest) -> bytes:
        """What pairs of a GPU model's jobs gain, as JSON: `advisor.wire.partners.Gains`."""
        return await self._kept_answer(asked, self._crossed)

    async def known_power(self, names: Sequence[str], gpu_model: str | None) -> "KnownPower":
        """What is known of the power of jobs; component weights are fitted once for each state.

        Raises:
            InputError: a job without a profile, or too few jobs were measured on the GPU model.
        """
        known = await self._power(await self._present.kept(), names, gpu_model)
        return await asyncio.to_thread(known)

    async def place(self, asked: PlacementRequest | SetPlacementRequest) -> bytes:
        """Who shares with whom, as JSON: `advisor.wire.placement`.

        Worked out beside everything else, in a process of its own.

        Raises:
            BusyError: too many placements are asked for at once.
            InputError: also an objective that is not for queues.
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
            if isinstance(asked, SetPlacementRequest):
                return await self._place_sets(asked)
            return await self._place(asked)
        finally:
            self._placements -= 1

    async def manifest(self) -> Manifest:
        """What is known of the model in use."""
        return (await self._known.predictor(await self._present.kept())).manifest

    async def _kept_answer(self, asked: A, told: Callable[[Kept, A], Awaitable[object]]) -> bytes:
        """The answer as it was told before in this state, else as it is told now."""
        kept = await self._present.kept()
        try:
            text = kept.answers[asked]  # to ask first whether it is there takes as long again
        except KeyError:
            text = None
        if text is not None:
            self.hits += 1
            return text
        self.misses += 1
        text = write_bytes(await told(kept, asked))
        kept.answers[asked] = text
        return text

    async def _recommended(self, kept: Kept, asked: RecommendationRequest) -> Recommendation:
        given = await self._answer(kept, asked)
        told = to_wire(given)
        if asked.words:
            told = dataclasses.replace(told, said=pair.said(given))
        if not asked.components:
            return told
        from advisor_advice.components import with_components

        known = await self._power(kept, asked.names, asked.gpu_model)
        return await asyncio.to_thread(with_components, told, given.recommendation, known)

    async def _set(self, kept: Kept, asked: SetRequest) -> SetAdvice:
        asked.check_running()
        # The daemon of those that run bounds nobody further.
        there = Running(shares=asked.running, sharing="limited", cap_percent=WHOLE)
        running = there if asked.running else None
        known = await self._known.jobs(kept, asked.names, asked.gpu_model, asked.gpu_uuid)
        request = set_request_of(asked, self._settings)
        told = await asyncio.to_thread(advise_set, known, request, running, every=asked.every)
        said = sets.said(told, self._settings.prices) if asked.words else None
        return dataclasses.replace(told, said=said)

    async def _replicas(self, kept: Kept, asked: ReplicasRequest) -> Replicas:
        known = await self._known.jobs(
            kept, asked.names, asked.gpu_model, asked.gpu_uuid, any_of=True
        )
        request = set_request_of(asked, self._settings)
        return await asyncio.to_thread(advise_replicas, known, request, asked.most)

    async def _crossed(self, kept: Kept, asked: GainsRequest) -> Gains:
        rows = await asyncio.to_thread(self.jobs.rows, "", MOST_ROWS)
        return await crossed(
            asked, rows, partial(self._known.profiles, kept), partial(self._answer, kept)
        )

    async def _place(self, asked: PlacementRequest) -> bytes:
        kept = await self._present.kept()
        found = await self._known.profiles(kept, asked.names, asked.gpu_model)
        limits = limits_of(asked, self._settings.min_speed)
        checked = await self._known.checked(kept, found)
        conditions = await self._known.conditions(kept, found, asked.gpu_uuid, any_of=True)
        return await self._placing.work(
            placement_text, self._registry, found, asked, limits, checked, conditions
        )

    async def _place_sets(self, asked: SetPlacementRequest) -> bytes:
        kept = await self._present.kept()
        found = await self._known.profiles(kept, sorted({*asked.names}), asked.gpu_model)
        request, checked = (
            running_request(asked, self._settings),
            await self._known.checked(kept, found),
        )
        return await self._placing.work(
            set_placement_text, self._registry, found, request, checked, self._settings.prices
        )

    async def _answer(self, kept: Kept, asked: RecommendationRequest) -> ModelAdvice:
        key = asked.names, asked.gpu_model, asked.gpu_uuid
        if (known := kept.pairs.get(key)) is None:
            known = kept.pairs[key] = known_pair(await self._known.jobs(kept, *key))
        return known.answer(request_of(asked, self._settings))

    async def _power(
        self, kept: Kept, names: Sequence[str], gpu_model: str | None
    ) -> "Callable[[], KnownPower]":
        found = await self._known.profiles(kept, names, gpu_model)
        return partial(self._weights.known_power, kept.change, found)
