"""What runs on the GPUs of this host now, and who could share a card: an audit of a minute.

What is said of other shares and of sets is estimated from what a GPU read over the last minute.
"""

import pwd
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.core.gpu import WHOLE, Gpu
from advisor.core.interval import Interval
from advisor.core.records import FILLS_PERCENT
from advisor.formats.moments import now
from advisor.predict.profiles import Profile
from advisor.runtime.processes import descendants, name_of, owner_of
from advisor_audit.audit import Wanted, walk_of, worlds_of
from advisor_audit.kinds import SM, Survey
from advisor_audit.packing import Walk, Walked
from advisor_audit.phases import HELD_MIB, Segment
from advisor_audit.result import WORLDS, interval, saved_w
from advisor_audit.sources.series import POWER, USED, Owner
from advisor_profiling.attached import GpuLook, HostGpus

WINDOW_S = 60.0
HALF = WHOLE / 2

Means = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJob:
    """Who holds a GPU.

    Attributes:
        job: Its name here, in sets, too.
        pids: Of its processes that began without each other; none: NVML names none.
        user: None: the host does not say.
        power_w: Of the whole card, as `sm_active_percent` and `memory_mib`.
        half_speed: Speed at half of the card for each 1 on all of it, estimated, with the ends of
            90 %; None: too little was read, several share the card, or it is on several.
        fills: Whether it keeps the SMs active half of the time; None: not read, or
            several are there.
    """

    job: str
    gpu: int | None
    gpu_model: str
    pids: tuple[int, ...]
    user: str | None
    power_w: float | None
    sm_active_percent: float | None
    memory_mib: float | None
    half_speed: Interval | None
    fills: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSet:
    """Jobs that could move to one card, as a set of an audit; its ranges are of 90 %."""

    jobs: tuple[str, ...]
    speeds: tuple[float, ...]
    limits_percent: tuple[float, ...]
    power_w: float
    saved_w: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSeen:
    """All of it; what is said of half a card and of sets is `basis`."""

    at: str
    basis: str
    jobs: tuple[HostJob, ...]
    free_gpus: tuple[int | None, ...]
    together: tuple[HostSet, ...]


@dataclass(slots=True)
class _Card:
    """A GPU and its last minute with the same processes."""

    looks: "deque[Means]"
    pids: tuple[int, ...] = ()

    def add(self, pids: tuple[int, ...], read: Means) -> Means:
        """One more look; the means of the minute, of memory the most."""
        if pids != self.pids:
            self.pids = pids
            self.looks.clear()
        self.looks.append(read)
        values = {name: [one[name] for one in self.looks if name in one] for name in read}
        return {n: max(of) if n == USED else sum(of) / len(of) for n, of in values.items()}


class HostWatch:
    """The GPUs of this host, looked at again and again.

    Raises:
        SourceError: no driver, or no GPU.
    """

    def __init__(self, wanted: Wanted, every_s: float) -> None:
        self._host, self._wanted = HostGpus(), wanted
        self._looks = max(1, round(WINDOW_S / every_s))
        self._cards: dict[str, _Card] = {}

    def look(self) -> HostSeen:
        """What is there now, a while after the last look.

        Raises:
            SourceError: a GPU does not answer any more.
        """
        there: list[tuple[GpuLook, Segment]] = []
        for seen in self._host.look():
            # Those that compute and were not started by another one of them.
            below = {child for pid in seen.pids for child in descendants(pid)}
            pids = tuple(pid for pid in seen.pids if pid not in below)
            card = self._cards.setdefault(seen.gpu.uuid, _Card(deque(maxlen=self._looks)))
            there.append((seen, _segment(seen.gpu, card.add(pids, seen.means), pids)))
        segments = [one for _, one in there]
        survey = Survey()
        survey.add_page(segments)
        walk = walk_of(segments, survey, self._wanted, Walked(WINDOW_S))
        walk.page(segments, 0.0, WINDOW_S)
        return HostSeen(
            at=now(),
            basis="estimated",
            jobs=tuple(self._job(seen, one, survey) for seen, one in there if one.state != "free"),
            free_gpus=tuple(seen.gpu.index for seen, one in there if one.state == "free"),
            together=tuple(_together(walk, self._wanted)),
        )

    def _job(self, seen: GpuLook, one: Segment, survey: Survey) -> HostJob:
        gpu, read = seen.gpu, seen.means
        pids, active = self._cards[gpu.uuid].pids, one.means.get(SM)
        return HostJob(
            job=one.owner.name if one.owner else " + ".join(map(_name, pids)),
            gpu=gpu.index,
            gpu_model=gpu.model,
            pids=pids,
            user=_users(pids),
            power_w=read.get(POWER),
            sm_active_percent=read.get(SM),
            memory_mib=read.get(USED),
            half_speed=self._half_speed(one, survey),
            fills=None if active is None or not one.owner else active >= FILLS_PERCENT,
        )

    def _half_speed(self, one: Segment, survey: Survey) -> Interval | None:
        kind = survey.kind_of(one) if one.owner not in survey.several else None
        if kind is None:
            return None
        guess = survey.guesses([kind], self._wanted.head)
        return interval(np.array([[_at_half(*guess(world))] for world in range(WORLDS)]))

    def close(self) -> None:
        """Let the driver go."""
        self._host.close()


def _segment(gpu: Gpu, means: Means, pids: tuple[int, ...]) -> Segment:
    """The last minute of a GPU, as an audit sees it."""
    held = bool(pids) or means.get(USED, 0.0) > HELD_MIB
    name = _name(pids[0]) if pids else f"of GPU {gpu.index}"
    return Segment(
        gpu=gpu.uuid,
        model=gpu.model,
        host="",
        owner=Owner(_users(pids) or "", name) if held and len(pids) < 2 else None,
        state="free" if not held else "busy" if len(pids) < 2 else "shared",
        phase=0,
        begin_s=0.0,
        end_s=WINDOW_S,
        seen_s=WINDOW_S,
        means=means,
        spread=0.0,
    )


def _name(pid: int) -> str:
    """The script or program, and the number."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        words = []
    script = next((word for word in words if word.endswith(".py")), words[0] if words else "")
    return f"{Path(script).name or name_of(pid) or 'process'} ({pid})"


def _users(pids: Sequence[int]) -> str | None:
    found = {_user(uid) for pid in pids if (uid := owner_of(pid)) is not None}
    return ", ".join(sorted(found)) or None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _at_half(profile: Profile) -> float:
    rates = profile.values["rate"]
    return float(np.interp(HALF, profile.shares, rates) / rates[-1])


def _together(walk: Walk, wanted: Wanted) -> list[HostSet]:
    """Sets that save most first."""
    found, worlds = list[HostSet](), worlds_of(walk, wanted)
    saved = saved_w(walk.walked.hours, worlds) if walk.walked.hours else {}
    for jobs, key in walk.walked.teams:
        one = walk.packers[key.model].set_of(key.members, key.level)
        found.append(
            HostSet(
                jobs=tuple(job.name for job in jobs),
                speeds=one.speeds,
                limits_percent=one.shares,
                power_w=one.power_w,
                saved_w=saved[key],
            )
        )
    return sorted(found, key=lambda one: -one.saved_w.value)
