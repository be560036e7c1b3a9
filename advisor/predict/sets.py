"""What two to seven jobs do on one GPU: kernel round robin under MPS, and time slicing without it.

Under MPS the hardware deals whole kernels: of the processes that have work each gets one in turn,
however long it is. So what a job keeps depends on how many kernels it makes for a unit of work.
Where limits add up to the GPU or less, each job has SMs of its own and shares the memory.

Every constant is fitted to the bundled sets and pairs on H100 and H200 by
docs/measurements/sets/law.py, which prints them as they stand here and says how far off they
are for jobs that they were not fitted to. Arrays have the shape (jobs, ways).
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import ADVISED_JOBS, ALL_GPUS, MOST_GPUS, WHOLE, Split
from advisor.core.objectives import Interval
from advisor.core.records import CPU_BOUND, FILLS_PERCENT, SINGLE_WINDOW
from advisor.errors import InputError
from advisor.predict.kernels import Kernels
from advisor.predict.predictions import (
    Predictions,
    Predictor,
    joined,
    possible_speeds,
    predict_exclusive,
    solo_of,
    with_doubt,
)
from advisor.predict.profiles import (
    MEASURED_ON,
    Floats,
    Profile,
    crowded,
    hold_several,
    kind_of,
    relative_capacity,
    speed_left,
    without_limit_w,
)

SERVER_HOLD_S = 20e-6
"""Time for which a kernel of a server keeps others off, where not measured: the median of those
that were."""


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """How many kernels jobs make, and how long these are, where profiles say less.

    Attributes:
        launch_s: Time of a CPU core for each kernel: of a job whose kernels are not known, its
            cores say how many there are.
        gaps: Of a job that waits for its host, the part of the time in which a kernel runs is its
            SM activity to this power. Counted: 0.17 at 0.07, 0.47 at 0.31, 0.79 at 0.60.
        batches: Of a server, SM activity alone over that which full batches would need.
        room: Under a limit below this part of the GPU kernels leave SMs to jobs without one, and
            keep them off for as much less: triad at 50 % leaves a small job 0.5 of its speed, at
            100 % 0.03. Not where several have limits, which was not measured.
    """

    launch_s: float
    gaps: float
    batches: float
    room: float

    def kernels(
        self,
        counted: Kernels | None,
        rate: Floats,
        active: Floats,
        whole: tuple[float, float, float],
        *,
        serves: bool,
        waits: bool,
        reads_ahead: bool,
    ) -> tuple[Floats, Floats, Floats]:
        """Of a job alone: kernels a second, time that each takes, and keeps others off, s.

        A server that waits answers in full batches, so kernels of full batches are what counts.

        Args:
            counted: None: they are not known.
            rate: Units of progress a second at each share.
            active: Activity of SMs at each share, or of DRAM where that is higher.
            whole: Rate, activity and CPU cores on the whole GPU.
            serves: Whether it is a server.
            waits: Whether it waits for its host between kernels.
            reads_ahead: Whether it need not wait: its input is there when it is late.
        """
        whole_rate, whole_active, cores = whole
        held_s = counted.hold_s if counted else SERVER_HOLD_S if serves else 0.0
        if counted:
            made = counted.per_unit * rate
        elif serves:
            made = active / (self.batches * held_s)
        else:
            made = min(cores, 1.0) / self.launch_s * rate / whole_rate
        made = np.maximum(made, 1e-3)
        hold_s = np.maximum(held_s, active / made / (self.batches if serves else 1.0))
        runs = 0.0 if reads_ahead else whole_active**self.gaps if waits else 1.0
        kernel_s = np.full_like(made, held_s) if serves else np.maximum(hold_s, runs / made)
        return made, kernel_s, hold_s


def dealt(made: Floats, kernel_s: Floats, hold_s: Floats) -> Floats:
    """Kernels a second of each job where each in turn gets one.

    For each kernel of its own a job waits for one of every other, or for as many as that makes
    meanwhile. So f of the rate f_i solves f_i own_i + sum over others of hold_j min(f_i, f_j) = 1,
    and no job makes more than alone. The slowest wait for all, so they are known first
    (progressive filling: Bertsekas and Gallager, "Data Networks", 1992, section 6.5.2).

    Args:
        made: Kernels a second alone.
        kernel_s: Time that one takes.
        hold_s: That it keeps others off, no more than `kernel_s`.
    """
    number: int = made.shape[1]
    options, left = np.arange(number), np.ones(number)
    rates, waiting_s = np.zeros_like(made), hold_s.copy()
    unknown = np.ones_like(made, dtype=bool)
    for _ in made:
        between_s = kernel_s + waiting_s.sum(axis=0) - waiting_s
        able = np.where(unknown, np.minimum(made, left / np.maximum(between_s, 1e-12)), np.inf)
        slowest = able.argmin(axis=0)
        rates[slowest, options] = able[slowest, options]
        unknown[slowest, options], waiting_s[slowest, options] = False, 0.0
        left = left - (hold_s * rates)[slowest, options]
    return rates


@dataclass(frozen=True, slots=True)
class Tails:
    """How much longer the p99 of a server is under MPS than alone at its limit.

    Attributes:
        crowd: For what all want together, SM activities, 1 for a whole GPU: the square of it less
            that of the server alone.
        kernel_s: From one kernel of a small batch to the next, alone: beside long kernels each
            waits for them.
        held: Part of the time for which a server's kernels keep others off, from which on its
            requests are kernels all through; below it they are to the square of the ratio, and the
            rest of their time waits for no kernel.
        burst_ms: A server whose p99 alone is far below that meets jobs that compute in bursts as
            they are in a burst, on the whole GPU; one far above as they are in the mean.
        memory: Of the time in which DRAM is active, the part that a server with SMs of its own
            waits for.
    """

    crowd: float
    kernel_s: float
    held: float
    burst_ms: float
    memory: float

    def longer(self, jobs: "JobsAlone") -> Floats:
        """Times its p99 alone at its limit, of each that is a server, under MPS.

        Of jobs that compute in bursts the longest burst counts, not their sum.
        """
        burst = _most_beside(jobs.in_bursts * (1 - jobs.sm)) / (1 + jobs.p99_ms / self.burst_ms)
        together = 1 + self.crowd**2 * ((jobs.sm.sum(axis=0) + burst) ** 2 - jobs.sm**2)
        # For each of its kernels one of every other, or as many as that makes meanwhile.
        hold_s, made = (1 - np.eye(len(jobs.sm))[:, :, None]) * jobs.beside_s, jobs.made[None]
        between_s = self.kernel_s + hold_s.sum(axis=1)
        for _ in range(3):
            in_step = made * between_s[:, None] >= 1
            waited = self.kernel_s + (hold_s * in_step).sum(axis=1)
            between_s = waited / (1 - (hold_s * made * ~in_step).sum(axis=1))
        kernels = np.minimum(1.0, jobs.made * jobs.least_hold_s / self.held) ** 2
        waiting = 1 + kernels * (between_s / self.kernel_s - 1)
        # With SMs of its own it waits for the memory, and the more of its limit it leaves idle, the
        # more of its p99 is no queue that was there alone.
        left = np.maximum(0.05, 1 - self.memory * jobs.dram.sum(axis=0))
        queue = (1 - self.memory * jobs.dram) / left
        idle = np.maximum(0.0, 1 - jobs.sm * WHOLE / np.maximum(jobs.share, 1e-9))
        apart = 1 + np.sqrt(idle) * (np.maximum(together, queue) - 1)
        beside = np.maximum(together, waiting)
        return np.asarray(np.where(jobs.apart, apart, beside), dtype=np.float64)


def _most_beside(values: Floats) -> Floats:
    """The largest of the other jobs, 0 at least; shape (jobs, ways)."""
    ordered: Floats = np.sort(np.vstack([np.zeros_like(values[:1]), values]), axis=0)
    first, second = ordered[-1], ordered[-2]
    return np.asarray(np.where(values == first, second, first), dtype=np.float64)


def time_sliced(jobs: "JobsAlone", kept: float | Floats) -> Floats:
    """What each could do of its speed where the driver gives them equal turns.

    None gets longer than it takes, and what those leave is dealt to the others. A job with gaps
    goes on queueing kernels while it waits, so its turn has fewer of them, and a server answers in
    fuller batches: they want the time that their kernels hold and half of their gaps between these,
    a server as far as its SMs are active. Any other job wants all. A server takes more than it
    needs, half of the time in which its kernels leave SMs idle: its turn goes on there.

    A job that computes in bursts and does not read ahead queues nothing between them. It waits in
    them alone, for those that are at the GPU then and wait for it: a closed network of queues,
    exact for two (mean value analysis: Reiser and Lavenberg, Journal of the ACM 27, 1980).

    Args:
        jobs: Alone.
        kept: Part of its speed that a job keeps beside others.
    """
    held: Floats = jobs.made * jobs.least_hold_s
    queues = np.asarray((jobs.in_bursts == 0) | (jobs.reads_ahead > 0))
    runs = np.where(jobs.served, jobs.sm, jobs.made * jobs.kernel_s)
    wanted = np.where(runs < 1 - 1e-6, (runs + held) / 2, 1.0)
    wanted *= (jobs.share > 0) & queues
    taken = np.fmax(wanted, np.where(jobs.served * queues, (jobs.busy + jobs.sm) / 2, 0.0))
    level: Floats = _level(taken, 1.0) / np.maximum(wanted, 1e-9)
    part: Floats = np.where(jobs.served, level, np.minimum(1.0, level))
    bursts: Floats = np.where(queues, 0.0, np.minimum(held, 1.0))
    met: Floats = bursts.sum(axis=0) - bursts
    there: Floats = bursts + np.minimum(1.0, taken * (1 + jobs.served * met))
    others = np.where(queues, met * (1 - jobs.served), there.sum(axis=0) - there)
    part = np.where(queues, part, 1.0) / (1 + there * others)
    beside = np.where(np.count_nonzero(jobs.share, axis=0) > 1, kept, 1.0)
    return np.asarray(part * beside, dtype=np.float64)


def _level(wanted: Floats, supply: float | Floats) -> Floats:
    """Ceiling for each job, so that all together get `supply` if they need more; (ways,).

    Jobs that need less keep their need; the others get the ceiling.
    """
    ordered = np.sort(wanted, axis=0)
    left = supply - np.cumsum(ordered, axis=0) + ordered
    return (left / np.arange(len(ordered), 0, -1)[:, None]).max(axis=0)


def power_w(
    kept: Floats,
    alone_w: Floats,
    active_idle_w: Floats,
    limit_w: float,
    saved: Floats,
    *,
    is_sliced: bool | npt.NDArray[np.bool_],
) -> Floats:
    """What all add to the active idle power, each as much as it keeps of its speed; (ways,).

    Each adds what it drew over the active idle power of the card that it was measured on, shape
    (jobs, 1) or (jobs, ways), less the part `saved`. Side by side it is at least what the hungriest
    draws alone: it waits only while others compute. Changes of turns draw as work does. A job that
    draws nothing is an empty seat.
    """
    kept = np.where(is_sliced, np.minimum(1.0, kept / SLICING_KEPT), kept)
    jobs_w = kept * np.maximum(0.0, alone_w - active_idle_w) * (1 - saved)
    together_w = active_idle_w.sum(axis=0) / (alone_w > 0).sum(axis=0) + jobs_w.sum(axis=0)
    beside: Floats = np.maximum(together_w, alone_w.max(axis=0))
    return np.minimum(limit_w, np.where(is_sliced, together_w, beside))


SetClass: TypeAlias = Literal[
    "own SMs",
    "own SMs, one fills",
    "none fills",
    "fills",
    "fills beside another",
    "beside one that fills",
    "fills, guessed",
    "fills beside another, guessed",
    "beside one that fills, guessed",
    "beside several that fill, guessed",
    "fills, one limit",
    "beside one that fills, one limit",
    "fills, guessed, one limit",
    "beside one that fills, guessed, one limit",
    "time-sliced",
]
"""By which errors of jobs differ: limits that add up to the GPU or less, where no job fills the GPU
alone, and where one does; side by side, of a job that does not fill the GPU beside others that do
not, of one that does, also beside another that does, of one that does not beside one that does,
these where kernels of all are not known, and where a job has a limit; or any, time-sliced."""

CLASSES: tuple[SetClass, ...] = get_args(SetClass)
OF_SET: Mapping[SetClass, SetClass] = MappingProxyType(
    {
        name: cast(
            "SetClass",
            name.removesuffix(", one limit")
            .replace("fills beside another", "fills")
            .replace("several that fill", "one that fills"),
        )
        for name in CLASSES
    }
)
"""By which errors of sets and of p99s differ: not by limits, nor by how many fill the GPU."""


# By whether the job fills, several do, kernels are guessed, and one has a limit.
_UNDER_MPS: tuple[SetClass, ...] = (
    "beside one that fills",
    "beside one that fills, one limit",
    "beside one that fills, guessed",
    "beside one that fills, guessed, one limit",
    "beside one that fills",
    "beside one that fills, one limit",
    "beside several that fill, guessed",
    "beside one that fills, guessed, one limit",
    "fills",
    "fills, one limit",
    "fills, guessed",
    "fills, guessed, one limit",
    "fills beside another",
    "fills, one limit",
    "fills beside another, guessed",
    "fills, guessed, one limit",
)
_PLACES = np.array([*map(CLASSES.index, _UNDER_MPS)])

SLICED = CLASSES.index("time-sliced")

ROUND_ROBIN = RoundRobin(launch_s=16e-6, gaps=0.5, batches=1.5, room=0.7)

# CPU cores of a job where they are not known: one that leaves most SMs unused, and one that fills
# the GPU; medians of the bundled jobs that are no servers.
_UNREAD_CORES = (1.0, 0.4)

# Where neither its cores nor more than one window were read, a job whose SMs or DRAM are active
# for less of the time is taken to wait for its host: of the bundled jobs that are no servers 28
# of 29 such wait, and none of 38 others, the least active at 0.76.
_WAITING = 0.7

TAILS = Tails(crowd=1.5, kernel_s=12e-6, held=0.07, burst_ms=12.0, memory=0.85)

# Part of the speed that time slicing leaves (`time_sliced`); a GeForce loses nothing: of half of
# the networks of Lucid's table, on an RTX 3090 (docs/measurements/sets.md).
SLICING_KEPT = 0.92

# What a request waits for the time slice of each other job (`JobsAlone.later`), fitted to
# time-sliced windows (docs/measurements/sets/tails.py).
TURN_MS = 3.0

FULLER = 0.15
"""Part of its power over active idle that a server saves beside jobs that want the whole GPU: its
requests wait for their kernels, so it answers in fuller batches."""

ACTIVE_IDLE_OVER_W = 45.0
"""Active idle power over that of the empty card, for profiles without the former."""

SPEED_ERRORS: Mapping[SetClass, tuple[float, float]] = MappingProxyType(
    {
        "own SMs": (0.66, 1.31),
        "own SMs, one fills": (0.54, 1.13),
        "none fills": (0.65, 1.54),
        "fills": (0.89, 1.08),
        "fills beside another": (0.82, 1.41),
        "beside one that fills": (0.57, 1.59),
        "fills, guessed": (0.79, 1.3),
        "fills beside another, guessed": (0.54, 2.09),
        "beside one that fills, guessed": (0.31, 2.33),
        "beside several that fill, guessed": (0.23, 2.62),
        "fills, one limit": (0.78, 1.22),
        "beside one that fills, one limit": (0.68, 1.34),
        "fills, guessed, one limit": (0.77, 1.33),
        "beside one that fills, guessed, one limit": (0.56, 1.31),
        "time-sliced": (0.78, 1.23),
    }
)
"""Measured for each 1 predicted, of jobs that were not fitted to: the ends of 90 %, raised by one
over the number of jobs (docs/measurements/sets/law.py). Of a server it is for each 1 that it could
do."""

# As that of "time-sliced", on a GPU model that is not in `MEASURED_ON`: what a change of turns
# costs differs between cards. The widest ends of two tables of others (docs/measurements/sets.md).
_SLICED_ELSEWHERE = (0.74, 1.48)

POWER_ERRORS: Mapping[SetClass, tuple[float, float]] = MappingProxyType(
    {
        "own SMs": (0.83, 1.18),
        "own SMs, one fills": (0.9, 1.08),
        "none fills": (0.87, 1.22),
        "fills": (0.83, 1.05),
        "beside one that fills": (0.9, 1.11),
        "fills, guessed": (0.83, 1.05),
        "beside one that fills, guessed": (0.88, 1.11),
        "time-sliced": (0.82, 1.17),
    }
)
"""The same of the watts of a set, by the last class in their order of any of its jobs."""

ENERGY_ERRORS: Mapping[SetClass, tuple[float, float]] = MappingProxyType(
    {
        "own SMs": (0.86, 1.28),
        "own SMs, one fills": (0.87, 1.08),
        "none fills": (0.82, 1.16),
        "fills": (0.95, 1.21),
        "beside one that fills": (0.85, 1.07),
        "fills, guessed": (0.93, 1.22),
        "beside one that fills, guessed": (0.84, 1.08),
        "time-sliced": (0.93, 1.17),
    }
)
"""The same for the energy of the work on separate GPUs, relative to that of sharing."""

P99_ERRORS: Mapping[SetClass, Interval] = MappingProxyType(
    {
        "own SMs": Interval(1.0, 0.77, 1.4),
        "own SMs, one fills": Interval(1.0, 0.55, 1.92),
        "none fills": Interval(1.0, 0.5, 1.94),
        "fills": Interval(1.0, 0.31, 1.31),
        "beside one that fills": Interval(1.0, 0.27, 2.9),
        "fills, guessed": Interval(1.0, 0.4, 1.34),
        "beside one that fills, guessed": Interval(1.0, 0.26, 2.67),
        "time-sliced": Interval(0.94, 0.74, 3.08),
    }
)
"""p99 for each 1 that is said, of servers that `TAILS` was not fitted to and where their demand is
said to be met, 5th and 95th percentile (docs/measurements/sets/tails.py)."""


def of_server(name: SetClass) -> SetClass:
    """By which speeds of servers of a class differ: one that fills the GPU waits as others do."""
    beside = "beside one that " + name.replace("fills beside another", "fills")
    return cast("SetClass", beside) if name.startswith("fills") else name


def fills(profile: Profile) -> bool:
    """Whether a job fills the GPU alone; one of which no counter was read is taken to."""
    active = WHOLE * _whole_active(profile)
    return math.isnan(active) or active >= FILLS_PERCENT


def _whole_active(profile: Profile) -> float:
    # SM activity on the whole GPU, 0 to 1; where it was not read, by the time in which it is busy.
    active = float(profile.values["sm_active_percent"][-1]) / WHOLE
    return profile.busy ** (1 / ROUND_ROBIN.gaps) if math.isnan(active) else active


# Of the warps that SMs can hold. A job that fills SMs with fewer has few blocks of many
# registers, which last as long as its kernels: matmul-bf16 (14 %) keeps others off as long below
# normal priority as at normal, and of matmul-fp32 (12 %) they wait half as long; of seven with 37
# to 89 % for microseconds (docs/measurements/profiles.md).
_LEAST_OCCUPANCY_PERCENT = 25.0


def has_short_blocks(profile: Profile) -> bool:
    """Whether a job fills the GPU with many short blocks: no kernel slips in beside one of its."""
    occupancy = float(profile.values["sm_occupancy_percent"][-1])
    return fills(profile) and occupancy >= _LEAST_OCCUPANCY_PERCENT


def why_not_below_normal(profiles: Sequence[Profile], split: Split) -> str:
    """Why a priority below normal gives the other jobs nothing, or was not measured; else empty."""
    if len(profiles) > ADVISED_JOBS or len(split.below_normal) == ADVISED_JOBS:
        return "two jobs were measured so, one at normal priority, and no third beside them"
    for seat, profile in enumerate(profiles):
        is_low, job = seat in split.below_normal, profile.job
        if is_low != fills(profile):
            fact = f"{job} does not fill the GPU" if is_low else f"{job} fills the GPU, too"
            return f"{fact}; one that does was measured so, beside one that does not"
        occupancy = float(profile.values["sm_occupancy_percent"][-1])
        if is_low and math.isnan(occupancy):
            return f"the occupancy of {job} was not read, so its blocks may be few and long"
        if is_low and occupancy < _LEAST_OCCUPANCY_PERCENT:
            return (
                f"kernels of {job} fill the SMs with few, long blocks (occupancy {occupancy:.0f} "
                "%), and what has priority waits until a block ends"
            )
    return ""


def _below_normal(profiles: Sequence[Profile], split: Split) -> list[bool]:
    """Which jobs run below normal priority, to the gain of the others."""
    is_gain = bool(split.below_normal) and not why_not_below_normal(profiles, split)
    return [is_gain and low for _, low in split.seats]


@dataclass(frozen=True, slots=True)
class BelowNormal:
    """Jobs beside one that fills the GPU at a priority below normal.

    Their kernels wait for blocks of that job, microseconds, and no longer for its kernels.

    Attributes:
        slowed: Kernels take 1 / (1 - slowed x DRAM activity of that job x its share) times as long
            beside its blocks.
        taken: Of the SMs that others keep active, the part that it loses.
    """

    slowed: float
    taken: float

    def beside(self, jobs: "JobsAlone", low: npt.NDArray[np.bool_]) -> "JobsAlone":
        """The jobs as those at normal priority meet them; `low`, (jobs, ways), are those below."""
        dram = np.where(low, jobs.dram * jobs.share / WHOLE, 0.0).sum(axis=0)
        longer = np.where(low, 1.0, 1 / (1 - self.slowed * np.minimum(dram, 1.0)))
        hold_s = np.where(low, 0.0, jobs.hold_s)
        return replace(jobs, kernel_s=jobs.kernel_s * longer, hold_s=hold_s)

    def could(self, jobs: "JobsAlone", low: npt.NDArray[np.bool_]) -> Floats:
        """As `JobsAlone.could`, of jobs as `beside` tells them."""
        others = np.where(low, 0.0, jobs.sm * jobs.kept(jobs.could)).sum(axis=0)
        left = np.maximum(0.0, 1 - self.taken * others) * jobs.share / WHOLE
        wanted = jobs.rate * np.minimum(1.0, left / np.maximum(jobs.sm, 1e-9))
        return np.where(low, wanted, jobs.could)


BELOW_NORMAL = BelowNormal(slowed=0.8, taken=0.8)

LOW_SPEEDS = (0.82, 1.22), (0.41, 1.27), (0.96, 1.13)
"""As `SPEED_ERRORS`, of a job below normal priority, and of those beside it, servers last: of 34
windows of two of these none served less than 0.96 of what was asked."""

LOW_POWER, LOW_ENERGY, LOW_P99 = (0.73, 1.07), (0.89, 1.08), Interval(0.63, 0.44, 0.83)
"""As `POWER_ERRORS`, `ENERGY_ERRORS` and `P99_ERRORS`, of jobs with one below normal priority."""

_LOW, _BESIDE_LOW, _SERVED_LOW = range(len(CLASSES), len(CLASSES) + len(LOW_SPEEDS))


_POWER_ERRORS, _ENERGY_ERRORS = (
    np.array([*(errors[OF_SET[name]] for name in CLASSES), *[below] * len(LOW_SPEEDS)])
    for errors, below in ((POWER_ERRORS, LOW_POWER), (ENERGY_ERRORS, LOW_ENERGY))
)
_SPEED_ENDS = np.array([*(SPEED_ERRORS[name] for name in CLASSES), *LOW_SPEEDS])
_SERVER_ENDS = np.array([*(SPEED_ERRORS[of_server(name)] for name in CLASSES), *LOW_SPEEDS])
P99_ENDS = np.array(
    [
        astuple(of)
        for of in (*(P99_ERRORS[OF_SET[n]] for n in CLASSES), *[LOW_P99] * len(LOW_SPEEDS))
    ]
)
"""By the numbers of the classes, then of `_LOW`, `_BESIDE_LOW` and `_SERVED_LOW`."""


class SetPredictor:
    """A `Predictor` of any number of jobs."""

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order.

        Raises:
            InputError: a share lies outside a profile.
        """
        alone = alone_at(profiles, np.array([split.shares for split in splits]).T)
        if hold_several(profiles):
            return _on_gpus(profiles, splits, alone)
        is_sliced = np.array([split.sharing == "time-sliced" for split in splits])
        classes, could = np.where(is_sliced, SLICED, alone.classes), alone.could
        below = np.array([_below_normal(profiles, split) for split in splits]).T
        if below.any():
            alone = BELOW_NORMAL.beside(alone, below)
            could = BELOW_NORMAL.could(alone, below)
            low_classes = np.where(below, _LOW, np.where(alone.served, _SERVED_LOW, _BESIDE_LOW))
            classes = np.where(below.any(axis=0), low_classes, classes)
        could = np.where(is_sliced, alone.sliced, could)
        longer, limit_w = (
            np.where(is_sliced, alone.later(), TAILS.longer(alone)),
            _limit_w(profiles),
        )
        could = np.where(below.any(axis=0), could, alone.at_limit(could, limit_w))
        kept = alone.kept(np.minimum(could, alone.rate))
        watts = power_w(
            kept, alone.power_w, alone.idle_w, limit_w, alone.saved(), is_sliced=is_sliced
        )
        return _with_bounds(profiles, splits, alone, (could, classes, longer), (watts, limit_w))


