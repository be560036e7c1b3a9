"""Jobs that run together on one GPU, from the first common moment to the end of one of them."""

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Generic

import advisor
from advisor.core.gpu import Gpu
from advisor.core.job import verdict_flags
from advisor.core.records import (
    LIMIT_BROKEN,
    SETTLE_S,
    UNCOUNTED,
    Observation,
    ObservedPart,
    with_job_energy,
)
from advisor.formats.moments import to_exact_text
from advisor.launch.account import energy_saved
from advisor.launch.job_monitor import relative
from advisor.launch.meter import Metered, Moment, RateMeter
from advisor.launch.observe import pace_flags
from advisor.launch.set_monitor import work_per_joule
from advisor.launch.status import State
from advisor_node.metering.meters import T, TenantMeter, idle_power_w

LOG = logging.getLogger("advisor.node")

GONE_S = 15.0
"""A job that uses the GPU no more has ended for its neighbour after this time, whatever its
scheduler says of it, which learns of the end of a process seconds later."""


class Overlap(Generic[T]):
    """Jobs that work together on one GPU, from the moment at which they were seen to do so.

    They have been `before` so often: others had joined them, and left.
    """

    def __init__(
        self,
        gpu: Gpu,
        meters: Sequence[TenantMeter[T]],
        now_s: float,
        metered: Metered | None,
        before: int = 0,
    ) -> None:
        self.meters = tuple(sorted(meters, key=lambda meter: meter.tenant.uid))
        self._gpu, self._begun_s, self._last_s = gpu, now_s, now_s
        self._before = before
        self._started_at = to_exact_text(datetime.now(UTC))
        self._first = self._last = metered
        self._overlap_s = 0.0
        self._steps = [RateMeter() for _ in self.meters]
        self._joules = RateMeter()
        self._uncounted = False

    @property
    def uids(self) -> frozenset[str]:
        """Of its jobs."""
        return frozenset(meter.tenant.uid for meter in self.meters)

    def add(self, now_s: float, metered: Metered | None) -> None:
        """Count the time since the last look; the time in which one of them is gone is in no mean.

        All of them work now; `metered` is the energy of the GPU so far, None where none was read.
        """
        self._overlap_s += now_s - self._last_s
        self._last_s, self._last = now_s, metered
        self._first = self._first or metered
        self._uncounted = self._uncounted or any(meter.unread for meter in self.meters)
        if self._overlap_s < SETTLE_S:
            return
        for meter, steps in zip(self.meters, self._steps, strict=True):
            steps.add(Moment(now_s), meter.steps or 0)
        if metered is not None:
            self._joules.add(*metered.of_rate)

    def has_ended(self, now_s: float, present: frozenset[str]) -> bool:
        """Whether one of its jobs works no more, for good; `present` are those of the node."""
        gone = [meter for meter in self.meters if not meter.working]
        over = any(meter.tenant.over or meter.tenant.uid not in present for meter in gone)
        return over or (bool(gone) and now_s - self._last_s > GONE_S)

    def observe(self, node: str, scheduler: str) -> Observation:
        """What they did, as the service takes it in; its id begins with the scheduler."""
        rates = [steps.rate() for steps in self._steps]
        parts = tuple(_part(meter, rate) for meter, rate in zip(self.meters, rates, strict=True))
        power_w = self._joules.rate()
        speeds = [relative(part.rate, part.solo_rate) for part in parts]
        who = [scheduler, *(meter.tenant.uid[:8] for meter in self.meters)]
        seen = Observation(
            launch_id="-".join([*who, *([f"again{self._before}"] if self._before else [])]),
            parts=parts,
            gpu_model=self._gpu.model,
            gpu_uuid=self._gpu.uuid,
            units_total=self._gpu.units_total,
            power_limit_w=self._gpu.power_limit_w,
            driver=self._gpu.driver,
            mode="mps",
            power_w=power_w,
            energy_j=self._energy_j(),
            overlap_s=self._overlap_s,
            settled_s=max(steps.span_s for steps in self._steps),
            work_per_joule=work_per_joule(speeds, power_w),
            energy_saved=energy_saved(power_w, rates, parts),
            state=_state(self.meters),
            started_at=self._started_at,
            host=node,
            tool_version=advisor.__version__,
            flags=self._flags(parts),
        )
        return with_job_energy(seen, idle_power_w(self.meters))

    def _energy_j(self) -> float | None:
        if self._first is None or self._last is None:
            return None
        return self._last.since(self._first).whole_j(self._overlap_s)

    def _flags(self, parts: Sequence[ObservedPart]) -> tuple[str, ...]:
        of_meters = zip(self.meters, parts, strict=True)
        alone = [meter.reference.rate_at(part.share_percent) for meter, part in of_meters]
        not_proven = any(m.limit_broken or m.proof.proven is not True for m in self.meters)
        return (
            *(("not-settled",) if any(part.rate is None for part in parts) else ()),
            *((LIMIT_BROKEN,) if not_proven else ()),
            *((UNCOUNTED,) if self._uncounted else ()),
            *pace_flags(zip((part.rate for part in parts), alone, strict=True)),
            *verdict_flags(meter.results for meter in self.meters),
        )


class Overlaps(Generic[T]):
    """The overlap on one GPU, if there is one now."""

    def __init__(self, gpu: Gpu, node: str, scheduler: str) -> None:
        self._gpu, self._node, self._scheduler = gpu, node, scheduler
        self._now: Overlap[T] | None = None
        self._before: dict[frozenset[str], int] = {}

    @property
    def uids(self) -> frozenset[str]:
        """Of the jobs of which something is still to be reported."""
        return self._now.uids if self._now else frozenset()

    def follow(
        self,
        now_s: float,
        meters: Sequence[TenantMeter[T]],
        present: frozenset[str],
        metered: Metered | None,
    ) -> Iterator[Observation]:
        """Follow the jobs that work together; gives what they did when one of them has ended."""
        working = [meter for meter in meters if meter.working and meter.tenant.uid in present]
        uids = frozenset(meter.tenant.uid for meter in working)
        if self._now is not None:
            if uids == self._now.uids:
                self._now.add(now_s, metered)
            elif uids > self._now.uids or self._now.has_ended(now_s, present):
                yield self._now.observe(self._node, self._scheduler)
                self._now = None
        self._before = {them: n for them, n in self._before.items() if them <= present | uids}
        if self._now is None and len(working) > 1:
            before = self._before.get(uids, 0)
            self._before[uids] = before + 1
            self._now = Overlap(self._gpu, working, now_s, metered, before)
            names = ", ".join(f"{one.tenant.uid} ({one.tenant.job})" for one in working)
            LOG.info("%s work together on %s", names, self._gpu.uuid)


def _part(meter: TenantMeter[T], rate: float | None) -> ObservedPart:
    return ObservedPart(
        job=meter.tenant.job,
        share_percent=meter.tenant.share.percent,
        units=meter.proof.units,
        rate=rate,
        rate_unit=meter.reference.rate_unit,
        solo_rate=meter.reference.rate,
        solo_power_w=meter.reference.power_w,
        results=meter.results,
        libraries=meter.libraries,
        ended_first=meter.tenant.over,
    )


def _state(meters: Sequence[TenantMeter[T]]) -> State:
    states = {meter.tenant.state for meter in meters}
    return "failed" if "failed" in states else "finished" if "finished" in states else "stopped"
