"""What the service knows of jobs that are asked about: profiles, checks and conditions, kept."""

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence

from advisor.predict.windows import Windows
from advisor.settings import Settings
from advisor.validity.safe_counts import CheckedCounts
from advisor_advice.conditions import Conditions, KnownJobs, checks_of, measured_windows
from advisor_advice.profiles import (
    ProfileSet,
    ProfilesOfJob,
    known_profiles,
    no_profile,
    on_one_gpu,
    or_estimated,
)
from advisor_api.engine import bundled
from advisor_api.engine.job_rows import Jobs
from advisor_api.engine.present import Kept, Present
from advisor_data import Store
from advisor_data.files.checked import checked_counts
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Registry


class JobsReader:
    """Reads what is asked for once for each state; for one event loop."""

    def __init__(
        self, settings: Settings, store: Store, registry: Registry, jobs: Jobs, present: Present
    ) -> None:
        self._settings, self._store, self._registry = settings, store, registry
        self._jobs, self._present = jobs, present
        self._loading, self._opening, self._measuring = (asyncio.Lock() for _ in range(3))

    async def jobs(
        self,
        kept: Kept,
        names: Sequence[str],
        gpu_model: str | None,
        gpu_uuid: str | None,
        *,
        any_of: bool = False,
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
            conditions=await self.conditions(kept, found, gpu_uuid, any_of=any_of),
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
            for name, of_job in loaded.items():
                kept.profiles[name] = of_job
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
        return dataclasses.replace(conditions, windows=await self._windows(kept, found, any_of))

    async def _windows(self, kept: Kept, found: ProfileSet, any_of: bool) -> Windows:
        """What was measured of these jobs together; that of a whole queue is not kept."""
        key = (found.a.gpu_model, *sorted(p.job for p in found.profiles))
        async with self._measuring:
            windows = None if any_of else kept.windows.get(key)
            if windows is None:
                windows = await asyncio.to_thread(self._measured, found, any_of)
                if not any_of:
                    kept.windows[key] = windows
        return windows

    def _measured(self, found: ProfileSet, any_of: bool) -> Windows:
        names, known = {p.job for p in found.profiles}, bundled.points_together()
        points = [point for jobs, of in known.items() if {*jobs} <= names for point in of]
        checks = checks_of(self._settings)
        return measured_windows(found.profiles, checks, self._store, points, any_of=any_of)