def _limit_w(profiles: Sequence[Profile]) -> float:
    return min((p.power_limit_w for p in profiles if p.power_limit_w), default=math.inf)


def _with_bounds(
    profiles: Sequence[Profile],
    splits: Sequence[Split],
    alone: "JobsAlone",
    expected: tuple[Floats, npt.NDArray[np.intp], Floats],
    power: tuple[Floats, float],
) -> Predictions:
    """Predictions of what jobs could do, by the errors of their classes; exclusive as measured.

    Args:
        profiles: Of the jobs.
        splits: The ways.
        alone: The jobs alone.
        expected: What each could do with more requests, its class, and times its p99 alone.
        power: Watts of the set, and the most that it draws.
    """
    could, classes, longer = expected
    watts, limit_w = power
    apart = np.array([split.sharing == "exclusive" for split in splits])
    speeds = np.minimum(could, alone.rate)
    ends = alone.speed_ends(classes)
    if profiles[0].gpu_model not in MEASURED_ON:
        ends = np.where(classes == SLICED, np.array(_SLICED_ELSEWHERE)[:, None, None], ends)
    low, high = ends
    # What a server serves is as sure as that it could do more; of the rest chance decides.
    bounds = np.array([speeds, low * could, high * could])
    for job, profile in enumerate(profiles):
        bounds[:, job] = possible_speeds(profile, bounds[:, job])
    alone_ms = np.where(alone.p99_ms > 0, alone.p99_ms, np.inf)
    of_class = np.where(apart, 1.0, np.moveaxis(P99_ENDS[classes], -1, 0))
    tails_ms = of_class * (np.where(apart, 1.0, longer) * alone_ms)
    worst = classes.max(axis=0)
    low_w, high_w = _POWER_ERRORS[worst].T * watts
    exclusive = predict_exclusive(profiles)
    return Predictions(
        splits=tuple(splits),
        solo=solo_of(profiles),
        speeds=np.where(apart, exclusive.parts[0].speed.value, bounds),
        power_w=np.where(
            apart,
            exclusive.power_w.value,
            [watts, low_w, np.maximum(watts, np.minimum(high_w, limit_w))],
        ),
        latencies_p99_ms=np.where(np.isinf(tails_ms), np.nan, tails_ms),
        memory_power_w=np.full((3, len(splits)), np.nan),
        efficiency_factors=np.where(apart, np.nan, _ENERGY_ERRORS[worst].T),
    )


