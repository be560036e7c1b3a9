"""A GPU of a queue, and the sets that are launched on it."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.core.gpu import WHOLE, Gpu
from advisor.core.job import Job
from advisor.core.split import Split
from advisor.launch.records.spec import LaunchPart, LaunchSet
from advisor.settings import Settings
from advisor_advice import forecasting
from advisor_advice.filling.advice import FillAdvice
from advisor_advice.resolved_launch import ResolvedLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCard:
    """A GPU of the queue: what launches on it are asked for with, and what is known of jobs."""

    wanted: ResolvedLaunch
    advice: FillAdvice

    @property
    def gpu(self) -> Gpu:
        """The card; a queue runs on none that was not seen."""
        assert self.wanted.card is not None
        return self.wanted.card

    def launch_set(self, jobs: Sequence[Job], split: Split, settings: Settings) -> LaunchSet:
        """Jobs at a split, with what to expect of them and what they are held to.

        Raises:
            StoreError: what the check of the GPU model found cannot be read.
        """
        parts = tuple(self.advice.held_to(LaunchPart(job=job)) for job in jobs)
        # Nobody has a limit, but who joins may need one.
        split = Split(split.shares) if split.sharing == "uncapped" else split
        made = LaunchSet(split=split, parts=parts, open_percent=WHOLE)
        return forecasting.with_forecast(made, self.wanted, settings)[0]
