"""Pods that run together on one GPU, from the first common moment to the end of one of them."""

from collections.abc import Sequence
from datetime import UTC, datetime

import advisor
from advisor.core.flags import LIMIT_BROKEN, TOO_FAST
from advisor.core.gpu import Gpu
from advisor.core.observations import Observation, ObservedPart
from advisor.core.results import verdict_flags
from advisor.formats.moments import to_exact_text
from advisor.launch.monitor.account import SETTLE_S, energy_saved
from advisor.launch.monitor.job_monitor import relative
from advisor.launch.monitor.pair_monitor import work_per_joule
from advisor.launch.monitor.rate_meter import RateMeter
from advisor.launch.records.status import State
from advisor.launch.supervisor.observe import FASTEST
from advisor_kubernetes.agent.meters import PodMeter

GONE_S = 15.0
"""A pod that uses the GPU no more has ended for its neighbour after this time, whatever Kubernetes
says of it: its phase follows the end of its process by seconds."""


class Overlap:
    """Pods that work together on one GPU.

    Args:
        gpu: The GPU.
        meters: All of them.
        now_s: When they were first seen to work together.
        total_j: Energy of the GPU at that moment.
    """

    def __init__(
        self, gpu: Gpu, meters: Sequence[PodMeter], now_s: float, total_j: float | None
    ) -> None:
        self.meters = tuple(sorted(meters, key=lambda meter: meter.pod.uid))
        self._gpu, self._begun_s, self._last_s = gpu, now_s, now_s
        self._started_at = to_exact_text(datetime.now(UTC))
        self._total_j, self._energy_j = total_j, 0.0
        self._has_energy = total_j is not None
        self._overlap_s = 0.0
        self._steps = [RateMeter() for _ in self.meters]
        self._joules = RateMeter()

    @property
    def uids(self) -> frozenset[str]:
        """Of its pods."""
        return frozenset(meter.pod.uid for meter in self.meters)

    def add(self, now_s: float, total_j: float | None) -> None:
        """Count the time since the last look; the time in which one of them is gone is in no mean.

        Args:
            now_s: Of this look, at which all of them work.
            total_j: Energy of the GPU so far; None: not known.
        """
        self._overlap_s += now_s - self._last_s
        self._last_s = now_s
        if total_j is None or self._total_j is None:
            self._has_energy = False
        else:
            self._energy_j += total_j - self._total_j
            self._total_j = total_j
        if self._overlap_s < SETTLE_S:
            return
        for meter, steps in zip(self.meters, self._steps, strict=True):
            steps.add(now_s, meter.steps or 0)
        if total_j is not None:
            self._joules.add(now_s, total_j)

    def has_ended(self, now_s: float, present: frozenset[str]) -> bool:
        """Whether one of its pods works no more, for good.

        Args:
            now_s: Now.
            present: Uids of the pods that the node has.
        """
        gone = [meter for meter in self.meters if not meter.working]
        over = any(meter.pod.over or meter.pod.uid not in present for meter in gone)
        return over or (bool(gone) and now_s - self._last_s > GONE_S)

    def observe(self, node: str) -> Observation:
        """What they did, as the service takes it in."""
        rates = [steps.rate() for steps in self._steps]
        parts = tuple(_part(meter, rate) for meter, rate in zip(self.meters, rates, strict=True))
        power_w = self._joules.rate() if self._has_energy else None
        speeds = [relative(part.rate, part.solo_rate) for part in parts]
        return Observation(
            launch_id="k8s-" + "-".join(meter.pod.uid[:8] for meter in self.meters),
            parts=parts,
            gpu_model=self._gpu.model,
            gpu_uuid=self._gpu.uuid,
            units_total=self._gpu.units_total,
            power_limit_w=self._gpu.power_limit_w,
            driver=self._gpu.driver,
            mode="mps",
            power_w=power_w,
            energy_j=self._energy_j if self._has_energy else None,
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

    def _flags(self, parts: Sequence[ObservedPart]) -> tuple[str, ...]:
        not_proven = any(m.limit_broken or m.proof.proven is not True for m in self.meters)
        return (
            *(("not-settled",) if any(part.rate is None for part in parts) else ()),
            *((LIMIT_BROKEN,) if not_proven else ()),
            *((TOO_FAST,) if any(map(_is_too_fast, self.meters, parts)) else ()),
            *verdict_flags(meter.results for meter in self.meters),
        )


def _part(meter: PodMeter, rate: float | None) -> ObservedPart:
    return ObservedPart(
        job=meter.pod.job,
        share_percent=meter.pod.share.percent,
        units=meter.proof.units,
        rate=rate,
        rate_unit=meter.reference.rate_unit,
        solo_rate=meter.reference.rate,
        solo_power_w=meter.reference.power_w,
        results=meter.results,
        libraries=meter.libraries,
        ended_first=meter.pod.over,
    )


def _is_too_fast(meter: PodMeter, part: ObservedPart) -> bool:
    alone = meter.reference.rate_at(part.share_percent)
    return bool(part.rate and alone and part.rate > FASTEST * alone)


def _state(meters: Sequence[PodMeter]) -> State:
    phases = {meter.pod.phase for meter in meters}
    return "failed" if "Failed" in phases else "finished" if "Succeeded" in phases else "stopped"