def _on_gpus(
    profiles: Sequence[Profile], splits: Sequence[Split], alone: "JobsAlone"
) -> Predictions:
    """One job of two GPUs, and on each of these some of the others.

    Its ranks exchange gradients once for each unit of progress, so a unit takes as long as on the
    GPU where it takes longer. The law of sets says how long that is on each, and each meets
    neighbours of its own by chance: `_later_of_two`. The rank that waits leaves its neighbours the
    time. It makes no more kernels than the other, and gets these on its GPU, so that one pass is
    the fixed point.

    Raises:
        InputError: more than one job of several GPUs, one of more than two, or a split that does
            not name the GPU of each neighbour, or is time-sliced.
    """
    [rank, *more] = [n for n, profile in enumerate(profiles) if profile.gpus > 1]
    job = profiles[rank]
    wrong = [s for s in splits if s.sharing == "time-sliced" or s.below_normal]
    wrong += [s for s in splits if s.sharing != "exclusive" and not s.gpus]
    if more or wrong or job.gpus > MOST_GPUS:
        what = ", ".join(map(str, wrong)) or "a set of so many"
        raise InputError(
            f"{what} is not known of {job.job}, which holds {job.gpus} GPUs",
            why=f"sets of one job of {MOST_GPUS} GPUs under MPS are known, with a GPU for each "
            "neighbour; ranks that are time-sliced at different times wait for each other",
            fix="name the GPU of each neighbour, such as 100/100@0/100@1",
        )
    seats = np.array([split.gpus or (ALL_GPUS,) * len(profiles) for split in splits]).T
    cards = [alone.where((seats == gpu) | (seats == ALL_GPUS)) for gpu in range(job.gpus)]
    lasting = [card.lasting(rank, job.whole_gpu_rate) for card in cards]
    part = 1 / _later_of_two(*lasting)
    # It makes that part of its kernels, whether it waits for gradients or for neighbours.
    made = alone.made.copy()
    made[rank] *= part
    cards = [
        c.slowed(rank, part, part * reach) for c, (reach, _) in zip(cards, lasting, strict=True)
    ]
    could = np.max([replace(c, made=np.where(c.share > 0, made, 0.0)).could for c in cards], axis=0)
    could[rank] = alone.rate[rank] * part
    speeds, limit_w = np.minimum(could, alone.rate), _limit_w(profiles)
    watts = sum(
        power_w(
            card.kept(speeds), card.power_w, card.idle_w, limit_w, card.saved(), is_sliced=False
        )
        for card in cards
    )
    classes = np.max([np.where(card.share > 0, card.classes, 0) for card in cards], axis=0)
    longer = np.max([np.where(card.share > 0, TAILS.longer(card), 0) for card in cards], axis=0)
    power = np.asarray(watts), job.gpus * limit_w
    return _with_bounds(profiles, splits, alone, (could, classes, longer), power)


def _later_of_two(this: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> Floats:
    """Expected maximum of two normal durations, each with its variance; of two without, the longer.

    C. E. Clark, "The Greatest of a Finite Set of Random Variables", Operations Research 9, 1961.
    """
    (first, of_first), (second, of_second) = this, other
    spread = np.sqrt(of_first + of_second)
    ahead = (first - second) / np.maximum(spread, 1e-12)
    is_first = np.array([NormalDist().cdf(a) for a in ahead.tolist()])
    both = first * is_first + second * (1 - is_first)
    return both + spread * np.exp(-(ahead**2) / 2) / math.sqrt(2 * math.pi)


def is_by_physics(split: Split) -> bool:
    """Whether the law of sets knows an option better than the model of pairs.

    The model is off by less for two jobs at limits that add up to the GPU, at normal priority
    (docs/measurements/sets.md).
    """
    is_pair = len(split.shares) == ADVISED_JOBS and split.is_limited
    is_usual = not split.below_normal and not split.gpus
    return not (is_pair and is_usual and _are_apart(split.shares))


def _are_apart(shares: Iterable[Any]) -> Any:
    """Whether limits, percent, leave each job SMs of its own; arrays or numbers."""
    return sum(shares) <= WHOLE + 1


@dataclass(frozen=True, slots=True)
class OptionPredictor:
    """Two jobs side by side as `of_pairs` says, and by physics what `is_by_physics` and tails."""

    of_pairs: Predictor

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order."""
        serves = any(profile.serving for profile in profiles)
        several = hold_several(profiles)
        of_pairs = [s for s in splits if not (several or is_by_physics(s))]
        of_sets = [s for s in splits if several or serves or is_by_physics(s)]
        parts = [
            by.predict(profiles, some)
            for by, some in ((SetPredictor(), of_sets), (self.of_pairs, of_pairs))
            if some
        ]
        predictions = joined(splits, *parts)
        if serves:
            predictions = replace(predictions, latencies_p99_ms=parts[0].latencies_p99_ms)
        return with_doubt(predictions, profiles)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JobsAlone:
    """Jobs alone at their shares; shape (jobs, ways) each. A row of zeros is an empty seat.

    Attributes:
        share: Percent.
        rate: For each 1 on the whole GPU.
        reach: What it could do with more requests, as `rate`.
        needs: As `Profile.whole_gpu_needed`.
        fills: 1 for a job that fills the GPU alone.
        served: 1 for a server.
        idle_w: Of the card that it was measured on, with contexts and no work.
        in_bursts: 1 for a job that computes in bursts.
        reads_ahead: 1 for one of these that reads its input meanwhile.
        p99_ms: Of a server; infinite where it is not known.
        busy: Part of the time in which its kernels run on the whole GPU; NaN: not known.
        made: Kernels a second.
        kernel_s: Time that one takes.
        hold_s: That it keeps others off.
        guessed: 1 where kernels are not known.
        room: As of `RoundRobin`.
        slicing_kept: As `SLICING_KEPT`, of its card.
        wanted_w: What it would draw without the power limit.
    """

    share: Floats
    rate: Floats
    reach: Floats
    needs: Floats
    power_w: Floats
    sm: Floats
    dram: Floats
    fills: Floats
    served: Floats
    idle_w: Floats
    in_bursts: Floats
    reads_ahead: Floats
    p99_ms: Floats
    busy: Floats
    made: Floats
    kernel_s: Floats
    hold_s: Floats
    guessed: Floats
    room: Floats
    slicing_kept: Floats
    wanted_w: Floats

    def where(self, seated: npt.NDArray[np.bool_]) -> "JobsAlone":
        """Those that are seated, (jobs, ways); in the other places are empty seats."""
        kept = {f.name: np.where(seated, getattr(self, f.name), 0.0) for f in fields(self)}
        return JobsAlone(**kept)

    def slowed(self, row: int, part: Floats, busy: Floats) -> "JobsAlone":
        """Where one does such a part of its work alone, and waits for another GPU but `busy`.

        Both of shape (ways,), for each 1 of its work and of the time.
        """
        is_it = np.arange(len(self.share))[:, None] == row
        part, busy = np.where(is_it, part, 1.0), np.where(is_it, np.minimum(busy, 1.0), 1.0)
        return replace(
            self,
            power_w=self.power_w - (1 - part) * np.maximum(0.0, self.power_w - self.idle_w),
            wanted_w=self.wanted_w - (1 - part) * np.maximum(0.0, self.wanted_w - self.idle_w),
            **{name: getattr(self, name) * part for name in ("rate", "reach")},
            **{name: getattr(self, name) * busy for name in ("sm", "dram", "made")},
        )

    def lasting(self, row: int, whole_rate: float) -> tuple[Floats, Floats]:
        """Seconds of a unit of one of them for each 1 alone at its share, and their variance.

        Each of its kernels meets one of every other job, or, of one that makes fewer, by chance.

        Args:
            row: The job.
            whole_rate: Units a second on the whole GPU.
        """
        kept = self.could / np.maximum(self.rate, 1e-12)
        kernels = self.made * kept
        met = np.minimum(1.0, kernels / np.maximum(kernels[row], 1e-12))
        unit_s = 1 / (self.rate[row] * whole_rate)
        of_each = met * (1 - met) * self.beside_s**2 * (self.made[row] * unit_s)
        chance = np.where(self.apart | (self.guessed[row] > 0), 0.0, of_each.sum(axis=0))
        return 1 / kept[row], chance / unit_s**2

    def seated(self, rows: Any, levels: Any) -> "JobsAlone":
        """Those of some rows and columns, as numpy takes them."""
        return JobsAlone(**{f.name: getattr(self, f.name)[rows, levels] for f in fields(self)})

    @property
    def beside_s(self) -> Floats:
        """`hold_s` as others meet it: `RoundRobin.room`."""
        is_limited = (self.share > 0) & (self.share < WHOLE)
        # Another that fills the GPU takes all SMs that are left.
        others_fill = ((self.fills > 0) & ~is_limited).any(axis=0)
        has_room = is_limited & (is_limited.sum(axis=0) == 1) & ~others_fill
        left = np.minimum(1.0, self.share / WHOLE / np.maximum(self.room, 1e-9))
        return self.hold_s * np.where(has_room, left, 1.0)

    @property
    def least_hold_s(self) -> Floats:
        """`hold_s`, of a server in full batches."""
        return np.minimum(self.kernel_s, self.hold_s)

    @property
    def apart(self) -> npt.NDArray[np.bool_]:
        """Whether each of several has SMs of its own under MPS; shape (ways,)."""
        several = np.count_nonzero(self.share, axis=0) > 1
        return np.asarray(several & _are_apart(self.share), dtype=bool)

    @property
    def classes(self) -> npt.NDArray[np.intp]:
        """Places in `CLASSES` under MPS."""
        count = np.count_nonzero(self.fills, axis=0)
        is_limited = ((self.share > 0) & (self.share < WHOLE)).any(axis=0)
        bits = 4 * (count > 1) + 2 * self.guessed.any(axis=0) + is_limited
        classes = _PLACES[8 * (self.fills > 0) + bits]
        shared = np.where(count > 0, classes, CLASSES.index("none fills"))
        return np.where(self.apart, count > 0, shared)

    @property
    def could(self) -> Floats:
        """What each could do with more requests under MPS, as `rate`; no server: what it does."""
        kernels = dealt(self.made, self.kernel_s, self.beside_s)
        held = kernels * self.beside_s
        left = (1 - held.sum(axis=0) + held) / np.maximum(self.kernel_s, 1e-12)
        kept = np.maximum(kernels, left) / np.maximum(self.made, 1e-12)
        crowded_alone = np.where(self.served, np.inf, crowded(self.sm, self.dram))
        kept = np.where(self.apart, crowded_alone, kept)
        return self.within(np.minimum(self.reach, self.rate * kept))

    @property
    def sliced(self) -> Floats:
        """As `could`, where the driver gives them equal turns."""
        return self.within(np.minimum(self.reach, self.rate * time_sliced(self, self.slicing_kept)))

    def within(self, could: Floats, supply: float | Floats = 1.0) -> Floats:
        """No more of servers than the time of the whole GPU allows, of which there is `supply`.

        Those that need less of it than others keep their need. What one leaves that waits for other
        jobs is given to none, so that no job is faster beside more.
        """
        level = _level(self.needs * self.rate, supply)
        is_held = (self.needs > 0) & (np.count_nonzero(self.share, axis=0) > 1)
        return np.where(is_held, np.minimum(could, level / np.maximum(self.needs, 1e-12)), could)

    def together_w(self, could: Floats) -> Floats:
        """What all would draw under MPS without the power limit; shape (ways,)."""
        kept = self.kept(np.minimum(could, self.rate))
        return power_w(kept, self.wanted_w, self.idle_w, math.inf, self.saved(), is_sliced=False)

    def clock(self, could: Floats, limit_w: float) -> Floats:
        """Part of the highest clock at which all draw no more than the limit; shape (ways,)."""
        return speed_left(limit_w, self.together_w(could), limit_w)

    def at_limit(self, could: Floats, limit_w: float) -> Floats:
        """What they could at the clock that the power limit leaves.

        All have one clock, by what they want together. A job that has a limit of SMs loses as much.
        One without waits for kernels of others, whose time was measured at the limit: of those no
        loss was found, until servers take all of the time that the GPU has at that clock.
        """
        if math.isinf(limit_w):
            return could
        left = self.clock(could, limit_w)
        unlimited = speed_left(limit_w, self.wanted_w, limit_w)
        is_limited = (self.share > 0) & (self.share < WHOLE)
        clocks = np.where(is_limited, np.minimum(1.0, left / unlimited), 1.0)
        return self.within(could * clocks, left)

    def later(self, turn_ms: float = TURN_MS) -> Floats:
        """Times its p99 alone, of each that is a server, where the driver gives them equal turns.

        A request gets one of so many turns, and waits `turn_ms` for that of each other job first.
        """
        count = np.count_nonzero(self.share, axis=0)
        return count + (count - 1) * turn_ms / np.maximum(self.p99_ms, 1e-9)

    def saved(self, fuller: float | Floats = FULLER) -> Floats:
        """Part of its power over active idle that each saves beside others, as `FULLER`."""
        beside = np.minimum(1.0, self.sm.sum(axis=0) - self.sm)
        return np.where(self.apart, 0.0, fuller * self.served * beside)

    def speed_ends(self, classes: npt.NDArray[np.intp]) -> Floats:
        """Ends of ranges of jobs of these classes beside each other; shape (2, jobs, ways)."""
        is_served = (self.served > 0)[..., None]
        return np.moveaxis(np.where(is_served, _SERVER_ENDS[classes], _SPEED_ENDS[classes]), -1, 0)

    def kept(self, speeds: Floats) -> Floats:
        """Part of its speed alone at its share that each keeps."""
        return np.minimum(1.0, speeds / np.maximum(self.rate, 1e-9))


def alone_at(profiles: Sequence[Profile], shares: Floats) -> JobsAlone:
    """Each at its shares, percent; shape (jobs, ways)."""
    jobs = [_alone(p, tuple(of_job)) for p, of_job in zip(profiles, shares.tolist(), strict=True)]
    columns = np.moveaxis(np.array(jobs), 1, 0)
    return JobsAlone(
        **{field.name: column for field, column in zip(fields(JobsAlone), columns, strict=True)}
    )


@functools.lru_cache(maxsize=4096)  # placing asks for many sets of few jobs
def _alone(profile: Profile, shares: tuple[float, ...]) -> Floats:
    """The fields of `JobsAlone` of one job, in their order; shape (fields, ways)."""
    names = "rate", "power_w", "sm_active_percent", "dram_active_percent", "sm_clock_mhz"
    rates, powers_w, sm, dram, clocks = profile.at([*shares, WHOLE], *names).values()
    by_busy = WHOLE * _whole_active(profile) * rates / rates[-1]
    of_all = np.where(np.isnan(by_busy), [*shares, WHOLE], by_busy)
    limit_w = profile.power_limit_w or math.inf
    most_mhz = np.fmax.reduce(profile.values["sm_clock_mhz"])
    is_read, sm = not math.isnan(sm[-1]), np.where(np.isnan(sm), of_all, sm) / WHOLE
    active = np.fmax(sm, dram / WHOLE)
    unit, serving = np.ones(len(shares)), profile.serving
    alone_ms = [serving.p99_alone_ms(share) if serving else None for share in shares]
    is_filling, cores = fills(profile), float(profile.values["job_cpu_percent"][-1]) / WHOLE
    serves = kind_of(profile) == "server"
    # Where no reading says that SMs are idle while it is busy, it is taken to wait between bursts.
    in_bursts = profile.in_bursts or not (is_read or serves or active[-1] >= _WAITING)
    waits = CPU_BOUND in profile.flags or in_bursts
    if math.isnan(cores) or SINGLE_WINDOW in profile.flags:
        waits |= bool(active[-1] < _WAITING)
    if math.isnan(cores):
        cores = _UNREAD_CORES[is_filling or in_bursts] * (active[-1] if in_bursts else 1.0)
    return np.array(
        [
            shares,
            rates[:-1] / profile.whole_gpu_rate,
            relative_capacity(profile, shares),
            profile.whole_gpu_needed * unit,
            powers_w[:-1],
            sm[:-1],
            np.nan_to_num(dram[:-1]) / WHOLE,
            is_filling * unit,
            serves * unit,
            active_idle_w(profile) * unit,
            in_bursts * unit,
            profile.reads_ahead * unit,
            [math.inf if ms is None else ms for ms in alone_ms],
            profile.busy * unit,
            *ROUND_ROBIN.kernels(
                profile.kernels,
                rates[:-1],
                active[:-1],
                (float(rates[-1]), float(active[-1]), cores),
                serves=serves,
                waits=waits,
                reads_ahead=profile.reads_ahead,
            ),
            (profile.kernels is None) * unit,
            ROUND_ROBIN.room * unit,
            (1.0 if "GeForce" in profile.gpu_model else SLICING_KEPT) * unit,
            without_limit_w(limit_w, powers_w[:-1], clocks[:-1] / most_mhz),
        ]
    )


def active_idle_w(profile: Profile) -> float:
    """Power with contexts and no work: as it was measured, else over that of the empty card."""
    measured_w = profile.active_idle_power_w
    return profile.idle_power_w + ACTIVE_IDLE_OVER_W if math.isnan(measured_w) else measured_w
